//! Compares trees.

use crate::tree::{Overlay, Tree, depth::ChainLoss};
use std::cmp::Ordering;

/// Rates that differ by less than this factor are one rate to the planner: estimates are no better.
const STEP: f64 = 1.01;

/// Sums of logarithms that differ by no more are equal: a millionth of one receiver's rate.
const LITTLE: f64 = 1e-6;

/// The quality of a tree, in this order: how many receivers have a path; the slowest one's rate; the speed of all, as
/// the sum of the rates' logarithms (proportional fairness: Kelly, Maulloo and Tan, *Rate control for communication
/// networks*, 1998); few hops.
///
/// Beyond the slowest receiver, max-min order would let a hundredth of the next slowest's rate outweigh half of a fast
/// one's.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeScore {
    /// The number of receivers with a path.
    reached: usize,
    /// The slowest rate among them, in steps of 1 %.
    slowest: i32,
    /// The sum of ln(bit/s) over them.
    logs: f64,
    /// The sum of the hops from the source to all nodes of the tree.
    hops: usize,
}

impl TreeScore {
    /// Computes the rates of all receivers in the tree.
    pub fn of(overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> Self {
        let flows = overlay.flows(tree, model);
        let rates = || overlay.receivers().map(|node| flows[node].rate).filter(|rate| *rate > 0.0);
        let mut depth = vec![0; tree.nodes()];
        let mut hops = 0;
        for node in tree.layout().order().iter().copied() {
            let Some(parent) = tree.parent(node) else { continue };
            depth[node] = depth[parent] + 1;
            hops += depth[node];
        }
        let slowest = rates().map(step).min().unwrap_or(0);
        Self { reached: rates().count(), slowest, logs: rates().map(f64::ln).sum(), hops }
    }

    /// Orders scores: the better one is greater.
    pub fn compare(&self, other: &Self) -> Ordering {
        let logs = match (self.logs - other.logs).abs() {
            little if little <= LITTLE => Ordering::Equal,
            _ => self.logs.total_cmp(&other.logs),
        };
        let first = (self.reached, self.slowest).cmp(&(other.reached, other.slowest));
        first.then(logs).then(other.hops.cmp(&self.hops))
    }

    /// Whether a tree with this score is better than one with the other; equal ones are not.
    pub fn beats(&self, other: &Self) -> bool {
        self.compare(other).is_gt()
    }
}

fn step(bps: f64) -> i32 {
    (bps.ln() / STEP.ln()).round() as i32
}
