//! When a job starts at the earliest, as people write it.

use jiff::{
    Timestamp, ToSpan as _,
    civil::{DateTime, Time},
    tz::TimeZone,
};
use thiserror::Error;

/// The text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a start time is HH:MM, YYYY-MM-DDTHH:MM in this host's time zone, or an RFC 3339 time such as \
     2026-03-01T23:00:00Z"
)]
pub struct StartTimeError;

/// Parses a start time. `HH:MM` is the next such time after `now`.
///
/// # Errors
/// [`StartTimeError`].
pub fn parse_start_time(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Timestamp, StartTimeError> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let local = |at: DateTime| at.to_zoned_datetime(zone.clone()).map(|at| at.timestamp());
    if text.contains('-') {
        let at = text.parse::<DateTime>().map_err(|_| StartTimeError)?;
        return local(at).map_err(|_| StartTimeError);
    }
    let time = text.parse::<Time>().map_err(|_| StartTimeError)?;
    let today = now.to_zoned_datetime(zone.clone()).date();
    let at = local(today.to_datetime(time)).map_err(|_| StartTimeError)?;
    if at > now {
        return Ok(at);
    }
    let tomorrow = today.checked_add(1.day()).map_err(|_| StartTimeError)?;
    local(tomorrow.to_datetime(time)).map_err(|_| StartTimeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_hosts_zone_unless_they_name_one() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let at = |text| parse_start_time(text, now, &zone).unwrap().to_string();
        assert_eq!(at("23:00"), "2026-03-01T21:00:00Z");
        assert_eq!(at("14:00"), "2026-03-02T12:00:00Z");
        assert_eq!(at("06:30"), "2026-03-02T04:30:00Z");
        assert_eq!(at("2026-04-05T06:30"), "2026-04-05T04:30:00Z");
        assert_eq!(at("2026-04-05T06:30:00Z"), "2026-04-05T06:30:00Z");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "noon", "25:00", "2026-13-01T00:00", "2026-04-05T", "-1"] {
            let parsed = parse_start_time(text, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
            assert_eq!(parsed, Err(StartTimeError), "{text}");
        }
    }
}
