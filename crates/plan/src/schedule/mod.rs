//! Which leg to measure next: UKAIRO's Algorithm 1 (§3.1.1), the baselines of the paper, and ours.
//!
//! | Schedule | Source | Ranking that goes with it |
//! |---|---|---|
//! | [`Biased`] | UKAIRO Algorithm 1 | [`Ranking::oblivious`](crate::ranking::Ranking::oblivious) on the measured legs |
//! | [`Random`] | UKAIRO §4.3 | the same |
//! | [`Thrifty`] | ours | [`completion::ranking`](crate::completion::ranking), on the completed matrix |
//! | [`Upkeep`] | ours, for UKAIRO §2.1's two weeks | either |
//!
//! [`Plan`] is one of the first three until it is done, and upkeep from then on; before either, legs whose ranges by
//! trains leave an order open.
//!
//! A schedule may be asked again before what it asked for is measured: it counts what it asked
//! for as measured until it is, or is excluded.

mod biased;
mod excluded;
mod frequency;
mod hinge;
mod ledger;
mod plan;
mod random;
mod thrifty;
mod upkeep;

pub use biased::Biased;
pub use excluded::Excluded;
pub use plan::Plan;
pub use random::Random;
pub use thrifty::{Design, Thrifty};
pub use upkeep::Upkeep;

pub use crate::completion::RttOf;

use crate::{Graph, ranking::Ranking};
use rand_core::Rng;

/// An ordered pair of nodes: the leg from the first to the second.
pub type Pair = (usize, usize);

/// What is known when the next measurement is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Measured legs.
    pub graph: &'a Graph,
    /// Legs that cannot be measured (a node is down, retries are used up); passed over.
    pub excluded: &'a Excluded,
    /// How old each measured leg is, s; none: not asked.
    pub age_s: Option<&'a dyn AgeOf>,
    /// Round-trip times, s: [`Thrifty`] predicts with them; none: it does without.
    pub rtt_s: Option<&'a dyn RttOf>,
    /// What trains found of legs: [`Plan`] has TCP decide with them; none: it does without.
    pub ranges: Option<&'a dyn RangeOf>,
}

/// The age of a measured leg.
pub trait AgeOf: std::fmt::Debug {
    /// Seconds since it was measured; `None` if it is not.
    fn age_s(&self, pair: Pair) -> Option<f64>;
}

/// What trains found of a leg.
pub trait RangeOf: std::fmt::Debug {
    /// Between what and what is available there, bit/s, if that is what is planned with; of a lower bound the upper end
    /// is infinite. `None`: trains say nothing of it, or TCP has spoken later.
    fn range(&self, pair: Pair) -> Option<(f64, f64)>;
}

/// A measurement schedule: a state machine, all of whose randomness is given.
pub trait Schedule: std::fmt::Debug + Send {
    /// The pairs to measure next, together; empty: nothing is left to do for now.
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair>;

    /// Somebody has ranked what is known: schedules that need a ranking now and then take
    /// this one from now on, and make none themselves, which takes long in a large mesh.
    fn ranked(&mut self, _ranking: &Ranking) {}

    /// Trains have found out what is available on this leg.
    fn probed(&mut self, _pair: Pair) {}
}
