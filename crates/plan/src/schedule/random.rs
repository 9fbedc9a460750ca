//! The random approach that UKAIRO compares with (§4.3).

use super::{Known, Pair, Schedule};
use rand_core::Rng;

/// UKAIRO's random approach.
#[derive(Clone, Debug)]
pub struct Random {
    p: f64,
}

impl Random {
    /// `p`: the share of all paths to measure, 0 to 1.
    pub const fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Schedule for Random {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let _ = (self.p, known, random);
        vec![]
    }
}
