//! How long a pair is left alone after failed measurements.

use crate::schedule::Pair;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// The wait after a first failure. Each further one waits [`TIMES`] as long: 5 s, 30 s, 3 min, 18 min.
const FIRST: Duration = Duration::from_secs(5);
const TIMES: u32 = 6;

/// The longest wait, however often the pair failed.
const MOST: Duration = Duration::from_secs(3600);

/// The longest wait for a busy end: it works, so it is asked again sooner.
const MOST_BUSY: Duration = Duration::from_secs(60);

/// How often pairs failed since they were last measured; forgotten two hours after the last failure.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(BTreeMap<Pair, (u32, Time)>);

impl Failures {
    /// Counts a failure. Returns how many there are now.
    pub(super) fn count(&mut self, pair: Pair, now: Time) -> u32 {
        let (times, last) = self.0.entry(pair).or_default();
        (*times, *last) = (times.saturating_add(1), now);
        *times
    }

    /// Forgets the failures of a pair that was measured.
    pub(super) fn forgive(&mut self, pair: Pair) {
        self.0.remove(&pair);
    }

    pub(super) fn forget_old(&mut self, now: Time) {
        self.0.retain(|_, (_, last)| now.since(*last) < MOST * 2);
    }
}

/// The wait after this many failures.
pub(super) fn wait(failed: u32) -> Duration {
    let times = TIMES.saturating_pow(failed.saturating_sub(1));
    FIRST.saturating_mul(times).min(MOST)
}

/// The wait after an end was busy this many times in a row.
pub(super) fn busy_wait(times: u32) -> Duration {
    let times = 2_u32.saturating_pow(times.saturating_sub(1));
    FIRST.saturating_mul(times).min(MOST_BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_seconds_then_minutes_and_an_hour_at_most() {
        assert_eq!([1, 2, 3, 4].map(|n| wait(n).as_secs()), [5, 30, 180, 1080]);
        assert_eq!([5, 99, u32::MAX].map(|n| wait(n).as_secs()), [3600; 3]);
        assert_eq!([1, 2, 3, u32::MAX].map(|n| busy_wait(n).as_secs()), [5, 10, 20, 60]);
    }
}
