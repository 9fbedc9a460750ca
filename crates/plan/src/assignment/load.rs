//! How much room a relay has left.

use crate::Graph;
use thalweg_units::Rate;

/// What is known of a relay's load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayLoad {
    /// What it relays now.
    pub used: Rate,
    /// The most it can or may relay; none: unknown.
    pub limit: Option<Rate>,
    /// Clients that were given it and may be using it.
    pub assigned: u32,
}

/// Of the clients that were given a relay among m, so many parts of 1/m use it at a time: more
/// than one, since sets overlap in their best.
const PICKED: f64 = 1.0;

/// A flow that comes to a full relay takes its fair share from those that are there. What
/// it gains they lose, so that it counts for less than room that nobody uses.
const TAKEN: f64 = 0.5;

/// A relay and its users.
pub(super) struct Room {
    /// The most it relays, Mbit/s.
    limit: f64,
    /// What it relays, or soon will.
    used: f64,
    /// By how many flows.
    flows: f64,
}

impl Room {
    /// `fastest` is its limit if it reports none, `usual` what one flow by it gets, Mbit/s;
    /// relays are given in sets of `m`.
    pub(super) fn of(load: RelayLoad, fastest: f64, usual: f64, m: usize) -> Self {
        let flows = f64::from(load.assigned) * (PICKED / m.max(1) as f64).min(1.0);
        let limit = load.limit.map_or(fastest, Rate::as_mbps);
        let used = load.used.as_mbps();
        let flows = flows.max(used / usual.max(1e-3));
        // Those who were given it may not have begun.
        Self { limit, used: used.max(flows * usual), flows }
    }

    /// What one more flow finds, Mbit/s: what nobody uses, or a fair share of the whole.
    pub(super) fn mbps(&self) -> f64 {
        let free = self.limit - self.used;
        free.max(TAKEN * self.limit / (self.flows + 1.0)).max(0.0)
    }
}

/// What a node is known to receive and send at once, Mbit/s: the slower of its fastest legs in
/// and out; infinite if none is measured.
pub(super) fn fastest(graph: &Graph, node: usize) -> f64 {
    let of = |legs: &mut dyn Iterator<Item = (usize, Rate)>| legs.map(|(_, rate)| rate).max();
    let (sends, receives) = (of(&mut graph.outs(node)), of(&mut graph.ins(node)));
    sends.min(receives).map_or(f64::INFINITY, Rate::as_mbps)
}
