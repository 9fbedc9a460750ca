//! A daily window of local time in which a job may run.

use jiff::{Timestamp, civil::Time, tz::TimeZone};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// A daily window, `HH:MM-HH:MM` in the host's time zone; it may span midnight. The end is outside; from a time to the
/// same time is the whole day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DailyWindow {
    from: Time,
    until: Time,
}

/// The text is not a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a daily window is HH:MM-HH:MM, such as 23:00-06:00")]
pub struct WindowError;

impl DailyWindow {
    /// Whether the window is open at `now` in `zone`.
    pub fn is_open(&self, now: Timestamp, zone: &TimeZone) -> bool {
        let time = now.to_zoned_datetime(zone.clone()).time();
        match self.from < self.until {
            true => self.from <= time && time < self.until,
            false => self.from <= time || time < self.until,
        }
    }
}

impl fmt::Display for DailyWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from, self.until].map(|t| (t.hour(), t.minute()));
        write!(f, "{:02}:{:02}-{:02}:{:02}", from.0, from.1, until.0, until.1)
    }
}

impl FromStr for DailyWindow {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let (from, until) = text.split_once('-').ok_or(WindowError)?;
        let (from, until) = (time(from)?, time(until)?);
        Ok(Self { from, until })
    }
}

fn time(text: &str) -> Result<Time, WindowError> {
    let (hour, minute) = text.split_once(':').ok_or(WindowError)?;
    if hour.is_empty() || hour.len() > 2 || minute.len() != 2 {
        return Err(WindowError);
    }
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<i8>().map_err(|_| WindowError),
        false => Err(WindowError),
    };
    // 24:00 is the end of a day.
    match (number(hour)?, number(minute)?) {
        (24, 0) => Ok(Time::midnight()),
        (hour, minute) => Time::new(hour, minute, 0, 0).map_err(|_| WindowError),
    }
}

impl TryFrom<String> for DailyWindow {
    type Error = WindowError;

    fn try_from(text: String) -> Result<Self, WindowError> {
        text.parse()
    }
}

impl From<DailyWindow> for String {
    fn from(window: DailyWindow) -> Self {
        window.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(window: &str, now: &str) -> bool {
        let window: DailyWindow = window.parse().unwrap();
        window.is_open(now.parse().unwrap(), &TimeZone::UTC)
    }

    #[test]
    fn a_window_is_open_from_its_begin_until_before_its_end() {
        for (now, open) in
            [("05:59:59", false), ("06:00:00", true), ("07:59:59", true), ("08:00:00", false)]
        {
            assert_eq!(is_open("6:00-8:00", &format!("2026-03-01T{now}Z")), open, "{now}");
        }
    }

    #[test]
    fn a_window_may_span_midnight() {
        for (now, open) in
            [("22:59:59", false), ("23:00:00", true), ("00:00:00", true), ("06:00:00", false)]
        {
            assert_eq!(is_open("23:00-06:00", &format!("2026-03-01T{now}Z")), open, "{now}");
        }
        assert!(is_open("06:00-06:00", "2026-03-01T05:59:59Z"));
        assert!(is_open("22:00-24:00", "2026-03-01T23:59:59Z"));
        assert!(!is_open("22:00-24:00", "2026-03-01T00:00:00Z"));
    }

    #[test]
    fn a_window_follows_the_clock_of_its_zone() {
        let window: DailyWindow = "23:00-06:00".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert!(window.is_open("2026-03-01T21:30:00Z".parse().unwrap(), &zone));
        assert!(!window.is_open("2026-03-01T04:30:00Z".parse().unwrap(), &zone));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "-", "6-8", "06:00", "25:00-06:00", "06:60-07:00", "+6:00-07:00", "06:0-07:00"]
        {
            assert_eq!(text.parse::<DailyWindow>(), Err(WindowError), "{text}");
        }
    }
}
