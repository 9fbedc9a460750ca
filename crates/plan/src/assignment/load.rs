//! The rate that a relay has left for one more flow.

use crate::Graph;
use thalweg_units::Rate;

/// A relay's load, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayLoad {
    /// The rate that it relays now.
    pub used: Rate,
    /// The most that it can or may relay; `None` if unknown.
    pub limit: Option<Rate>,
    /// The number of clients that were given this relay and may be using it.
    pub assigned: u32,
}

/// The expected number of flows by this relay of m clients that were given it in sets of m relays. Sets overlap in
/// their best relays, so some relays see more.
const PICKED: f64 = 1.0;

/// A flow that comes to a full relay takes its fair share from the flows there. They lose what it gains, so its share
/// counts for less than room that nobody uses.
const TAKEN: f64 = 0.5;

/// A relay's limit and how much of it is in use.
pub(super) struct Room {
    /// The most it relays, Mbit/s.
    limit: f64,
    /// The rate that it relays now, or soon will, Mbit/s.
    used: f64,
    /// The number of flows that share this rate.
    flows: f64,
}

impl Room {
    /// Creates the room of a relay. `fastest` is its limit if it reports none, and `usual` is the rate of one flow by
    /// it, both in Mbit/s; relays are given in sets of `m`.
    pub(super) fn of(load: RelayLoad, fastest: f64, usual: f64, m: usize) -> Self {
        let flows = f64::from(load.assigned) * (PICKED / m.max(1) as f64).min(1.0);
        let limit = load.limit.map_or(fastest, Rate::as_mbps);
        let used = load.used.as_mbps();
        let flows = flows.max(used / usual.max(1e-3));
        // Clients that were given this relay may not have begun.
        Self { limit, used: used.max(flows * usual), flows }
    }

    /// The rate that one more flow finds, Mbit/s: the unused rate, or a fair share of the whole.
    pub(super) fn mbps(&self) -> f64 {
        let free = self.limit - self.used;
        free.max(TAKEN * self.limit / (self.flows + 1.0)).max(0.0)
    }
}

/// The rate that a node is known to receive and send at once, Mbit/s: the slower of its fastest legs in and out;
/// infinite if either direction is not measured.
pub(super) fn fastest(graph: &Graph, node: usize) -> f64 {
    let of = |legs: &mut dyn Iterator<Item = (usize, Rate)>| legs.map(|(_, rate)| rate).max();
    let (sends, receives) = (of(&mut graph.outs(node)), of(&mut graph.ins(node)));
    sends.min(receives).map_or(f64::INFINITY, Rate::as_mbps)
}
