//! What an interface moved, by days: whatever day its cap begins anew on, what counts is in there.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thalweg_bond::Period;

/// Two months that overlap have no more days together, and no older day counts.
const MOST_DAYS: u32 = 62;

/// Bytes both ways, by days since 1970-01-01 (UTC).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Used {
    /// The month in which something was moved last, as the settings had it when it began.
    from: u32,
    until: u32,
    days: BTreeMap<u32, u64>,
}

impl Used {
    /// What counts in this period. Where the settings have another day now than when the last month began, what that
    /// has counts until it is over: who changes the day frees nothing that is used up.
    pub fn within(&self, period: Period) -> u64 {
        let is_over = period.today >= self.until;
        let from = if is_over { period.start } else { period.start.min(self.from) };
        self.days.range(from..).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// So many bytes more. A clock that was set back gives nothing back.
    pub fn add(&mut self, bytes: u64, period: Period) {
        if period.today >= self.until {
            (self.from, self.until) = (period.start, period.end);
        }
        let day = self.days.entry(period.today).or_default();
        *day = day.saturating_add(bytes);
        self.days = self.days.split_off(&period.today.saturating_sub(MOST_DAYS));
    }

    /// So many bytes were not moved that had been added on that day.
    pub fn give_back(&mut self, bytes: u64, day: u32) {
        if let Some(moved) = self.days.get_mut(&day) {
            *moved = moved.saturating_sub(bytes);
        }
    }

    /// The day on which something was added last.
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
    fn what_was_moved_counts_until_its_month_is_over() {
        let mut used = Used::default();
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
        let mut used = Used::default();
        used.add(100, at(10, 1));
        for day in [1, 5, 20, 22, 23, 31] {
            assert_eq!(used.within(at(23, day)), 100, "day {day}");
        }
        used.add(7, at(23, 20));
        // From December on what was moved since 20 November counts.
        assert_eq!((used.within(at(30, 20)), used.within(at(31, 20))), (107, 7));
        used.add(2, at(31, 20));
        assert_eq!((used.within(at(49, 20)), used.within(at(50, 20))), (9, 0));
    }

    #[test]
    fn a_day_further_on_counts_what_went_before_as_well() {
        let mut used = Used::default();
        used.add(30, at(5, 10));
        used.add(100, at(12, 10));
        assert_eq!((used.within(at(12, 10)), used.within(at(12, 1))), (100, 130));
    }
}
