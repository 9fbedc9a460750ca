//! First one schedule, then upkeep.

use super::{Known, Pair, Schedule, Upkeep, ledger::Ledger};
use crate::ranking::Ranking;
use rand_core::Rng;

/// A first schedule until it has nothing to do, upkeep from then on; the first one again when
/// nodes are new, or came back, or legs were forgotten.
///
/// Between two nodes alone no detour exists, and a share of two paths says little: both are
/// measured before upkeep, whatever the first schedule's share.
#[derive(Debug)]
pub struct Plan {
    first: Box<dyn Schedule>,
    upkeep: Upkeep,
    /// Of two nodes alone.
    both: Ledger,
}

impl Plan {
    /// Nothing asked for yet.
    pub fn new(first: Box<dyn Schedule>, upkeep: Upkeep) -> Self {
        Self { first, upkeep, both: Ledger::default() }
    }

    /// The paths between the last two nodes that are there, if they are two.
    fn both_ways(&mut self, known: &Known<'_>) -> Vec<Pair> {
        self.both.settle(known);
        let there = (0..known.graph.nodes()).filter(|node| !known.excluded.nodes.contains(node));
        let [a, b] = there.take(3).collect::<Vec<_>>()[..] else { return vec![] };
        let free = |pair: &Pair| self.both.is_free(known, *pair);
        let pairs = [(a, b), (b, a)].into_iter().filter(free).collect();
        self.both.ask(pairs)
    }
}

impl Schedule for Plan {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let pairs = self.first.next(known, random);
        if !pairs.is_empty() {
            return pairs;
        }
        let both = self.both_ways(known);
        if both.is_empty() { self.upkeep.next(known, random) } else { both }
    }

    fn ranked(&mut self, ranking: &Ranking) {
        self.first.ranked(ranking);
        self.upkeep.ranked(ranking);
    }
}
