//! Dates for stamps that never go back, even if the host's clock does.

use thalweg_units::WallTime;

/// The dates of a box's stamps: those of the host's clock, but always later than the dates given before.
///
/// If the host's clock jumps back, each date is a nanosecond after the previous one until the clock has caught up. Only
/// the dates of issued stamps count: if the clock was wrong when a request was refused, later dates are not affected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MonotonicDates {
    last: u64,
}

impl MonotonicDates {
    /// The date that the next stamp gets if the host's clock says `now`.
    pub fn next(self, now: WallTime) -> WallTime {
        WallTime::from_unix_nanos(now.as_unix_nanos().max(self.last.saturating_add(1)))
    }

    /// Records the date of an issued stamp, also of one that an earlier process issued.
    pub fn record(&mut self, date: WallTime) {
        self.last = self.last.max(date.as_unix_nanos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_only_grow_when_the_host_s_clock_goes_back() {
        let mut dates = MonotonicDates::default();
        let mut give = |now| {
            let date = dates.next(WallTime::from_unix_nanos(now));
            dates.record(date);
            date.as_unix_nanos()
        };
        let given = [1000, 1000, 5, 2000, 7].map(&mut give);
        assert_eq!(given, [1000, 1001, 1002, 2000, 2001]);
        dates.record(WallTime::from_unix_nanos(5000));
        assert_eq!(dates.next(WallTime::from_unix_nanos(9)).as_unix_nanos(), 5001);
    }

    #[test]
    fn a_clock_reading_without_a_stamp_has_no_effect() {
        let mut dates = MonotonicDates::default();
        dates.record(WallTime::from_unix_nanos(1000));
        let (wrong, right) = (WallTime::from_unix_nanos(u64::MAX), WallTime::from_unix_nanos(1500));
        assert_eq!(dates.next(wrong), wrong);
        assert_eq!(dates.next(right), right);
    }
}
