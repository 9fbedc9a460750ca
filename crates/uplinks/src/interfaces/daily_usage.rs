//! Bytes that an interface moved, by days, so that they can be summed whatever day its cap begins anew on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thalweg_bond::Period;

/// Days that are kept: two months that overlap span no more, and no older day counts.
const MOST_DAYS: u32 = 62;

/// Bytes both ways, by days since 1970-01-01 (UTC).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DailyUsage {
    /// The month in which something was last moved, by the reset day of that time.
    from: u32,
    until: u32,
    days: BTreeMap<u32, u64>,
}

impl DailyUsage {
    /// Bytes that count in this period. If the reset day changed since the last month began, the bytes of that month
    /// count until it is over: changing the day frees nothing that is used up.
    pub fn within(&self, period: Period) -> u64 {
        let is_over = period.today >= self.until;
        let from = if is_over { period.start } else { period.start.min(self.from) };
        self.days.range(from..).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Adds bytes. A clock that was set back gives nothing back.
    pub fn add(&mut self, bytes: u64, period: Period) {
        if period.today >= self.until {
            (self.from, self.until) = (period.start, period.end);
        }
        let day = self.days.entry(period.today).or_default();
        *day = day.saturating_add(bytes);
        self.days = self.days.split_off(&period.today.saturating_sub(MOST_DAYS));
    }

    /// Takes back bytes that had been added on that day, and were not moved.
    pub fn give_back(&mut self, bytes: u64, day: u32) {
        if let Some(moved) = self.days.get_mut(&day) {
            *moved = moved.saturating_sub(bytes);
        }
    }

    /// The day on which something was last added.
    pub fn last(&self) -> u32 {
        self.days.last_key_value().map_or(0, |(day, _)| *day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::WallTime;

    /// The period of a day after 2026-11-01 with this reset day.
    fn at(day: u64, reset_day: u8) -> Period {
        let seconds = 1_793_491_200 + (day - 1) * 86_400;
        Period::at(WallTime::from_unix_nanos((seconds + 3600) * 1_000_000_000), reset_day)
    }

    #[test]
    fn moved_bytes_count_until_their_month_is_over() {
        let mut used = DailyUsage::default();
        used.add(70, at(3, 1));
        used.add(5, at(30, 1));
        assert_eq!((used.within(at(30, 1)), used.within(at(31, 1))), (75, 0));
        used.add(1, at(31, 1));
        assert_eq!((used.within(at(31, 1)), used.last()), (1, at(31, 1).today));
        used.give_back(9, at(31, 1).today);
        assert_eq!(used.within(at(40, 1)), 0);
        assert_eq!(used.within(at(30, 1)), 75, "a clock that was set back");
    }

    #[test]
    fn another_reset_day_frees_nothing_before_the_month_is_over() {
        let mut used = DailyUsage::default();
        used.add(100, at(10, 1));
        for day in [1, 5, 20, 22, 23, 31] {
            assert_eq!(used.within(at(23, day)), 100, "day {day}");
        }
        used.add(7, at(23, 20));
        // From December on, bytes that were moved since 20 November count.
        assert_eq!((used.within(at(30, 20)), used.within(at(31, 20))), (107, 7));
        used.add(2, at(31, 20));
        assert_eq!((used.within(at(49, 20)), used.within(at(50, 20))), (9, 0));
    }

    #[test]
    fn an_earlier_reset_day_counts_the_bytes_before_as_well() {
        let mut used = DailyUsage::default();
        used.add(30, at(5, 10));
        used.add(100, at(12, 10));
        assert_eq!((used.within(at(12, 10)), used.within(at(12, 1))), (100, 130));
    }
}
