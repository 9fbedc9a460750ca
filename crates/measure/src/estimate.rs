//! A measured value with its subject, method, reporter and age.

use crate::{Bound, LimitedTime, NodeIndex, Subject};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_units::{Rate, serde_duration};
use thiserror::Error;

/// The measured property, which determines the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The rate that TCP reaches, bit/s; UKAIRO's "bandwidth" (§2.1).
    Throughput,
    /// The narrowest link's rate, bit/s.
    Capacity,
    /// The capacity that other traffic leaves unused, bit/s.
    AvailableBandwidth,
    /// Round-trip time, s.
    RoundTrip,
    /// From dialling to a transfer's first byte, s: name resolution, handshakes, relays, and the server.
    Setup,
    /// Packets lost, as a fraction in 0..=1.
    Loss,
}

impl Metric {
    /// The unit of value and spread.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Throughput | Self::Capacity | Self::AvailableBandwidth => "bit/s",
            Self::RoundTrip | Self::Setup => "s",
            Self::Loss => "1",
        }
    }
}

/// How a value was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A bulk TCP transfer made for the measurement (iperf's, as in UKAIRO §3.1.1).
    Transfer,
    /// The sampling phase of a download (UKAIRO §3.2.1).
    Sampling,
    /// A user's own transfer, observed.
    Passive,
    /// The kernel's counters of a connection.
    TcpInfo,
    /// A probe train.
    Train,
}

/// One measured value.
///
/// Estimates are sent with their age. A [`crate::Table`] stores the date by its own clock instead, because the clocks
/// of two hosts differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The subject that was measured.
    pub subject: Subject,
    pub metric: Metric,
    /// The value, finite and not negative, in [`Metric::unit`].
    pub value: f64,
    /// Half the interquartile range of the samples, in the same unit; `None`: a single sample.
    pub spread: Option<f64>,
    /// How the value was obtained.
    pub method: Method,
    /// Time from the end of the measurement until this estimate was written.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// The node that measured.
    pub reporter: NodeIndex,
    /// Whether the value is exact or a lower bound.
    pub bound: Bound,
}

/// An estimate with invalid numbers.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum EstimateError {
    /// The value or the spread is negative, infinite or not a number.
    #[error("the value {0} is not a finite number of at least 0")]
    Value(f64),
    /// The loss is above 1.
    #[error("the loss {0} is more than 1 (100 %)")]
    Loss(f64),
}

impl Estimate {
    /// The throughput that an observed transfer has just reached, with [`Bound::of_passive`].
    pub fn passive(
        subject: Subject,
        rate: Rate,
        limited: &LimitedTime,
        reporter: NodeIndex,
    ) -> Self {
        Self {
            subject,
            metric: Metric::Throughput,
            value: rate.as_bps() as f64,
            spread: None,
            method: Method::Passive,
            age: Duration::ZERO,
            reporter,
            bound: Bound::of_passive(limited),
        }
    }

    /// The value as a rate; `None` if the metric is not a rate.
    pub fn rate(&self) -> Option<Rate> {
        (self.metric.unit() == "bit/s").then(|| Rate::from_bps(self.value.round() as u64))
    }

    /// Checks that value and spread are finite and not negative, and that a loss is at most 1.
    ///
    /// # Errors
    /// [`EstimateError`].
    pub fn check(&self) -> Result<(), EstimateError> {
        let sound = |v: f64| v.is_finite() && v >= 0.0;
        match [Some(self.value), self.spread].into_iter().flatten().find(|v| !sound(*v)) {
            Some(bad) => Err(EstimateError::Value(bad)),
            None if self.metric == Metric::Loss && self.value > 1.0 => {
                Err(EstimateError::Loss(self.value))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passive_estimate(receiver: Duration) -> Estimate {
        let limited = LimitedTime {
            application: Duration::ZERO,
            receiver,
            send_buffer: Duration::ZERO,
            total: Duration::from_secs(10),
        };
        Estimate::passive(Subject::leg(1, 2), Rate::from_mbps(8.0), &limited, NodeIndex(1))
    }

    #[test]
    fn a_back_pressured_transfer_gives_a_lower_bound() {
        assert_eq!(passive_estimate(Duration::from_millis(1000)).bound, Bound::Exact);
        let pressed = passive_estimate(Duration::from_millis(1001));
        assert_eq!(pressed.bound, Bound::AtLeast);
        assert_eq!(pressed.rate(), Some(Rate::from_mbps(8.0)));
    }

    #[test]
    fn invalid_numbers_are_refused() {
        let base = passive_estimate(Duration::ZERO);
        assert_eq!(base.check(), Ok(()));
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Estimate { value, ..base.clone() }.check().is_err());
            assert!(Estimate { spread: Some(value), ..base.clone() }.check().is_err());
        }
        let loss = Estimate { metric: Metric::Loss, value: 1.5, ..base };
        assert_eq!(loss.check(), Err(EstimateError::Loss(1.5)));
        assert_eq!(loss.rate(), None);
    }
}
