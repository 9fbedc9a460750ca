//! Serialises a duration as text with a unit: `#[serde(with = "thalweg_units::serde_duration")]`.
//!
//! For an `Option<Duration>` use [`option`]. Durations round-trip to the nanosecond.

use crate::parse::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serializer, de};
use std::time::Duration;

/// Serialises `d` as text, e.g. `"5 ms"`.
///
/// # Errors
/// Only those of the serializer.
pub fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&format_duration(*d))
}

/// Deserialises a duration from text with a unit.
///
/// # Errors
/// If the text has no number or no known unit.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(d)?).map_err(de::Error::custom)
}

/// Serialises an optional duration: `#[serde(default, with = "thalweg_units::serde_duration::option")]`.
///
/// Without `default` serde requires the key, even for an `Option`. Formats without a null (TOML) need
/// `skip_serializing_if = "Option::is_none"` as well.
pub mod option {
    use super::*;

    /// Serialises `Some(d)` as text, e.g. `"5 ms"`, and `None` as the format's null.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match d {
            Some(d) => s.serialize_some(&format_duration(*d)),
            None => s.serialize_none(),
        }
    }

    /// Deserialises a duration from text with a unit, or `None` from the format's null.
    ///
    /// # Errors
    /// If there is text without a number or a known unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|text| parse_duration(&text)).transpose().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Limits {
        #[serde(with = "crate::serde_duration")]
        idle: Duration,
        #[serde(default, with = "option", skip_serializing_if = "Option::is_none")]
        linger: Option<Duration>,
    }

    fn read(text: &str) -> Result<Limits, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn durations_are_text_with_their_unit_or_absent() {
        let (idle, linger) = (Duration::from_millis(1500), Duration::from_nanos(7));
        for (text, linger) in
            [(r#"{"idle":"1.5 s","linger":"7 ns"}"#, Some(linger)), (r#"{"idle":"1.5 s"}"#, None)]
        {
            let limits = Limits { idle, linger };
            assert_eq!(serde_json::to_string(&limits).unwrap(), text);
            assert_eq!(read(text), Ok(limits));
        }
        assert_eq!(read(r#"{"idle":"1.5 s","linger":null}"#), Ok(Limits { idle, linger: None }));
    }

    #[test]
    fn a_bare_number_is_refused_with_an_example() {
        for text in [r#"{"idle":"5"}"#, r#"{"idle":"5 s","linger":"5"}"#] {
            let error = read(text).unwrap_err();
            assert!(error.contains("the unit is missing") && error.contains("5 ms"), "{error}");
        }
        assert!(read(r#"{"idle":"5 s","linger":5}"#).is_err());
    }
}
