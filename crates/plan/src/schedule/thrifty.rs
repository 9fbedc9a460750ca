//! Ours: few legs of every node, then more of those that promise most.

use super::{Known, Pair, Schedule};
use rand_core::Rng;

/// Ours. Rank with [`completion::ranking`](crate::completion::ranking).
#[derive(Clone, Debug)]
pub struct Thrifty {
    p: f64,
}

impl Thrifty {
    /// `p`: the share of all paths to measure at most, 0 to 1.
    pub const fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Schedule for Thrifty {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let _ = (self.p, known, random);
        vec![]
    }
}
