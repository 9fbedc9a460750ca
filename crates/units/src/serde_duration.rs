//! `#[serde(with = "thalweg_units::serde_duration")]`: a duration as text with its unit.

use crate::parse::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serializer, de};
use std::time::Duration;

/// Writes `d` as text, e.g. `"5 ms"`.
///
/// # Errors
/// Only the serializer's own.
pub fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&format_duration(*d))
}

/// Reads a duration from text with a unit.
///
/// # Errors
/// When the text has no number or no known unit.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(d)?).map_err(de::Error::custom)
}
