//! Durations on the command line: with a unit, or in seconds as with curl.

use std::time::Duration;
use thalweg_units::parse_duration;

/// Parses `5`, `0.5`, `5s` or `2 min`; zero is refused.
///
/// # Errors
/// The mistake, and how to write a duration.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let plain = text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let text = if plain { format!("{text} s") } else { text.to_owned() };
    match parse_duration(&text).map_err(|e| e.to_string())? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_seconds() {
        for (text, ms) in [("5", 5000), ("0.5", 500), ("250 ms", 250), ("2min", 120_000)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0 s", "-1", "x", "5 parsec", "1.2.3", "1e400"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
