//! Who takes part.

use super::{GatherError, Request};
use std::{collections::BTreeMap, time::Duration};
use thalweg_mesh::Names;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::overlay::Overlay;
use thalweg_wire::mesh::Name;

/// The most hosts between that are taken unasked: the planner's time grows with their square, and the
/// next best add little.
const MOST: usize = 16;

/// Which hosts may stand between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// The relays of the roster, the best by the estimates.
    #[default]
    Relays,
    /// These.
    Named(Vec<Name>),
}

/// That all who are named are members.
pub(super) fn check(request: &Request, reach: &MemberDialer) -> Result<(), GatherError> {
    let roster = reach.roster().map_err(GatherError::Roster)?;
    let names = Names { roster: Ok(&roster), me: Some(reach.me()) };
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

/// Who may stand between, in the order of the roster or of the request.
pub(super) fn between(request: &Request, reach: &MemberDialer) -> Vec<Name> {
    let Ok(roster) = reach.roster() else { return Vec::new() };
    match &request.via {
        Via::Named(names) => names.clone(),
        Via::Relays => {
            let names = Names { roster: Ok(&roster), me: Some(reach.me()) };
            let relays = names.candidates(&request.terms, usize::MAX).into_iter();
            relays.map(|(name, _)| name).collect()
        }
    }
}

/// The overlay of the request, with round trips that were just seen from the sources.
pub(super) fn overlay(
    request: &Request,
    reach: &MemberDialer,
    rtts: BTreeMap<Name, Duration>,
) -> Overlay {
    let here = reach.me();
    let sources: Vec<Name> = request.sources.iter().map(|source| source.node.clone()).collect();
    let mut estimates = request.estimates.clone();
    rtts.iter().for_each(|(source, rtt)| estimates.learn_rtt(source, here, *rtt));
    let between = between(request, reach);
    let most = if request.via == Via::Relays { MOST } else { between.len() };
    let intermediates = estimates.intermediates(&sources, between, here, most);
    estimates.overlay(&sources, &intermediates, here)
}
