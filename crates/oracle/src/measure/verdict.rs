//! What is believed of what two ends say of one leg.

use thalweg_measure::Bound;

/// Two rates agree if the greater is at most so many times the lower.
pub(super) const AGREE: f64 = 1.25;

/// No leg moves more, bit/s: above it a claim is refused, not cut.
pub(super) const MOST_BPS: f64 = 100e9;

/// What enters the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// bit/s.
    pub bps: f64,
    /// Exact values are planned with; lower bounds by themselves are not.
    pub bound: Bound,
    /// One end alone vouches for it.
    pub is_sole: bool,
    /// The two ends say different things, or one that is there says nothing.
    pub is_disputed: bool,
}

/// Both ends spoke: the lower value is believed, whether they agree or not. So neither end
/// alone can make a leg faster than the other saw it.
pub(super) fn of_both(sender: f64, receiver: f64) -> Verdict {
    let (low, high) = (sender.min(receiver), sender.max(receiver));
    Verdict { bps: low, bound: Bound::Exact, is_sole: false, is_disputed: high > AGREE * low }
}

/// One end spoke, and the other's time is over: a lower bound, which no plan is made with, and
/// no more than that node has shown together with others. An other end that is there and says
/// nothing contradicts it: its reports go out at once.
pub(super) fn of_one(claimed: f64, shown: Option<f64>, other_is_there: bool) -> Verdict {
    let bps = shown.map_or(claimed, |shown| claimed.min(shown));
    Verdict { bps, bound: Bound::AtLeast, is_sole: true, is_disputed: other_is_there }
}

/// Whether the number can be meant: finite, from 0 up to 100 Gbit/s.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn sane(what: &str, bps: f64) -> Result<(), String> {
    match bps.is_finite() && (0.0..=MOST_BPS).contains(&bps) {
        true => Ok(()),
        false => Err(format!("{what} of {bps:e} bit/s is none that a leg can have (0 to 1e11)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn within_a_quarter_the_ends_agree_beyond_it_the_lower_is_marked() {
        assert!(!of_both(125.0, 100.0).is_disputed);
        assert!(!of_both(100.0, 125.0).is_disputed);
        let disputed = of_both(1e9, 100.0);
        assert!(disputed.is_disputed);
        assert_eq!((disputed.bps, disputed.bound), (100.0, Bound::Exact));
        assert!(!of_both(0.0, 0.0).is_disputed);
        assert!(of_both(1.0, 0.0).is_disputed);
    }

    #[test]
    fn one_end_alone_is_never_more_than_a_lower_bound() {
        for (shown, bps) in [(Some(80.0), 80.0), (Some(900.0), 500.0), (None, 500.0)] {
            for is_there in [true, false] {
                let verdict = of_one(500.0, shown, is_there);
                assert_eq!((verdict.bps, verdict.bound), (bps, Bound::AtLeast));
                assert_eq!((verdict.is_sole, verdict.is_disputed), (true, is_there));
            }
        }
    }

    #[test]
    fn rates_that_no_leg_has_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1.1e11] {
            assert!(sane("a rate", bad).unwrap_err().contains("bit/s"), "{bad}");
        }
        assert_eq!(sane("a rate", 0.0).and(sane("a rate", 1e11)), Ok(()));
    }

    proptest! {
        #[test]
        fn neither_end_lifts_a_leg_above_what_the_other_saw(a in 0.0..1e11f64, b in 0.0..1e11f64) {
            let verdict = of_both(a, b);
            prop_assert!(verdict.bps <= a && verdict.bps <= b);
        }
    }
}
