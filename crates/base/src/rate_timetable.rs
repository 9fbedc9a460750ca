//! Rates on the command line: bytes per second as with curl, a rate with its unit, or different ones by time of day as with
//! rclone. Pure: the time is an argument.

use std::{fmt, num::NonZeroU64, str::FromStr};
use thalweg_units::Rate;
use thiserror::Error;

const DAY: u32 = 24 * 3600;
const WEEK: u32 = 7 * DAY;

/// The most entries: one for each quarter of an hour of a week.
const MAX_ENTRIES: usize = 672;

/// A rate in bytes per second, or one for each time of the week: `2M`, `"40 Mbit/s"`, `"08:00,512k 19:00,10M 23:00,off"`,
/// `"Mon-08:00,1M Sat-00:00,off"`.
#[derive(Clone, PartialEq, Eq)]
pub struct RateTimetable {
    /// The seconds since Monday 0:00 of the local time, and the rate from then on; ascending, at least one. `None`: no
    /// limit.
    entries: Vec<(u32, Option<NonZeroU64>)>,
}

/// Why a text is no rate and no timetable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimetableError {
    #[error("write it like 500k, 2M or \"40 Mbit/s\", or by time of day: \"08:00,512k 23:00,off\"")]
    Rate,
    #[error("it must be at least 1 byte per second; `off` is no limit")]
    Zero,
    #[error("`{0}` is no time: write 08:00 or Mon-08:00, then a comma and the rate")]
    Time(String),
    #[error("{0} is given twice")]
    Twice(String),
    #[error("a timetable has at most {MAX_ENTRIES} entries")]
    TooLong,
}

impl RateTimetable {
    /// This rate at all times, in bytes per second.
    pub fn constant(bytes_per_second: NonZeroU64) -> Self {
        Self { entries: vec![(0, Some(bytes_per_second))] }
    }

    /// Whether the rate is the same at all times.
    pub fn is_constant(&self) -> bool {
        self.entries.iter().all(|(_, rate)| *rate == self.entries[0].1)
    }

    /// The rate this many seconds after Monday 0:00, in bytes per second (`None`: no limit), and the seconds until the next
    /// entry.
    pub fn at(&self, second_of_week: u32) -> (Option<NonZeroU64>, u32) {
        let now = second_of_week % WEEK;
        let begun = self.entries.partition_point(|(at, _)| *at <= now);
        // Before the first entry of the week, the last one of the week before holds.
        let holds = begun.checked_sub(1).unwrap_or(self.entries.len() - 1);
        let next = match self.entries.get(begun) {
            Some((at, _)) => at - now,
            None => self.entries[0].0 + WEEK - now,
        };
        (self.entries[holds].1, next)
    }

    /// The highest rate at any time, in bytes per second; `None`: at some time there is no limit.
    pub fn highest(&self) -> Option<NonZeroU64> {
        let all: Option<Vec<NonZeroU64>> = self.entries.iter().map(|(_, rate)| *rate).collect();
        all.and_then(|all| all.into_iter().max())
    }
}

impl fmt::Debug for RateTimetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl FromStr for RateTimetable {
    type Err = TimetableError;

    fn from_str(text: &str) -> Result<Self, TimetableError> {
        if !text.contains(',') {
            let rate = rate_or_off(text)?.ok_or(TimetableError::Rate)?;
            return Ok(Self::constant(rate));
        }
        let mut entries = Vec::new();
        for entry in split(text) {
            let (time, rate) =
                entry.split_once(',').ok_or_else(|| TimetableError::Time(shown(&entry)))?;
            let rate = rate_or_off(rate)?;
            entries.extend(times(time)?.into_iter().map(|at| (at, rate)));
        }
        if entries.len() > MAX_ENTRIES {
            return Err(TimetableError::TooLong);
        }
        entries.sort_by_key(|(at, _)| *at);
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(TimetableError::Twice(time_of_day(pair[0].0))),
            None => Ok(Self { entries }),
        }
    }
}

/// The entries of a timetable. A word without a comma belongs to the entry before it: `08:00,40 Mbit/s`.
fn split(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match entries.last_mut() {
            Some(entry) if !word.contains(',') => *entry = format!("{entry} {word}"),
            _ => entries.push(word.to_owned()),
        }
    }
    entries
}

/// The seconds of the week at which an entry begins: one, or one on each day.
fn times(text: &str) -> Result<Vec<u32>, TimetableError> {
    let wrong = || TimetableError::Time(shown(text));
    let (days, time) = match text.split_once('-') {
        Some((day, time)) => {
            let day = weekday(day).ok_or_else(wrong)?;
            (day..day + 1, time)
        }
        None => (0..7, text),
    };
    let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: u32| {
        let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|n| is_plain && *n <= most)
    };
    let (hour, minute) = number(hour, 23).zip(number(minute, 59)).ok_or_else(wrong)?;
    Ok(days.map(|day| day * DAY + hour * 3600 + minute * 60).collect())
}

/// The days since Monday, of a name such as `Mon` or `Monday`.
fn weekday(text: &str) -> Option<u32> {
    const DAYS: [&str; 7] =
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let name = text.to_ascii_lowercase();
    let found = DAYS.iter().position(|day| *day == name || day[..3] == name);
    found.and_then(|day| u32::try_from(day).ok())
}

fn time_of_day(second: u32) -> String {
    format!("{:02}:{:02}", second % DAY / 3600, second % 3600 / 60)
}

/// At most 32 characters of a mistake, escaped.
fn shown(text: &str) -> String {
    text.chars().take(32).flat_map(char::escape_debug).collect()
}

fn rate_or_off(text: &str) -> Result<Option<NonZeroU64>, TimetableError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let bytes = match suffixed(text) {
        Some(bytes) => bytes,
        None => text.parse::<Rate>().map_err(|_| TimetableError::Rate)?.as_bps() / 8,
    };
    NonZeroU64::new(bytes).map(Some).ok_or(TimetableError::Zero)
}

/// Parses curl's notation, with powers of 1024; `None` if the text has another form.
fn suffixed(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let power = match text[end..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let number: f64 = text[..end].parse().ok()?;
    let bytes = number * 1024_f64.powi(power);
    // A larger number would overflow as bits, and no link is that fast.
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> RateTimetable {
        text.parse().unwrap()
    }

    fn second(day: u32, hour: u32, minute: u32) -> u32 {
        day * DAY + hour * 3600 + minute * 60
    }

    #[test]
    fn plain_suffixes_mean_bytes_and_units_mean_themselves() {
        for (text, bytes) in [
            ("500k", 512_000),
            ("2M", 2 << 20),
            ("1.5m", 3 << 19),
            ("1G", 1 << 30),
            ("10000", 10_000),
            ("7B", 7),
            ("40 Mbit/s", 5_000_000),
            ("2 MB/s", 2_000_000),
        ] {
            assert_eq!(parsed(text).highest().map(NonZeroU64::get), Some(bytes), "{text}");
            assert!(parsed(text).is_constant());
        }
        for text in ["", "0", "k", "-5k", "5x", "5 parsec", "nan", "1e30G", "7 bit/s", "off"] {
            assert!(text.parse::<RateTimetable>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_time_of_the_day_has_its_rate() {
        let table = parsed("08:00,512k 19:00,10M 23:00,off");
        let at = |day, hour, minute| table.at(second(day, hour, minute)).0.map(NonZeroU64::get);
        for day in 0..7 {
            assert_eq!(at(day, 8, 0), Some(512 << 10));
            assert_eq!(at(day, 18, 59), Some(512 << 10));
            assert_eq!(at(day, 19, 0), Some(10 << 20));
            assert_eq!((at(day, 23, 0), at(day, 7, 59), at(day, 0, 0)), (None, None, None));
        }
        assert_eq!(table.at(second(2, 18, 59)).1, 60);
        assert_eq!(table.at(second(6, 23, 30)).1, second(0, 8, 30));
        assert_eq!((table.highest(), table.is_constant()), (None, false));
        assert_eq!(parsed("08:00,1k 9:30,3k").highest().map(NonZeroU64::get), Some(3072));
    }

    #[test]
    fn entries_of_weekdays_hold_until_the_next_one() {
        let table = parsed("Mon-08:00,1k Friday-20:00,40 Mbit/s sun-22:00,off");
        let at = |day, hour| table.at(second(day, hour, 0)).0.map(NonZeroU64::get);
        assert_eq!((at(0, 8), at(2, 0), at(4, 19)), (Some(1024), Some(1024), Some(1024)));
        assert_eq!((at(4, 20), at(6, 21)), (Some(5_000_000), Some(5_000_000)));
        assert_eq!((at(6, 22), at(0, 7)), (None, None));
    }

    #[test]
    fn mistakes_are_named() {
        let why = |text: &str| text.parse::<RateTimetable>().unwrap_err();
        assert_eq!(why("8,1M"), TimetableError::Time("8".to_owned()));
        assert_eq!(why("24:00,1M"), TimetableError::Time("24:00".to_owned()));
        assert_eq!(why("Mo-08:00,1M"), TimetableError::Time("Mo-08:00".to_owned()));
        assert_eq!(why("08:00,0"), TimetableError::Zero);
        assert_eq!(why("08:00,fast"), TimetableError::Rate);
        assert_eq!(why("08:00,1M 8:00,2M"), TimetableError::Twice("08:00".to_owned()));
        assert_eq!(why("x 08:00,1M"), TimetableError::Time("x".to_owned()));
        let long: String = (0..60).map(|m| format!("0:{m},1 1:{m},1 2:{m},1 ")).collect();
        assert_eq!(why(&long), TimetableError::TooLong);
    }

    proptest! {
        /// Whatever the text is, it is a timetable or an error; and at each second a rate holds until the entry after it.
        #[test]
        fn every_second_has_a_rate(text in "[0-9:,kMoff -]{0,40}", second in 0..2 * WEEK) {
            if let Ok(table) = text.parse::<RateTimetable>() {
                let (rate, left) = table.at(second);
                prop_assert!(left > 0 && left <= WEEK);
                prop_assert_eq!(table.at(second + left - 1).0, rate);
            }
        }
    }
}
