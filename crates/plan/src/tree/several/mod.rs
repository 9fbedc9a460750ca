//! Several parents at once (ROMA §IV-D): the best simultaneous rates under shared access.
//!
//! The limit is content, not flow: a parent can send the same data to many, but no node can have more than the source
//! emits, nor more than comes across any cut between the source and it. So, with x(u,v) the rate of each leg:
//!
//! ```text
//! Σv x(u,v) ≤ egress(u),  Σu x(u,v) ≤ ingress(v),  0 ≤ x(u,v) ≤ leg(u,v)
//! rate(r) ≤ Σ x over every cut between the source and r,   for each receiver r
//! rates max-min fair; at these rates the least Σ x
//! ```
//!
//! There are too many cuts to list. The cuts that a solution violates are found by maximum flows and added until none
//! is violated (`program.rs`).
//!
//! **What it bounds.** Any way to deliver at constant rates, coded or not, with nodes that store or not: what a
//! receiver knows in the long run came across each cut. As a bound on time: all receivers together cannot be done
//! before `length / (the slowest's rate)`, because the mean rates up to that moment satisfy all of the above. It does
//! not bound when one of several receivers of different rates is done, because a receiver that is done becomes a second
//! source.
//!
//! **Whether it is reached.** If all receivers have one rate and all hosts are receivers that store, packing trees
//! reaches it (Edmonds 1973), and pulling rare pieces first nearly does. With pure relays it may take coding at the
//! relays, and with different rates it is only a bound. That nothing arrives twice (Σu x(u,r) = rate(r)) follows from
//! the least Σ x in all graphs tried, not from a proof.

mod fair;
mod program;
#[cfg(test)]
mod tests;

use super::{Overlay, Tree};
use crate::maxflow::MaxFlow;
use program::FlowProgram;
use thalweg_units::Rate;
use thiserror::Error;

/// A parent, and the rate to get from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub parent: usize,
    /// Its part of the receiver's rate; zero for a parent to turn to when another fails.
    pub rate: Rate,
}

/// The best simultaneous rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeveralParents {
    /// By node, max-min fair among receivers; zero for others.
    pub rates: Vec<Rate>,
    /// By node, the rate that a receiver could have alone: its maximum flow under all capacities.
    pub alone: Vec<Rate>,
    /// By node, its parents: first those that it gets something from, the most first, then others by the rate of their
    /// leg. Relays have parents as well, but no others.
    pub parents: Vec<Vec<Share>>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SeveralError {
    /// More legs than the solver can handle in reasonable time.
    #[error("there are {legs} legs, more than {most}: use fewer legs to each receiver")]
    TooLarge {
        /// The number of legs.
        legs: usize,
        /// The maximum number of legs.
        most: usize,
    },
    /// The solver gave up.
    #[error("cannot solve the linear program: {0}")]
    Unsolved(String),
}

/// Beyond this the solver takes minutes: with 160 legs it took at most 3 s in random graphs, with 600 a minute.
pub const MOST_LEGS: usize = 600;

/// A usable leg.
#[derive(Clone, Copy, Debug, PartialEq)]
struct UsableLeg {
    from: usize,
    to: usize,
    /// Bit/s.
    rate: f64,
}

/// See [`Overlay::several`].
pub(super) fn several(
    overlay: &Overlay<'_>,
    keep: usize,
    tree: Option<&Tree>,
) -> Result<SeveralParents, SeveralError> {
    let legs = kept_legs(overlay, keep, tree);
    if legs.len() > MOST_LEGS {
        return Err(SeveralError::TooLarge { legs: legs.len(), most: MOST_LEGS });
    }
    let alone: Vec<f64> =
        (0..overlay.nodes()).map(|node| largest_flow(overlay, &legs, node)).collect();
    let fair = fair::rates(FlowProgram::new(overlay, &legs, &alone))?;
    let rate = |bps: f64| Rate::from_bps(bps.round() as u64);
    let parents = (0..overlay.nodes()).map(|node| ranked(overlay, node, &legs, &fair.on)).collect();
    Ok(SeveralParents {
        rates: fair.rates.into_iter().map(rate).collect(),
        alone: alone.into_iter().map(rate).collect(),
        parents,
    })
}

/// See [`Overlay::alone`].
pub(super) fn alone(overlay: &Overlay<'_>) -> Vec<Rate> {
    let legs = kept_legs(overlay, usize::MAX, None);
    let flow = |node| Rate::from_bps(largest_flow(overlay, &legs, node) as u64);
    (0..overlay.nodes()).map(flow).collect()
}

fn kept_legs(overlay: &Overlay<'_>, keep: usize, tree: Option<&Tree>) -> Vec<UsableLeg> {
    let mut legs = Vec::new();
    for to in (0..overlay.nodes()).filter(|node| overlay.takes_part(*node)) {
        let mut ins: Vec<(usize, f64)> = overlay.ins(to).collect();
        ins.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let own = tree.and_then(|tree| tree.parent(to));
        let mut place = 0;
        ins.retain(|(from, _)| {
            place += 1;
            place <= keep || *from == overlay.source || Some(*from) == own
        });
        legs.extend(ins.into_iter().map(|(from, rate)| UsableLeg { from, to, rate }));
    }
    legs
}

/// The maximum flow to a node, bit/s. Each node is three: its ingress, its content, its egress.
fn largest_flow(overlay: &Overlay<'_>, legs: &[UsableLeg], to: usize) -> f64 {
    if !overlay.receives(to) {
        return 0.0;
    }
    // Sums of capacities must stay below 2⁶⁴.
    let capacity = |bps: f64| bps.min((1_u64 << 50) as f64) as u64;
    let nodes = overlay.nodes() as u32;
    let mut arcs: Vec<(u32, u32, u64)> = Vec::new();
    for node in 0..nodes {
        arcs.push((3 * node, 3 * node + 1, capacity(overlay.ingress(node as usize))));
        arcs.push((3 * node + 1, 3 * node + 2, capacity(overlay.egress(node as usize))));
    }
    let arc = |leg: &UsableLeg| (3 * leg.from as u32 + 2, 3 * leg.to as u32, capacity(leg.rate));
    arcs.extend(legs.iter().map(arc));
    let mut flow = MaxFlow::new(3 * nodes as usize, &arcs);
    flow.run(3 * overlay.source as u32 + 1, 3 * to as u32 + 1) as f64
}

fn ranked(overlay: &Overlay<'_>, node: usize, legs: &[UsableLeg], on: &[f64]) -> Vec<Share> {
    let to = legs.iter().zip(on).filter(|(leg, _)| leg.to == node);
    let mut to: Vec<(f64, f64, usize)> = to.map(|(leg, on)| (*on, leg.rate, leg.from)).collect();
    // Shares within the solver's tolerance count as zero.
    to.iter_mut().filter(|share| share.0 < 1e-4 * share.1).for_each(|share| share.0 = 0.0);
    to.retain(|share| share.0 > 0.0 || overlay.receives(node));
    to.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    let share = |(on, _, parent): (f64, f64, usize)| Share {
        parent,
        rate: Rate::from_bps(on.round() as u64),
    };
    to.into_iter().map(share).collect()
}
