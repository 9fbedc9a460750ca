//! What to measure next: UKAIRO's Algorithm 1 (§3.1.1), what it is compared with, and ours.

use crate::Graph;
use rand_core::Rng;
use std::collections::BTreeSet;

/// An ordered pair of nodes: the leg from the first to the second.
pub type Pair = (usize, usize);

/// What is known when the next measurement is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Measured legs.
    pub graph: &'a Graph,
    /// Legs that cannot be measured (a node is down, retries are used up); passed over.
    pub excluded: &'a BTreeSet<Pair>,
    /// How old each measured leg is, s; none: not asked.
    pub age_s: Option<&'a dyn AgeOf>,
}

/// The age of a measured leg.
pub trait AgeOf: std::fmt::Debug {
    /// Seconds since it was measured; `None` if it is not.
    fn age_s(&self, pair: Pair) -> Option<f64>;
}

/// A measurement schedule: a state machine, all of whose randomness is given.
pub trait Schedule: std::fmt::Debug + Send {
    /// The pairs to measure next, together; empty: nothing is left to do for now.
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair>;
}
