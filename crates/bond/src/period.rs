//! The monthly period of a byte cap.

use thalweg_units::WallTime;
use time::{Date, Month, util::days_in_month};

const DAY_NS: u64 = 86_400_000_000_000;

/// The Julian day of 1970-01-01.
const EPOCH: i32 = 2_440_588;

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
        let today = date((now.as_unix_nanos() / DAY_NS) as u32);
        let (year, month) = (today.year(), today.month());
        let begun = first_day((year, month), day);
        let (start, end) = match today >= begun {
            true => (begun, first_day(following((year, month)), day)),
            false => (first_day(preceding((year, month)), day), begun),
        };
        Self { start: days(start), end: days(end), today: days(today) }
    }
}

/// The first day of the period that begins in this month.
fn first_day((year, month): (i32, Month), day: u8) -> Date {
    let day = day.clamp(1, days_in_month(month, year));
    // The day is one of the month's.
    Date::from_calendar_date(year, month, day).unwrap_or(Date::MIN)
}

fn following((year, month): (i32, Month)) -> (i32, Month) {
    (year + i32::from(month == Month::December), month.next())
}

fn preceding((year, month): (i32, Month)) -> (i32, Month) {
    (year - i32::from(month == Month::January), month.previous())
}

/// The date this many days after 1970-01-01: at most in 2554, where 64 bits of nanoseconds end.
fn date(days: u32) -> Date {
    Date::from_julian_day(EPOCH.saturating_add_unsigned(days)).unwrap_or(Date::MAX)
}

/// Days since 1970-01-01. A period that contains the first of them begins before, which counts as 0.
fn days(date: Date) -> u32 {
    u32::try_from(date.to_julian_day() - EPOCH).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i32, month: u8, day: u8) -> WallTime {
        let date = Date::from_calendar_date(year, month.try_into().unwrap(), day).unwrap();
        WallTime::from_unix_nanos(u64::from(days(date)) * DAY_NS + DAY_NS / 2)
    }

    fn start(now: WallTime, day: u8) -> (i32, u8, u8) {
        let period = Period::at(now, day);
        assert!(period.start <= period.today && period.today < period.end);
        let next = WallTime::from_unix_nanos(u64::from(period.end) * DAY_NS);
        assert_eq!(Period::at(next, day).start, period.end, "one follows on the other");
        let start = date(period.start);
        (start.year(), start.month().into(), start.day())
    }

    #[test]
    fn days_are_counted_from_1970() {
        for (year, month, day, expected) in
            [(1970, 1, 1, 0), (2000, 3, 1, 11_017), (2026, 11, 22, 20_779)]
        {
            assert_eq!(at(year, month, day).as_unix_nanos() / DAY_NS, expected);
        }
        assert_eq!(Period::at(WallTime::from_unix_nanos(0), 15).start, 0, "there is no day before");
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
