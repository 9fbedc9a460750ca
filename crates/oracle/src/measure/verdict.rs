//! Judges the reports of a leg's two ends.

use thalweg_measure::Bound;

/// Two rates agree if the greater is at most this many times the lower.
pub(super) const AGREE: f64 = 1.25;

/// The fastest leg, bit/s. A report above it is refused rather than capped.
pub(super) const MOST_BPS: f64 = 100e9;

/// The judged rate of a leg.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateVerdict {
    pub bps: f64,
    /// Plans use exact values; lower bounds alone are not enough.
    pub bound: Bound,
    /// Whether only one end reported.
    pub is_sole: bool,
    /// Whether the two reports differ too much, or the other end is present but reports nothing.
    pub is_disputed: bool,
}

/// Both ends reported: the lower rate is believed, whether they agree or not. So neither end alone can make a leg
/// faster than the other saw it.
pub(super) fn judge_both(sender: f64, receiver: f64) -> RateVerdict {
    let (low, high) = (sender.min(receiver), sender.max(receiver));
    RateVerdict { bps: low, bound: Bound::Exact, is_sole: false, is_disputed: high > AGREE * low }
}

/// Only one end reported in time: the rate is a lower bound, which plans do not use, capped at what that node has shown
/// together with others. If the other end is present and reports nothing, that is a contradiction, because its reports
/// are sent immediately.
pub(super) fn judge_single(claimed: f64, shown: Option<f64>, other_is_there: bool) -> RateVerdict {
    let bps = shown.map_or(claimed, |shown| claimed.min(shown));
    RateVerdict { bps, bound: Bound::AtLeast, is_sole: true, is_disputed: other_is_there }
}

/// Checks that a rate is finite and within 0 to 100 Gbit/s.
///
/// # Errors
/// A message for people.
pub(super) fn check_rate(what: &str, bps: f64) -> Result<(), String> {
    match bps.is_finite() && (0.0..=MOST_BPS).contains(&bps) {
        true => Ok(()),
        false => Err(format!("{what} of {bps:e} bit/s is out of range (0 to 1e11)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_more_than_a_quarter_apart_are_disputed() {
        assert!(!judge_both(125.0, 100.0).is_disputed);
        assert!(!judge_both(100.0, 125.0).is_disputed);
        let disputed = judge_both(1e9, 100.0);
        assert!(disputed.is_disputed);
        assert_eq!((disputed.bps, disputed.bound), (100.0, Bound::Exact));
        assert!(!judge_both(0.0, 0.0).is_disputed);
        assert!(judge_both(1.0, 0.0).is_disputed);
    }

    #[test]
    fn one_end_alone_is_never_more_than_a_lower_bound() {
        for (shown, bps) in [(Some(80.0), 80.0), (Some(900.0), 500.0), (None, 500.0)] {
            for is_there in [true, false] {
                let verdict = judge_single(500.0, shown, is_there);
                assert_eq!((verdict.bps, verdict.bound), (bps, Bound::AtLeast));
                assert_eq!((verdict.is_sole, verdict.is_disputed), (true, is_there));
            }
        }
    }

    #[test]
    fn rates_that_no_leg_has_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1.1e11] {
            assert!(check_rate("a rate", bad).unwrap_err().contains("bit/s"), "{bad}");
        }
        assert_eq!(check_rate("a rate", 0.0).and(check_rate("a rate", 1e11)), Ok(()));
    }

    proptest! {
        #[test]
        fn neither_end_raises_a_leg_above_the_other_report(a in 0.0..1e11f64, b in 0.0..1e11f64) {
            let verdict = judge_both(a, b);
            prop_assert!(verdict.bps <= a && verdict.bps <= b);
        }
    }
}
