//! Reads and prints dates in the format of RFC 3339, with a resolution of 1 ns.

use thalweg_units::WallTime;
use thiserror::Error;

/// The text is not a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a date with its time and zone is expected, e.g. 2026-04-15T23:59:00Z or …+02:00")]
pub struct DateError;

const SECOND: u64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Parses a date from 1970 to 2554 (RFC 3339 §5.6).
///
/// # Errors
/// [`DateError`]; also for leap seconds, which [`WallTime`] cannot represent.
pub fn parse_date(text: &str) -> Result<WallTime, DateError> {
    read(text.as_bytes()).ok_or(DateError)
}

fn read(text: &[u8]) -> Option<WallTime> {
    let (head, rest) = text.split_at_checked(19)?;
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, mark)| head[*at] == *mark) || !b"Tt ".contains(&head[10]) {
        return None;
    }
    let [year, month, day] = [number(&head[..4])?, number(&head[5..7])?, number(&head[8..10])?];
    let [hour, minute, second] =
        [number(&head[11..13])?, number(&head[14..16])?, number(&head[17..19])?];
    let days_of = days_in(year, month)?;
    if day < 1 || day > days_of || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (nanos, zone) = fraction(rest)?;
    let local = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    let unix = u64::try_from(local - offset(zone)?).ok()?;
    Some(WallTime::from_unix_nanos(unix.checked_mul(SECOND)?.checked_add(nanos)?))
}

fn number(digits: &[u8]) -> Option<i64> {
    let digit = |sum: i64, b: &u8| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0'));
    digits.iter().try_fold(0, digit)
}

/// Splits `rest` into an optional fraction `.123…`, in nanoseconds, and the zone after it.
fn fraction(rest: &[u8]) -> Option<(u64, &[u8])> {
    let Some(rest) = rest.strip_prefix(b".") else { return Some((0, rest)) };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, zone) = rest.split_at(digits);
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9).collect::<Vec<_>>();
    match digits.len() {
        1..=9 => Some((number(&padded)?.unsigned_abs(), zone)),
        _ => None,
    }
}

/// The zone's offset, seconds east of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    if matches!(zone, b"Z" | b"z") {
        return Some(0);
    }
    let [sign, h1, h2, b':', m1, m2] = *zone else { return None };
    let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> Option<i64> {
    match month {
        2 => Some(28 + i64::from(is_leap(year))),
        4 | 6 | 9 | 11 => Some(30),
        1..=12 => Some(31),
        _ => None,
    }
}

/// Days since 1970-01-01. Years begin in March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day from the days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, (march + 2) % 12 + 1);
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats a date as `2026-04-15T23:59:00Z`, with nine digits of a fraction unless it is zero.
pub fn show_date(time: WallTime) -> String {
    let (seconds, nanos) = (time.as_unix_nanos() / SECOND, time.as_unix_nanos() % SECOND);
    let (days, of_day) = (seconds as i64 / DAY, seconds as i64 % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let date = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanos == 0 { format!("{date}Z") } else { format!("{date}.{nanos:09}Z") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-04-15T23:59:00Z", 1_776_297_540),
            ("2026-04-16T01:59:00+02:00", 1_776_297_540),
            ("2026-04-15T18:29:00.000-05:30", 1_776_297_540),
        ] {
            assert_eq!(parse_date(text), Ok(WallTime::from_unix_nanos(seconds * SECOND)), "{text}");
        }
        let odd = parse_date("2026-04-15t23:59:00.5z").unwrap();
        assert_eq!(show_date(odd), "2026-04-15T23:59:00.500000000Z");
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "2026-04-15",
            "2026-04-15T23:59:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-04-15T24:00:00Z",
            "2026-04-15T23:59:60Z",
            "1969-12-31T23:59:59Z",
            "2026-04-15T23:59:00.Z",
            "2026-04-15T23:59:00+2:00",
            "2026-04-15T23:59:00+02:60",
            "9999-01-01T00:00:00Z",
            "2026-04-15T23:59:00Zz",
            "2026-04-15T23:59:00é",
        ] {
            assert_eq!(parse_date(text), Err(DateError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_round_trip(nanos: u64) {
            let time = WallTime::from_unix_nanos(nanos);
            prop_assert_eq!(parse_date(&show_date(time)), Ok(time));
        }

        #[test]
        fn any_text_is_a_date_or_an_error(text: String) {
            if let Ok(time) = parse_date(&text) {
                prop_assert_eq!(parse_date(&show_date(time)), Ok(time));
            }
        }
    }
}
