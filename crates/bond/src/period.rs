//! The monthly period of a byte cap.

use thalweg_units::WallTime;

const DAY_NS: u64 = 86_400_000_000_000;

/// The monthly period of a cap and a day in it, in days since 1970-01-01, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first day of the period.
    pub start: u32,
    /// The first day of the next period.
    pub end: u32,
    /// The day for which it was computed.
    pub today: u32,
}

impl Period {
    /// The period that contains `now`, if periods begin at midnight UTC of `day` each month, or of the month's last day
    /// if the month has no such day. `day` counts from 1; more than 31 counts as 31.
    pub fn at(now: WallTime, day: u8) -> Self {
        let days = (now.as_unix_nanos() / DAY_NS) as i64;
        let (year, month, today) = date(days);
        let reset = |year, month| i64::from(day.clamp(1, 31)).min(days_in(year, month));
        let (year, month) = match (today >= reset(year, month), month) {
            (true, _) => (year, month),
            (false, 1) => (year - 1, 12),
            (false, _) => (year, month - 1),
        };
        let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let begins = |(year, month)| unsigned(days_since_epoch(year, month, reset(year, month)));
        Self { start: begins((year, month)), end: begins(next), today: unsigned(days) }
    }
}

/// Days as `u32`: nanoseconds since 1970 in 64 bits end in 2554, and no day is before 1970.
fn unsigned(days: i64) -> u32 {
    u32::try_from(days.max(0)).unwrap_or(u32::MAX)
}

fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_since_epoch(next_year, next, 1) - days_since_epoch(year, month, 1)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that the leap day is the last;
/// 400 years have 146,097 days.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year, month and day of a number of days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let year = 1970 + days / 366;
    let has_begun = |year: &i64| days_since_epoch(*year + 1, 1, 1) > days;
    let year = (year..).find(has_begun).unwrap_or(year);
    let month = (1..12).find(|month| days_since_epoch(year, month + 1, 1) > days).unwrap_or(12);
    (year, month, days - days_since_epoch(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64) -> WallTime {
        let start = days_since_epoch(year, month, day) as u64 * DAY_NS;
        WallTime::from_unix_nanos(start + DAY_NS / 2)
    }

    fn start(now: WallTime, day: u8) -> (i64, i64, i64) {
        let period = Period::at(now, day);
        assert!(period.start <= period.today && period.today < period.end);
        let next = WallTime::from_unix_nanos(u64::from(period.end) * DAY_NS);
        assert_eq!(Period::at(next, day).start, period.end, "one follows on the other");
        date(period.start.into())
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(days_since_epoch(1970, 1, 1), 0);
        assert_eq!(days_since_epoch(2000, 3, 1), 11_017);
        assert_eq!(days_since_epoch(2026, 11, 22), 20_779);
        let mut expected = (1970, 1, 1);
        for days in 0..80_000 {
            assert_eq!(date(days), expected);
            let (year, month, day) = expected;
            expected = match day == days_in(year, month) {
                false => (year, month, day + 1),
                true if month == 12 => (year + 1, 1, 1),
                true => (year, month + 1, 1),
            };
        }
    }

    #[test]
    fn a_period_begins_on_its_day() {
        assert_eq!(start(at(2026, 11, 22), 1), (2026, 11, 1));
        assert_eq!(start(at(2026, 11, 22), 22), (2026, 11, 22));
        assert_eq!(start(at(2026, 11, 22), 23), (2026, 10, 23));
        assert_eq!(start(at(2026, 1, 5), 10), (2025, 12, 10));
    }

    #[test]
    fn a_month_without_the_day_begins_on_its_last() {
        assert_eq!(start(at(2026, 2, 28), 31), (2026, 2, 28));
        assert_eq!(start(at(2024, 2, 28), 31), (2024, 1, 31));
        assert_eq!(start(at(2024, 3, 1), 30), (2024, 2, 29));
    }
}
