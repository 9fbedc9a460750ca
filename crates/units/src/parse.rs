//! Parsing and formatting of quantities with units.

use std::time::Duration;
use thiserror::Error;

/// Why a quantity cannot be parsed, with an example of a valid one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not a {what}: {why}; write it like {example}")]
pub struct ParseError {
    /// The kind of quantity: "rate", "size" …
    pub what: &'static str,
    pub text: String,
    /// What is wrong with the text.
    pub why: &'static str,
    /// An example of a valid text.
    pub example: &'static str,
}

type Units = [(&'static str, f64)];

pub(crate) const RATE_PRINT: [(&str, f64); 4] =
    [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
pub(crate) const RATE_READ: [(&str, f64); 12] = [
    ("Gbit/s", 1e9),
    ("Mbit/s", 1e6),
    ("kbit/s", 1e3),
    ("bit/s", 1.0),
    ("Gbps", 1e9),
    ("Mbps", 1e6),
    ("kbps", 1e3),
    ("bps", 1.0),
    ("GB/s", 8e9),
    ("MB/s", 8e6),
    ("kB/s", 8e3),
    ("B/s", 8.0),
];
pub(crate) const SIZE_PRINT: [(&str, f64); 5] =
    [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)];
pub(crate) const SIZE_READ: [(&str, f64); 9] = [
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1_024.0),
    ("B", 1.0),
];
const TIME_READ: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("h", 3_600e9),
    ("d", 86_400e9),
    ("days", 86_400e9),
];
const TIME_PRINT: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];

/// Splits `"40 Mbit/s"` into the number and the unit.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | '_');
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Parses `text`, which has one of `units`, as a whole number of the base unit.
///
/// # Errors
/// [`ParseError`] if the number or the unit is missing or unknown, or the value is negative or above 9.2e18.
pub(crate) fn scaled(
    what: &'static str,
    text: &str,
    units: &Units,
    example: &'static str,
) -> Result<u64, ParseError> {
    let fail = |why| ParseError { what, text: text.to_owned(), why, example };
    let (number, unit) = split(text);
    number.parse::<f64>().map_err(|_| fail("no number"))?;
    if unit.is_empty() {
        return Err(fail("the unit is missing"));
    }
    let (_, factor) =
        units.iter().find(|(name, _)| *name == unit).ok_or_else(|| fail("unknown unit"))?;
    times(number, *factor).ok_or_else(|| fail("out of range"))
}

/// The largest accepted value, about 2^63: far beyond any link or disk, and two such values can be added in a u64.
const LARGEST: u64 = 9_200_000_000_000_000_000;

/// Multiplies `number` by `factor` and rounds; `None` if the result is negative or above [`LARGEST`].
///
/// Whole numbers are not converted to `f64`, which would lose the last digits of those above 2^53.
fn times(number: &str, factor: f64) -> Option<u64> {
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor as u64),
        Err(_) => {
            let value = (number.parse::<f64>().ok()? * factor).round();
            (0.0..=LARGEST as f64).contains(&value).then_some(value as u64)
        }
    };
    value.filter(|v| *v <= LARGEST)
}

/// Formats a value with the largest unit for which the number is at least 1, and at most three decimals.
pub(crate) fn format_scaled(value: u64, units: &Units) -> String {
    let (name, factor) = largest_unit(value, units);
    format!("{} {name}", decimal(value, factor, 3))
}

/// As [`format_scaled`], but with all significant decimals, so that parsing returns the same value.
///
/// Uses the smallest unit if decimals are not exact (some values above 2^51).
pub(crate) fn format_exactly(value: u64, units: &Units) -> String {
    let (name, factor) = largest_unit(value, units);
    let number = decimal(value, factor, 12);
    match (times(&number, factor) == Some(value), units.last()) {
        (false, Some((smallest, _))) => format!("{value} {smallest}"),
        _ => format!("{number} {name}"),
    }
}

/// The largest unit for which the number is at least 1; the smallest unit for 0.
fn largest_unit(value: u64, units: &Units) -> (&'static str, f64) {
    let fits = units.iter().find(|(_, factor)| value as f64 >= *factor);
    fits.or(units.last()).copied().unwrap_or(("", 1.0))
}

fn decimal(value: u64, factor: f64, decimals: usize) -> String {
    let number = format!("{:.decimals$}", value as f64 / factor);
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parses a duration with a unit (`ns`, `us`/`µs`, `ms`, `s`, `min`, `h`, `d`/`days`).
///
/// # Errors
/// [`ParseError`] if the number or the unit is missing, unknown, negative or too large.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    scaled("duration", text, &TIME_READ, "\"5 ms\"").map(Duration::from_nanos)
}

/// Formats a duration so that [`parse_duration`] returns the same duration, to the nanosecond.
///
/// The text of a duration above 9.2e18 ns (291 years) is refused by [`parse_duration`].
pub fn format_duration(d: Duration) -> String {
    format_exactly(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX), &TIME_PRINT)
}

/// Parses a probability: `"1 %"`, `"0.5%"`, or a plain number in 0..=1.
///
/// # Errors
/// [`ParseError`] if the text is not a number in the range.
pub fn parse_probability(text: &str) -> Result<f64, ParseError> {
    let fail = |why| ParseError {
        what: "probability",
        text: text.to_owned(),
        why,
        example: "\"1 %\" or 0.01",
    };
    let trimmed = text.trim();
    let (number, scale) = match trimmed.strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (trimmed, 1.0),
    };
    let value = number.parse::<f64>().map_err(|_| fail("no number"))? / scale;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(fail("not between 0 and 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_round_trip() {
        for (text, ns) in [
            ("1.234567891 s", 1_234_567_891),
            ("5 ms", 5_000_000),
            ("1.5s", 1_500_000_000),
            ("50 us", 50_000),
        ] {
            let d = parse_duration(text).unwrap();
            assert_eq!(d, Duration::from_nanos(ns), "{text}");
            assert_eq!(parse_duration(&format_duration(d)).unwrap(), d);
        }
        assert!(parse_duration("5").is_err());
        assert!(parse_duration("300000 d").is_err(), "out of range");
        assert!(parse_duration("-5 ms").is_err());
    }

    #[test]
    fn probabilities_are_percentages_or_plain_numbers() {
        assert_eq!(parse_probability("1 %").unwrap(), 0.01);
        assert_eq!(parse_probability("0.25").unwrap(), 0.25);
        assert!(parse_probability("101 %").is_err());
        assert!(parse_probability("x").is_err());
    }

    proptest! {
        /// The shift makes small values as likely as large ones.
        #[test]
        fn exactly_formatted_values_round_trip(bits: u64, shift in 0..64u32) {
            let value = (bits >> shift).min(LARGEST);
            let d = Duration::from_nanos(value);
            prop_assert_eq!(parse_duration(&format_duration(d)), Ok(d));
            for (print, read) in [(&RATE_PRINT[..], &RATE_READ[..]), (&SIZE_PRINT, &SIZE_READ)] {
                let text = format_exactly(value, print);
                prop_assert_eq!(scaled("value", &text, read, ""), Ok(value), "{}", text);
            }
        }

        /// No text causes a panic.
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}", digits in "[-+_.0-9e]{0,30} ?[a-zA-Z/]{0,6}") {
            for text in [text, digits] {
                if let Ok(value) = scaled("value", &text, &TIME_READ, "") {
                    prop_assert!(value <= LARGEST, "{text}");
                }
            }
        }
    }
}
