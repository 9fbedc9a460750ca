//! Which of two trees is better.

use crate::tree::{Overlay, Tree, depth::ChainLoss};
use std::cmp::Ordering;

/// Rates that differ by less than this factor are one rate to the planner: estimates are no better.
const STEP: f64 = 1.01;

/// How good a tree is: the slowest receiver's rate, then the next slowest's, and so on (max-min order); then the
/// sum; then few hops.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Receivers' rates in steps of 1 %, ascending.
    steps: Vec<i32>,
    /// bit/s.
    sum: f64,
    /// Of all receivers.
    hops: usize,
}

impl Score {
    pub fn of(overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> Self {
        let flows = overlay.flows(tree, model);
        let rates = || overlay.receivers().map(|node| flows[node].rate);
        let mut steps: Vec<i32> = rates().map(step).collect();
        steps.sort_unstable();
        let mut depth = vec![0; tree.nodes()];
        let mut hops = 0;
        for node in tree.layout().order().iter().copied() {
            let Some(parent) = tree.parent(node) else { continue };
            depth[node] = depth[parent] + 1;
            hops += depth[node];
        }
        Self { steps, sum: rates().sum(), hops }
    }

    /// Better comes out greater.
    pub fn compare(&self, other: &Self) -> Ordering {
        let sums = if (self.sum - other.sum).abs() <= 1e-6 * self.sum.max(other.sum) {
            Ordering::Equal
        } else {
            self.sum.total_cmp(&other.sum)
        };
        self.steps.cmp(&other.steps).then(sums).then(other.hops.cmp(&self.hops))
    }

    pub fn beats(&self, other: &Self) -> bool {
        self.compare(other).is_gt()
    }
}

fn step(bps: f64) -> i32 {
    // ln 0 is −∞, which `as` makes the least.
    (bps.ln() / STEP.ln()).round() as i32
}
