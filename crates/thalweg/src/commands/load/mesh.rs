//! The way by a node of the mesh.

use anyhow::{Context as _, anyhow};
use std::path::Path;
use thalweg_net::{DialOptions, Dialer, Hop, Route, channel::Connector};
use thalweg_node::mesh::State;
use thalweg_wire::{
    Destination,
    mesh::{LegKind, Roster, Terms},
};

/// A dialler with the client key in `state`, and the route over the node at `relay`.
///
/// # Errors
/// When the directory is no member's, or no member has that address.
pub fn route(
    state: &Path,
    relay: Destination,
    open: bool,
    options: DialOptions,
) -> anyhow::Result<(Dialer, Route)> {
    let state = State::open(state)?;
    let identity = Connector::new(&state.client_key()?)?;
    let roster = state.membership()?.current().context("there is no roster yet")?;
    let leg = if open { LegKind::Open } else { LegKind::Sealed };
    let hop = hop(&roster, relay, Terms { leg, ..Terms::default() })?;
    Ok((Dialer::with_identity(options, identity), Route::new(vec![hop])?))
}

fn hop(roster: &Roster, relay: Destination, terms: Terms) -> anyhow::Result<Hop> {
    let there = roster.members.iter().find(|member| member.addresses.contains(&relay));
    let key = there.and_then(|member| member.node);
    let key = key.ok_or_else(|| anyhow!("no node of the roster has the address {relay}"))?;
    Ok(Hop::mesh(relay, key, terms))
}
