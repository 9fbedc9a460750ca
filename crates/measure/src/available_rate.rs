//! The available bandwidth of a leg, and how plans use it.

use crate::{Bound, Estimate};
use std::time::Duration;

/// The age beyond which available bandwidth is ignored: cross traffic changes within minutes, and unused links are
/// measured every half hour ([`crate::overlay::OverlaySettings::unused`]).
pub const MAX_SPARE_AGE: Duration = Duration::from_secs(3600);

/// If the available bandwidth is less than this share of the throughput that TCP reached, TCP is still expected to get
/// this share, because the other flows yield. So trains alone never make a leg look dead.
const MIN_SHARE: f64 = 0.1;

/// Available bandwidth as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AvailableRate {
    pub bps: f64,
    /// Whether the true value may be larger.
    pub bound: Bound,
    /// Time since the measurement.
    pub age: Duration,
}

impl AvailableRate {
    /// Takes the value of an estimate of available bandwidth.
    pub fn from_estimate(estimate: &Estimate) -> Self {
        Self { bps: estimate.value, bound: estimate.bound, age: estimate.age }
    }
}

/// The rate to plan a leg with, bit/s: the throughput that TCP reached (`bps`, measured `age` ago), or the available
/// bandwidth if that was measured later and at most an hour ago ([`MAX_SPARE_AGE`]).
///
/// A lower bound can only raise the rate. An exact value replaces it, but the result is at least a tenth of `bps`,
/// which TCP gets because other flows yield.
pub fn planned_rate(bps: f64, age: Duration, spare: Option<AvailableRate>) -> f64 {
    match spare.filter(|spare| spare.age < age && spare.age <= MAX_SPARE_AGE) {
        Some(AvailableRate { bps: spare, bound: Bound::AtLeast, .. }) => bps.max(spare),
        Some(AvailableRate { bps: spare, .. }) => spare.max(MIN_SHARE * bps),
        None => bps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(mbps: f64, bound: Bound, minutes: u64) -> Option<AvailableRate> {
        Some(AvailableRate { bps: mbps * 1e6, bound, age: Duration::from_secs(60 * minutes) })
    }

    #[test]
    fn available_bandwidth_replaces_throughput_if_it_is_newer() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        assert_eq!(planned_rate(8e6, day, None), 8e6);
        assert_eq!(planned_rate(8e6, day, spare(3.0, Bound::Exact, 5)), 3e6);
        assert_eq!(planned_rate(8e6, day, spare(30.0, Bound::Exact, 5)), 30e6);
        assert_eq!(
            planned_rate(8e6, hour / 20, spare(3.0, Bound::Exact, 5)),
            8e6,
            "TCP spoke later"
        );
        assert_eq!(planned_rate(8e6, day, spare(3.0, Bound::Exact, 61)), 8e6, "too long ago");
    }

    #[test]
    fn lower_bounds_only_raise_the_rate_and_a_tenth_always_remains() {
        let day = Duration::from_secs(86_400);
        assert_eq!(planned_rate(8e6, day, spare(3.0, Bound::AtLeast, 5)), 8e6);
        assert_eq!(planned_rate(8e6, day, spare(30.0, Bound::AtLeast, 5)), 30e6);
        assert_eq!(planned_rate(8e6, day, spare(0.0, Bound::Exact, 5)), 8e5);
    }
}
