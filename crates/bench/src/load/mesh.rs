//! Routes over nodes of the mesh.

use anyhow::{Context as _, anyhow};
use std::{path::Path, sync::Arc};
use thalweg_mesh::{Names, State};
use thalweg_net::{DialOptions, Dialer, Hop, Route, channel::Connector};
use thalweg_wire::{
    Destination,
    mesh::{LegKind, Roster, Terms},
};

/// A dialler with the client key of the directory `state`, and the route over the node at `relay`.
///
/// # Errors
/// When the directory belongs to no member, or no member has that address.
pub fn route(
    state: &Path,
    relay: Destination,
    open: bool,
    options: DialOptions,
) -> anyhow::Result<(Dialer, Route)> {
    let (identity, roster) = member(state)?;
    let hop = hop(&roster, relay, terms(open))?;
    Ok((Dialer::with_identity(options, identity), Route::new(vec![hop])?))
}

/// A dialler with the client key of the directory `state`, and a named route over each relay of its roster.
///
/// # Errors
/// When the directory belongs to no member.
pub fn routes(state: &Path, open: bool) -> anyhow::Result<(Dialer, Vec<(String, Route)>)> {
    let (identity, roster) = member(state)?;
    let names = Names { roster: Ok(&roster), me: None };
    let found = names.candidates(&terms(open), roster.members.len());
    let routes = found.into_iter().map(|(name, route)| (name.to_string(), route));
    Ok((Dialer::with_identity(DialOptions::default(), identity), routes.collect()))
}

fn member(state: &Path) -> anyhow::Result<(Connector, Arc<Roster>)> {
    let state = State::open(state)?;
    let roster = state.membership()?.current().context("this host has no roster yet")?;
    Ok((Connector::new(&state.client_key()?)?, roster))
}

fn terms(open: bool) -> Terms {
    let leg = if open { LegKind::Open } else { LegKind::Sealed };
    Terms { leg, ..Terms::default() }
}

fn hop(roster: &Roster, relay: Destination, terms: Terms) -> anyhow::Result<Hop> {
    let there = roster.members.iter().find(|member| member.addresses.contains(&relay));
    let key = there.and_then(|member| member.node);
    let key = key.ok_or_else(|| anyhow!("the roster has no node with the address {relay}"))?;
    Ok(Hop::mesh(relay, key, terms))
}
