//! Tools that measure with probe trains: pure state machines behind one trait, so that a new tool needs one new file.
//!
//! A tool says which train to send next and how long after the previous one, and gets the report on it. It knows
//! nothing of clocks, sockets and riders, except that the tally of a [`Flight`] says what traffic the train hid (§2.4).

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
pub use fixed::{FixedTrains, PK1, PK2, PK3};
pub use hops::{Hops, HopsSettings};
pub use pathchirp::{Pathchirp, PathchirpSettings};
pub use pathload::{Pace, Pathload, PathloadSettings, RateTest};

use crate::train::{Doubt, Flight, Train};
use std::{net::IpAddr, time::Duration};
use thiserror::Error;

/// The quantity that a finding measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// The narrowest link's rate, bit/s.
    Capacity,
    /// The rate that other traffic leaves unused, bit/s.
    AvailableBandwidth,
    /// The rate at which a train arrived, bit/s: between available bandwidth and capacity.
    DispersionRate,
    /// The share of time in which packets are lost, from 0 to 1.
    LossFrequency,
    /// The mean duration of a loss episode, s.
    LossDuration,
    /// The share of probes that were lost, from 0 to 1.
    Loss,
    /// The rate at which trains arrived at a router, bit/s.
    RateAtHop {
        /// The number of hops to it, from 1.
        hop: u8,
        /// The router; `None`: the destination.
        router: Option<IpAddr>,
    },
    /// The hop into which the narrowest link leads, from 1; one of several if the routers before it are silent.
    NarrowestHop,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    pub of: Quantity,
    /// The value, with hidden traffic subtracted.
    pub value: f64,
    /// The lower end of its range, likewise; equal to `high` if the tool gives no range.
    pub low: f64,
    /// The upper end of its range.
    pub high: f64,
    /// What was subtracted: riders hidden in the trains would have competed with them (§2.4).
    pub hidden: f64,
    /// Whether the true value may be larger, because the host could not probe faster.
    pub is_lower_bound: bool,
}

impl Finding {
    /// A value in a range, from which the hidden traffic is subtracted.
    pub fn corrected(of: Quantity, low: f64, high: f64, hidden: f64) -> Self {
        // An empty sum is −0; adding 0 makes it 0.
        let [low, high] = [low, high].map(|end| (end - hidden).max(0.0) + 0.0);
        Self { of, value: f64::midpoint(low, high), low, high, hidden, is_lower_bound: false }
    }

    /// A value that was seen in this many random events: the range holds the true value in 19 of 20 cases. Nothing is
    /// subtracted.
    pub fn counted(of: Quantity, value: f64, events: u32) -> Self {
        let [low, high] =
            poisson_range(events).map(|count| value * count / f64::from(events.max(1)));
        Self { low, high, ..Self::plain(of, value) }
    }

    /// The same for a share of this many tries. If nothing was seen, the share may be up to three of them (the rule of
    /// three).
    pub fn share(of: Quantity, value: f64, (events, tries): (u32, f64)) -> Self {
        let counted = Self::counted(of, value, events);
        let high = if events == 0 { NONE / tries } else { counted.high };
        Self { high: high.clamp(value, 1.0), ..counted }
    }

    /// A value without a range, from which nothing is subtracted.
    pub fn plain(of: Quantity, value: f64) -> Self {
        Self::corrected(of, value, value, 0.0)
    }
}

/// The upper limit of the expected number of events if none was seen in many tries, in 19 of 20 cases.
const NONE: f64 = 3.0;

/// The range of the expected number of random events if this many were seen, in 19 of 20 cases (Byar's approximation of
/// the Poisson interval).
fn poisson_range(events: u32) -> [f64; 2] {
    let bound = |count: f64, sigma: f64| {
        let root = sigma.mul_add(1.0 / (3.0 * count.sqrt()), 1.0 - 1.0 / (9.0 * count));
        count * root.powi(3)
    };
    let events = f64::from(events);
    [if events > 0.0 { bound(events, -1.96) } else { 0.0 }, bound(events + 1.0, 1.96)]
}

/// Why a tool found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EstimatorError {
    /// Too many probes were lost; holds the number of trains in a row.
    #[error("too many probes were lost ({0} trains in a row): the path may drop UDP")]
    Lost(u32),
    /// The probes that arrived are inconclusive.
    #[error(
        "no train gave a usable result: the hosts' timing is too coarse, or the path changes too fast"
    )]
    Unclear,
    /// No router on the path gives a usable answer.
    #[error(
        "the hops cannot be told apart: routers on the path do not answer, or quote too little of the \
         probe"
    )]
    Silent,
    /// It would have taken too many trains; holds their number.
    #[error("no result after {0} trains: the path changes faster than it can be measured")]
    Endless(u32),
}

/// What a tool wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// To send this train.
    Send {
        train: Train,
        /// How long after the end of the previous train, or after the beginning.
        after: Duration,
    },
    /// Nothing: the tool is done.
    Done(Result<Vec<Finding>, EstimatorError>),
}

/// The progress of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Trains so far.
    pub trains: u32,
    /// The present lower and upper limit of the value, bit/s or in the unit of its quantity.
    pub between: Option<(f64, Option<f64>)>,
    /// What the tool is doing, in a few words.
    pub phase: &'static str,
}

/// A measuring tool.
pub trait Estimator {
    /// Its name in commands.
    fn name(&self) -> &'static str;

    /// What the tool wants next; the same until [`Estimator::record`] is called.
    fn next(&mut self) -> Step;

    /// Takes the report on the train that the tool wanted.
    fn record(&mut self, flight: &Flight);

    /// The findings so far if its time is over; `None`: nothing yet.
    fn partial_findings(&self) -> Option<Vec<Finding>> {
        None
    }

    /// The doubts that its observations raise about its findings.
    fn doubts(&self) -> Vec<Doubt> {
        Vec::new()
    }

    fn progress(&self) -> Progress;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact ranges: 0.0253 to 5.572 of one, 4.795 to 18.39 of ten.
    #[test]
    fn counted_values_have_a_range() {
        let [one, ten] = [1, 10].map(poisson_range);
        assert!(one[0] < 0.05 && (one[1] - 5.572).abs() < 0.02, "{one:?}");
        assert!((ten[0] - 4.795).abs() < 0.02 && (ten[1] - 18.39).abs() < 0.02, "{ten:?}");
        let none = Finding::share(Quantity::Loss, 0.0, (0, 600.0));
        assert_eq!((none.value, none.low, none.high), (0.0, 0.0, 0.005));
        assert_eq!(Finding::share(Quantity::Loss, 0.0, (0, 2.0)).high, 1.0);
        let some = Finding::share(Quantity::Loss, 0.02, (10, 500.0));
        assert!(some.low < 0.01 && some.high > 0.036, "{some:?}");
    }
}
