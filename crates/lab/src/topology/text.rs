//! The text forms of quantities in a topology.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr, time::Duration};
use thalweg_units::{ParseError, format_duration, parse_duration, parse_probability};

/// A probability in 0..=1; as text `"1 %"` or a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Probability 0.
    pub const NEVER: Self = Self(0.0);
    /// Probability 1.
    pub const ALWAYS: Self = Self(1.0);

    /// The probability `p`, clamped to 0..=1; NaN counts as 0.
    pub fn new(p: f64) -> Self {
        Self(if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) })
    }

    /// The value in 0..=1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The conversion to percent and back may lose the last bit; then print the plain number.
        let percent = format!("{} %", self.0 * 100.0);
        let exact = parse_probability(&percent) == Ok(self.0);
        if exact { f.pad(&percent) } else { f.pad(&self.0.to_string()) }
    }
}

impl FromStr for Probability {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse_probability(s).map(Self)
    }
}

impl Serialize for Probability {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Probability {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ProbabilityVisitor)
    }
}

struct ProbabilityVisitor;

impl de::Visitor<'_> for ProbabilityVisitor {
    type Value = Probability;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probability such as \"1 %\" or 0.01")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Probability, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, p: f64) -> Result<Probability, E> {
        self.visit_str(&p.to_string())
    }

    fn visit_i64<E: de::Error>(self, p: i64) -> Result<Probability, E> {
        self.visit_str(&p.to_string())
    }

    fn visit_u64<E: de::Error>(self, p: u64) -> Result<Probability, E> {
        self.visit_str(&p.to_string())
    }
}

/// A duration as text from which it can be parsed back exactly.
pub(crate) fn exact_duration(d: Duration) -> String {
    let text = format_duration(d);
    if parse_duration(&text) == Ok(d) { text } else { format!("{} ns", d.as_nanos()) }
}

/// For `#[serde(with = "text::duration")]`.
pub(crate) mod duration {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&exact_duration(*d))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(d)?).map_err(de::Error::custom)
    }
}

/// For `#[serde(with = "text::optional_duration", default)]`.
pub(crate) mod optional_duration {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        d.map(exact_duration).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|t| parse_duration(&t)).transpose().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_probabilities_survive_a_round_trip_through_text() {
        for ns in [0, 1, 999, 1_000, 12_345_678, 1_000_000_000, 123_456_789_012] {
            let d = Duration::from_nanos(ns);
            assert_eq!(parse_duration(&exact_duration(d)).unwrap(), d);
        }
        for p in [0.0, 0.01, 0.003, 1.0 / 3.0, 0.07, 1.0] {
            assert_eq!(Probability(p).to_string().parse(), Ok(Probability(p)));
        }
        assert_eq!(Probability::new(0.01).to_string(), "1 %");
    }
}
