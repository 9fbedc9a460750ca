//! Tools that measure by probe trains: pure state machines behind one trait, so that a new tool is
//! one file.
//!
//! A tool says which train is to go next and how long after the last one, and is told what came of it. It
//! knows nothing of clocks, sockets and riders, but that a [`Flight`]'s tally says what traffic the train hid (§2.4).

mod badabing;
mod dispersion;
mod ends;
mod fixed;
mod hops;
mod pathchirp;
mod pathload;

pub use badabing::{Badabing, BadabingSettings};
pub use dispersion::{Dispersion, DispersionSettings};
pub use ends::Ends;
pub use fixed::{Fixed, PK1, PK2, PK3};
pub use hops::{Hops, HopsSettings};
pub use pathchirp::{Pathchirp, PathchirpSettings};
pub use pathload::{Fits, Pace, Pathload, PathloadSettings};

use crate::train::{Doubt, Flight, Train};
use std::{net::IpAddr, time::Duration};
use thiserror::Error;

/// What is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// The narrowest link's rate, bit/s.
    Capacity,
    /// The rate that others leave, bit/s.
    AvailableBandwidth,
    /// The rate at which a train came out, bit/s: between available bandwidth and capacity.
    DispersionRate,
    /// The share of time in which packets are lost, from 0 to 1.
    LossFrequency,
    /// How long an episode of losses lasts on average, s.
    LossDuration,
    /// The share of probes that were lost, from 0 to 1.
    Loss,
    /// The rate at which trains came out at a router, bit/s.
    RateAtHop {
        /// How many hops away, from 1.
        hop: u8,
        /// The router; `None`: the destination.
        router: Option<IpAddr>,
    },
    /// The hop into which the narrowest link leads, from 1; of several where routers before it are silent.
    NarrowestHop,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What of.
    pub of: Quantity,
    /// The value, with hidden traffic taken off.
    pub value: f64,
    /// Its range, likewise; both ends the same where the tool has none.
    pub low: f64,
    /// The range's upper end.
    pub high: f64,
    /// What was taken off: riders hidden in the trains would have competed with them (§2.4).
    pub hidden: f64,
    /// Whether the true value may be larger: the host could not probe faster.
    pub is_lower_bound: bool,
}

impl Finding {
    /// A value in a range, of which what was hidden is taken off.
    pub fn corrected(of: Quantity, low: f64, high: f64, hidden: f64) -> Self {
        // Not minus zero, as empty sums are.
        let [low, high] = [low, high].map(|end| (end - hidden).max(0.0) + 0.0);
        Self { of, value: f64::midpoint(low, high), low, high, hidden, is_lower_bound: false }
    }

    /// A value that was seen in so many events, which come by chance: the range holds the true one 19 times of 20. Nothing was
    /// hidden of it.
    pub fn counted(of: Quantity, value: f64, events: u32) -> Self {
        let [low, high] = by_chance(events).map(|count| value * count / f64::from(events.max(1)));
        Self { low, high, ..Self::plain(of, value) }
    }

    /// The same of a share of so many tries. Where nothing was seen it may be three of them (the rule of three).
    pub fn share(of: Quantity, value: f64, (events, tries): (u32, f64)) -> Self {
        let counted = Self::counted(of, value, events);
        let high = if events == 0 { NONE / tries } else { counted.high };
        Self { high: high.clamp(value, 1.0), ..counted }
    }

    /// A value without a range, of which nothing was hidden.
    pub fn plain(of: Quantity, value: f64) -> Self {
        Self::corrected(of, value, value, 0.0)
    }
}

/// Where none of many tries had it, it was this many at the most, 19 times of 20.
const NONE: f64 = 3.0;

/// How many events, that come by chance, may have been expected where so many were seen: in 19 cases of 20 between these
/// (Byar's approximation of Poisson's range).
fn by_chance(events: u32) -> [f64; 2] {
    let bound = |count: f64, sigma: f64| {
        let root = sigma.mul_add(1.0 / (3.0 * count.sqrt()), 1.0 - 1.0 / (9.0 * count));
        count * root.powi(3)
    };
    let events = f64::from(events);
    [if events > 0.0 { bound(events, -1.96) } else { 0.0 }, bound(events + 1.0, 1.96)]
}

/// Nothing was found out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfound {
    /// Hardly anything came through.
    #[error("too many probes were lost ({0} trains in a row): the path may drop UDP")]
    Lost(u32),
    /// What came through says nothing.
    #[error(
        "no train could be judged: the hosts' timing is too coarse, or the path changes too fast"
    )]
    Unclear,
    /// No router on the way says anything that can be used.
    #[error(
        "no router on the path answers, or none quotes enough of the probe: the hops cannot be \
         told apart"
    )]
    Silent,
    /// It would have taken too many trains.
    #[error("no end after {0} trains: the path changes faster than it can be measured")]
    Endless(u32),
}

/// What a tool wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// That this train is sent.
    Send {
        /// The train.
        train: Train,
        /// How long after the end of the last one, or the beginning.
        after: Duration,
    },
    /// Nothing more.
    Done(Result<Vec<Finding>, Unfound>),
}

/// How far a tool is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Trains so far.
    pub trains: u32,
    /// What is known of the value by now: it is between these, bit/s or as its quantity has it.
    pub between: Option<(f64, Option<f64>)>,
    /// What it does, in a few words.
    pub phase: &'static str,
}

/// A tool.
pub trait Estimator {
    /// Its name, as commands have it.
    fn name(&self) -> &'static str;

    /// What it wants next; the same until [`Estimator::seen`] is called.
    fn next(&mut self) -> Step;

    /// What came of the train that it wanted.
    fn seen(&mut self, flight: &Flight);

    /// What it can say already when its time is over; `None`: nothing.
    fn by_now(&self) -> Option<Vec<Finding>> {
        None
    }

    /// What it saw that speaks against what it says.
    fn doubts(&self) -> Vec<Doubt> {
        Vec::new()
    }

    /// How far it is.
    fn progress(&self) -> Progress;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact ranges: 0.0253 to 5.572 of one, 4.795 to 18.39 of ten.
    #[test]
    fn what_was_counted_has_a_range() {
        let [one, ten] = [1, 10].map(by_chance);
        assert!(one[0] < 0.05 && (one[1] - 5.572).abs() < 0.02, "{one:?}");
        assert!((ten[0] - 4.795).abs() < 0.02 && (ten[1] - 18.39).abs() < 0.02, "{ten:?}");
        let none = Finding::share(Quantity::Loss, 0.0, (0, 600.0));
        assert_eq!((none.value, none.low, none.high), (0.0, 0.0, 0.005));
        assert_eq!(Finding::share(Quantity::Loss, 0.0, (0, 2.0)).high, 1.0);
        let some = Finding::share(Quantity::Loss, 0.02, (10, 500.0));
        assert!(some.low < 0.01 && some.high > 0.036, "{some:?}");
    }
}
