//! The path that uses all interfaces for one connection.

use super::{
    allowed,
    args::{Interfaces, PathArgs},
};
use crate::commands::here;
use std::sync::Arc;
use thalweg_net::{Dialer, Interface, Route, interfaces};
use thalweg_node::{
    bond::{Bonding, Settings},
    get::Candidate,
    mesh::BOND,
};

/// The dialler with bonds for the paths that want them, by the interfaces that may be used.
///
/// # Errors
/// What is wrong with the arguments.
pub fn lend(dialer: Dialer, args: &PathArgs) -> anyhow::Result<Dialer> {
    let bonds = match args.interfaces()? {
        Interfaces::Named(names) => {
            let names = names.to_vec();
            let by = move || {
                let mut found = interfaces()?;
                found.retain(|interface| names.contains(&interface.name));
                Ok(found)
            };
            Bonding::by(dialer.clone(), Settings::default(), Arc::new(by))
        }
        Interfaces::None => return Ok(dialer),
        _ => {
            let policies = here::settings(None)?.interfaces.settings();
            let by = move || Ok(allowed::for_bond(&policies, interfaces()?));
            Bonding::by(dialer.clone(), Settings::default(), Arc::new(by))
        }
    };
    Ok(dialer.carried_by(Arc::new(bonds.on_demand())))
}

/// One path more where there are several ways into the world: by a bond to the first relay of the
/// mesh that the user named, if no path by a bond is named. By it alone a server that knows no
/// ranges is reached over all interfaces.
pub fn path(
    args: &PathArgs,
    relays: &[(String, Route)],
    interfaces: &[Interface],
) -> Option<Candidate> {
    // As a bond takes them: those with a default route, or all where none has one.
    let default = interfaces.iter().filter(|i| i.has_default_route).count();
    let ways = if default == 0 { interfaces.len() } else { default };
    let is_node = |route: &Route| route.hops().first().is_some_and(|hop| hop.key().is_some());
    let is_said = relays.iter().any(|(_, route)| route.is_bonded());
    let first = relays.iter().find(|(_, route)| is_node(route));
    let (name, route) = first.filter(|_| !args.via.is_empty() && !is_said && ways >= 2)?;
    let (name, route) = (format!("{name}{BOND}"), route.clone().bonded());
    Some(Candidate { name, route, mirror: None })
}
