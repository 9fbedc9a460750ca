//! What others leave of a leg, and how plans use it.

use crate::{Bound, Estimate};
use std::time::Duration;

/// What was available longer ago says nothing: others' traffic changes within minutes, and links that are not used are
/// looked at each half an hour ([`crate::overlay::OverlaySettings::unused`]).
pub const MAX_SPARE_AGE: Duration = Duration::from_secs(3600);

/// Where others leave less than this share of what TCP reached, TCP still gets that much: theirs yields. So no leg is
/// taken for dead by trains alone.
const LEAST: f64 = 0.1;

/// Available bandwidth as it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spare {
    /// bit/s.
    pub bps: f64,
    /// Whether it may be more.
    pub bound: Bound,
    /// How long ago.
    pub age: Duration,
}

impl Spare {
    /// Of an estimate of available bandwidth.
    pub fn of(estimate: &Estimate) -> Self {
        Self { bps: estimate.value, bound: estimate.bound, age: estimate.age }
    }
}

/// The rate to plan a leg with, bit/s: what TCP reached there (`bps`, so long ago), or what is available where that was
/// found later and within the hour ([`MAX_SPARE_AGE`]).
///
/// A lower bound only raises; a value counts as it is, but for a tenth of what TCP reached, which TCP gets of others that
/// yield.
pub fn planned(bps: f64, age: Duration, spare: Option<Spare>) -> f64 {
    match spare.filter(|spare| spare.age < age && spare.age <= MAX_SPARE_AGE) {
        Some(Spare { bps: spare, bound: Bound::AtLeast, .. }) => bps.max(spare),
        Some(Spare { bps: spare, .. }) => spare.max(LEAST * bps),
        None => bps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(mbps: f64, bound: Bound, minutes: u64) -> Option<Spare> {
        Some(Spare { bps: mbps * 1e6, bound, age: Duration::from_secs(60 * minutes) })
    }

    #[test]
    fn what_is_available_counts_where_it_is_the_younger() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        assert_eq!(planned(8e6, day, None), 8e6);
        assert_eq!(planned(8e6, day, spare(3.0, Bound::Exact, 5)), 3e6);
        assert_eq!(planned(8e6, day, spare(30.0, Bound::Exact, 5)), 30e6);
        assert_eq!(planned(8e6, hour / 20, spare(3.0, Bound::Exact, 5)), 8e6, "TCP spoke later");
        assert_eq!(planned(8e6, day, spare(3.0, Bound::Exact, 61)), 8e6, "too long ago");
    }

    #[test]
    fn lower_bounds_raise_and_nothing_left_is_not_nothing() {
        let day = Duration::from_secs(86_400);
        assert_eq!(planned(8e6, day, spare(3.0, Bound::AtLeast, 5)), 8e6);
        assert_eq!(planned(8e6, day, spare(30.0, Bound::AtLeast, 5)), 30e6);
        assert_eq!(planned(8e6, day, spare(0.0, Bound::Exact, 5)), 8e5);
    }
}
