//! Reads and prints dates in the format of RFC 3339, with a resolution of 1 ns.

use thalweg_units::WallTime;
use thiserror::Error;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The text is not a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a date with its time and zone is expected, e.g. 2026-04-15T23:59:00Z or …+02:00")]
pub struct DateError;

const SECOND: u64 = 1_000_000_000;

/// Parses a date from 1970 to 2554 (RFC 3339 §5.6), also with a space in place of the `T`.
///
/// # Errors
/// [`DateError`]; also for leap seconds, which [`WallTime`] cannot represent.
pub fn parse_date(text: &str) -> Result<WallTime, DateError> {
    read(text).ok_or(DateError)
}

fn read(text: &str) -> Option<WallTime> {
    // `time` takes a leap second for the end of the second before.
    if text.get(17..19)? == "60" {
        return None;
    }
    let (day, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(' ').map_or_else(|| rest.to_owned(), |rest| format!("T{rest}"));
    let date = OffsetDateTime::parse(&format!("{day}{rest}"), &Rfc3339).ok()?;
    u64::try_from(date.unix_timestamp_nanos()).ok().map(WallTime::from_unix_nanos)
}

/// Formats a date as `2026-04-15T23:59:00Z`, with nine digits of a fraction unless it is zero.
pub fn show_date(time: WallTime) -> String {
    let (seconds, nanos) = (time.as_unix_nanos() / SECOND, time.as_unix_nanos() % SECOND);
    // 64 bits of nanoseconds end in 2554.
    let date = OffsetDateTime::from_unix_timestamp(seconds as i64);
    let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second) = date.to_hms();
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
        for odd in ["2026-04-15t23:59:00.5z", "2026-04-15 23:59:00.5Z"] {
            let read = parse_date(odd).map(show_date);
            assert_eq!(read.as_deref(), Ok("2026-04-15T23:59:00.500000000Z"), "{odd}");
        }
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
            "2016-12-31T23:59:60Z",
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
