//! The path that uses all interfaces for one connection: a bond to a relay.

use super::{
    allowed,
    args::{Interfaces, PathArgs},
};
use crate::commands::{host, uplinks};
use std::{collections::BTreeSet, sync::Arc};
use thalweg_mesh::BOND;
use thalweg_net::{Dialer, Interface, Route, interfaces};
use thalweg_paths::candidates::Candidate;
use thalweg_uplinks::{
    bond::{Bonding, Settings},
    interfaces::Uplinks,
};

/// Adds bonds to the dialer, over the interfaces that may be used, within their caps and limits if `uplinks` knows
/// them.
///
/// # Errors
/// A mistake in the arguments.
pub fn lend(dialer: Dialer, args: &PathArgs, uplinks: Option<&Uplinks>) -> anyhow::Result<Dialer> {
    let named = match args.interfaces()? {
        Interfaces::None => return Ok(dialer),
        Interfaces::Named(names) => Some(names.to_vec()),
        _ => None,
    };
    let policies = host::settings(None)?.interfaces.settings();
    let of = move |mut found: Vec<Interface>, fails: &BTreeSet<u32>| match &named {
        Some(names) => {
            found.retain(|interface| names.contains(&interface.name));
            found
        }
        None => allowed::for_bond(&policies, &found, fails),
    };
    let (plain, settings) = (dialer.clone(), Settings::default());
    let bonds = match uplinks.cloned() {
        None => Bonding::with_interfaces(
            plain,
            settings,
            Arc::new(move |fails| Ok(of(interfaces()?, fails))),
        ),
        Some(uplinks) => {
            let known = uplinks.clone();
            let by = move |fails: &BTreeSet<u32>| {
                let mut found = interfaces()?;
                found.retain(|interface| known.has_room(&interface.name));
                Ok(of(found, fails))
            };
            Bonding::with_caps(plain, settings, Arc::new(by), uplinks)
        }
    };
    Ok(dialer.with_carrier(Arc::new(uplinks::track_bonds(bonds.on_demand()))))
}

/// On a host with several interfaces, one more path: a bond to the first relay of the mesh that the user named, if no
/// path with a bond is named. Only by it, a server without range requests is reached over all interfaces.
pub fn path(
    args: &PathArgs,
    relays: &[(String, Route)],
    interfaces: &[Interface],
) -> Option<Candidate> {
    let is_node = |route: &Route| {
        !route.is_carried() && route.hops().first().is_some_and(|hop| hop.key().is_some())
    };
    let is_said = relays.iter().any(|(_, route)| route.is_bonded());
    let first = relays.iter().find(|(_, route)| is_node(route));
    let (name, route) =
        first.filter(|_| !args.via.is_empty() && !is_said && interfaces.len() >= 2)?;
    let (name, route) = (format!("{name}{BOND}"), route.clone().bonded());
    Some(Candidate { name, route, mirror: None })
}
