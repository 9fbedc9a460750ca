//! Which leg to measure next: UKAIRO's Algorithm 1 (§3.1.1), the paper's baselines, and ours (decision 0057).
//!
//! | Schedule | Source | Ranking that goes with it |
//! |---|---|---|
//! | [`Biased`] | UKAIRO Algorithm 1 | [`Ranking::oblivious`](crate::ranking::Ranking::oblivious) on measured legs |
//! | [`Random`] | UKAIRO §4.3 | the same |
//! | [`Thrifty`] | ours | [`completion::ranking`](crate::completion::ranking), on the completed matrix |
//! | [`Upkeep`] | ours, for UKAIRO §2.1's two weeks | either |
//!
//! [`Plan`] runs one of the first three until it is done, and upkeep from then on. Before either come legs whose ranges
//! by trains leave an order open.
//!
//! A schedule may be asked again before the legs that it asked for are measured: it counts each as measured until it is
//! measured or excluded.

mod biased;
mod decisive_legs;
mod frequency;
mod plan;
mod random;
mod requested_legs;
mod thrifty;
mod upkeep;

pub use crate::completion::LegRtts;
pub use biased::Biased;
pub use plan::Plan;
pub use random::Random;
pub use thrifty::{Design, Thrifty};
pub use upkeep::Upkeep;

use crate::{Graph, ranking::Ranking};
use rand_core::Rng;
use std::collections::BTreeSet;

/// An ordered pair of nodes: the leg from the first to the second.
pub type Pair = (usize, usize);

/// The known state when the next measurement is chosen.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleInput<'a> {
    /// Measured legs.
    pub graph: &'a Graph,
    /// Legs that cannot be measured (a node is down, retries are used up); they are passed over.
    pub excluded: &'a ExcludedLegs,
    /// The age of each measured leg, s; `None` if no schedule needs it.
    pub age_s: Option<&'a dyn LegAges>,
    /// Round-trip times, s, which improve the predictions of [`Thrifty`]; optional.
    pub rtt_s: Option<&'a dyn LegRtts>,
    /// The ranges that trains found, from which [`Plan`] derives what TCP must measure; optional.
    pub ranges: Option<&'a dyn LegRanges>,
}

/// The age of a measured leg.
pub trait LegAges: std::fmt::Debug {
    /// Seconds since it was measured; `None` if it is not.
    fn age_s(&self, pair: Pair) -> Option<f64>;
}

/// The ranges of legs that trains found.
pub trait LegRanges: std::fmt::Debug {
    /// The lowest and the highest available bandwidth, bit/s, if plans use it; the upper end of a lower bound is
    /// infinite. `None` if trains say nothing of the leg, or TCP has measured it later.
    fn range(&self, pair: Pair) -> Option<(f64, f64)>;
}

/// A measurement schedule: a state machine that takes all its randomness as arguments.
pub trait Schedule: std::fmt::Debug + Send {
    /// The pairs to measure next, together; empty if nothing is left to do for now.
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair>;

    /// Takes a ranking of what is known. Schedules that need a ranking now and then use this one from now on and do not
    /// make their own, which takes long in a large mesh.
    fn set_ranking(&mut self, _ranking: &Ranking) {}

    /// Records that trains have found the available bandwidth of this leg.
    fn record_probe(&mut self, _pair: Pair) {}
}

/// Legs that cannot be measured for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedLegs {
    /// Nodes that are down: no leg from or to them can be measured.
    pub nodes: BTreeSet<usize>,
    /// Single legs whose retries are used up.
    pub pairs: BTreeSet<Pair>,
}

impl ExcludedLegs {
    /// Whether this leg is one of them.
    pub fn contains(&self, pair: Pair) -> bool {
        self.nodes.contains(&pair.0) || self.nodes.contains(&pair.1) || self.pairs.contains(&pair)
    }
}
