//! Runs one schedule first, then upkeep.

use super::{
    Pair, Schedule, ScheduleInput, Upkeep, decisive_legs::DecisiveLegs,
    requested_legs::RequestedLegs,
};
use crate::ranking::Ranking;
use rand_core::Rng;

/// Runs a first schedule until it has nothing to do, and upkeep from then on; the first one again when nodes are new or
/// came back, or legs were forgotten.
///
/// Between only two nodes no detour exists, and a share of two paths says little: both are measured before upkeep,
/// whatever the first schedule's share.
///
/// Legs whose ranges by trains leave open which of two ways is better ([`ScheduleInput::ranges`]) come before all that,
/// each at most once an hour. While there is other work, four turns of that follow each turn for such a leg.
#[derive(Debug)]
pub struct Plan {
    first: Box<dyn Schedule>,
    upkeep: Upkeep,
    decisive: DecisiveLegs,
    /// Turns for other legs since the last one for a leg of `decisive`.
    others: u32,
    /// The legs asked for between the only two nodes.
    both: RequestedLegs,
}

/// Turns for other legs for each leg on which an order hinges: such legs get a fifth, as much as the thrifty schedule
/// explores.
const OTHERS: u32 = 4;

impl Plan {
    /// Creates a plan that has asked for nothing yet.
    pub fn new(first: Box<dyn Schedule>, upkeep: Upkeep) -> Self {
        Self {
            first,
            upkeep,
            decisive: DecisiveLegs::default(),
            others: OTHERS,
            both: RequestedLegs::default(),
        }
    }

    /// The paths between the two nodes that are up, if exactly two are.
    fn both_ways(&mut self, known: &ScheduleInput<'_>) -> Vec<Pair> {
        self.both.settle(known);
        let there = (0..known.graph.nodes()).filter(|node| !known.excluded.nodes.contains(node));
        let [a, b] = there.take(3).collect::<Vec<_>>()[..] else { return vec![] };
        let free = |pair: &Pair| self.both.is_free(known, *pair);
        let pairs = [(a, b), (b, a)].into_iter().filter(free).collect();
        self.both.ask(pairs)
    }
}

impl Plan {
    /// The next legs other than those on which an order hinges.
    fn other_legs(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let pairs = self.first.next(known, random);
        if !pairs.is_empty() {
            return pairs;
        }
        let both = self.both_ways(known);
        if both.is_empty() { self.upkeep.next(known, random) } else { both }
    }

    fn next_decisive(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let pair = self.decisive.next(known, random);
        self.others = if pair.is_some() { 0 } else { self.others };
        pair.into_iter().collect()
    }
}

impl Schedule for Plan {
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        if self.others >= OTHERS {
            let pairs = self.next_decisive(known, random);
            if !pairs.is_empty() {
                return pairs;
            }
        }
        let pairs = self.other_legs(known, random);
        if pairs.is_empty() {
            return self.next_decisive(known, random);
        }
        self.others = self.others.saturating_add(1);
        pairs
    }

    fn set_ranking(&mut self, ranking: &Ranking) {
        self.first.set_ranking(ranking);
        self.upkeep.set_ranking(ranking);
    }

    fn record_probe(&mut self, pair: Pair) {
        self.decisive.reported(pair);
    }
}
