//! First one schedule, then upkeep.

use super::{Known, Pair, Schedule, Upkeep};
use rand_core::Rng;

/// A first schedule until it has nothing to do, upkeep from then on; the first one again when
/// nodes are new, or came back, or legs were forgotten.
#[derive(Debug)]
pub struct Plan {
    first: Box<dyn Schedule>,
    upkeep: Upkeep,
}

impl Plan {
    /// Nothing asked for yet.
    pub fn new(first: Box<dyn Schedule>, upkeep: Upkeep) -> Self {
        Self { first, upkeep }
    }
}

impl Schedule for Plan {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let pairs = self.first.next(known, random);
        if pairs.is_empty() { self.upkeep.next(known, random) } else { pairs }
    }
}
