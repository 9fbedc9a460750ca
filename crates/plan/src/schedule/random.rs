//! The random approach that UKAIRO compares with (§4.3).

use super::{Pair, Schedule, ScheduleInput, requested_legs::RequestedLegs};
use crate::draw;
use rand_core::Rng;

/// "Given the set P of paths already measured, we uniformly choose a node i that is the end-point of a path in P and
/// randomly choose a new path (i, j) to measure such that (i, j) is not in P": one path a step.
///
/// The first path is arbitrary. The node is drawn uniformly from the nodes, not from the paths; a node that has no path
/// (i, j) left is drawn again. If no end-point has one left, because the others are down, any path is taken.
#[derive(Clone, Debug)]
pub struct Random {
    p: f64,
    ledger: RequestedLegs,
}

impl Random {
    /// `p`: the share of all paths to measure, 0 to 1.
    pub fn new(p: f64) -> Self {
        Self { p, ledger: RequestedLegs::default() }
    }

    /// A path of the first of these nodes, in random order, that has one left.
    fn extend(
        &self,
        known: &ScheduleInput<'_>,
        nodes: Vec<usize>,
        random: &mut dyn Rng,
    ) -> Option<Pair> {
        let is_up = |node: &usize| !known.excluded.nodes.contains(node);
        let nodes: Vec<usize> = nodes.into_iter().filter(is_up).collect();
        let count = nodes.len();
        draw::distinct(nodes, count, random).into_iter().find_map(|i| {
            let all = (0..known.graph.nodes()).map(|j| (i, j));
            let left: Vec<Pair> = all.filter(|pair| self.ledger.is_free(known, *pair)).collect();
            left.get(draw::below(left.len().max(1), random)).copied()
        })
    }
}

impl Schedule for Random {
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        self.ledger.settle(known);
        if self.ledger.reaches_share(known, self.p) {
            return vec![];
        }
        let graph = known.graph;
        let mut is_end: Vec<bool> =
            (0..graph.nodes()).map(|i| graph.out_degree(i) + graph.in_degree(i) > 0).collect();
        for (i, j) in self.ledger.asked() {
            (is_end[*i], is_end[*j]) = (true, true);
        }
        let ends = (0..graph.nodes()).filter(|i| is_end[*i]).collect();
        let next = self
            .extend(known, ends, random)
            .or_else(|| self.extend(known, (0..graph.nodes()).collect(), random));
        self.ledger.ask(next.into_iter().collect())
    }
}
