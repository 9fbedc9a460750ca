//! Selects the participants of a collection.

use super::{GatherError, Request};
use std::{collections::BTreeMap, time::Duration};
use thalweg_mesh::Names;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::overlay::Overlay;
use thalweg_wire::mesh::Name;

/// The maximum number of intermediates used automatically: the planner's time grows with their square, and further ones
/// add little.
const MOST: usize = 16;

/// Hosts that may be used as intermediates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// The relays of the roster, the best ones by the estimates.
    #[default]
    Relays,
    /// Exactly these hosts.
    Named(Vec<Name>),
}

/// Checks that all named nodes are members.
pub(super) fn check(request: &Request, dialer: &MemberDialer) -> Result<(), GatherError> {
    let roster = dialer.roster().map_err(GatherError::Roster)?;
    let names = Names { roster: Ok(&roster), me: Some(dialer.me()) };
    for source in &request.sources {
        names.node(&source.node)?;
    }
    if let Via::Named(via) = &request.via {
        for name in via {
            names.route(name.as_str(), &request.terms)?;
        }
    }
    Ok(())
}

/// The possible intermediates, in the order of the roster or of the request.
pub(super) fn between(request: &Request, dialer: &MemberDialer) -> Vec<Name> {
    let Ok(roster) = dialer.roster() else { return Vec::new() };
    match &request.via {
        Via::Named(names) => names.clone(),
        Via::Relays => {
            let names = Names { roster: Ok(&roster), me: Some(dialer.me()) };
            let relays = names.candidates(&request.terms, usize::MAX).into_iter();
            relays.map(|(name, _)| name).collect()
        }
    }
}

/// The overlay of the request, including the round trips just measured from the sources.
pub(super) fn overlay(
    request: &Request,
    dialer: &MemberDialer,
    rtts: BTreeMap<Name, Duration>,
) -> Overlay {
    let here = dialer.me();
    let sources: Vec<Name> = request.sources.iter().map(|source| source.node.clone()).collect();
    let mut estimates = request.estimates.clone();
    rtts.iter().for_each(|(source, rtt)| estimates.learn_rtt(source, here, *rtt));
    let between = between(request, dialer);
    let most = if request.via == Via::Relays { MOST } else { between.len() };
    let intermediates = estimates.intermediates(&sources, between, here, most);
    estimates.overlay(&sources, &intermediates, here)
}
