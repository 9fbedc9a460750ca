//! Rates and sizes.

use crate::parse::{self, ParseError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, iter, ops, str::FromStr, time::Duration};

/// A data rate in bits per second.
///
/// Reads and prints decimal multiples: `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`. Also reads `bps` spellings, and multiples
/// of bytes: `B/s`, `kB/s`, `MB/s`, `GB/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate of 0.
    pub const ZERO: Self = Self(0);

    /// Creates a rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Creates a rate of `mbps` million bits per second.
    pub fn from_mbps(mbps: f64) -> Self {
        Self((mbps * 1e6).round().max(0.0) as u64)
    }

    /// The rate at which `size` takes the time `took`; zero if `took` is zero.
    pub fn over(size: ByteSize, took: Duration) -> Self {
        let secs = took.as_secs_f64();
        if secs <= 0.0 { Self::ZERO } else { Self((size.0 as f64 * 8.0 / secs).round() as u64) }
    }

    /// The rate in bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// The rate in million bits per second.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time that `size` takes at this rate; [`Duration::MAX`] if the rate is zero.
    pub fn time_for(self, size: ByteSize) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = u128::from(size.0) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The size that this rate transfers in `d`, rounded down.
    pub fn bytes_in(self, d: Duration) -> ByteSize {
        let bits = u128::from(self.0) * d.as_nanos() / 1_000_000_000;
        ByteSize(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }
}

impl iter::Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        Self(rates.map(|r| r.0).fold(0, u64::saturating_add))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&parse::format_scaled(self.0, &parse::RATE_PRINT))
    }
}

impl FromStr for Rate {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse::scaled("rate", s, &parse::RATE_READ, "\"40 Mbit/s\"").map(Self)
    }
}

/// A number of bytes.
///
/// Reads decimal (`kB`, `MB`, `GB`, `TB`) and binary (`KiB`, `MiB`, `GiB`, `TiB`) multiples; prints decimal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// 0 bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `n` bytes.
    pub const fn from_bytes(n: u64) -> Self {
        Self(n)
    }

    /// The number of bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// The number of bits; saturates.
    pub const fn as_bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
}

impl ops::Add for ByteSize {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl ops::AddAssign for ByteSize {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl ops::Sub for ByteSize {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl iter::Sum for ByteSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, |a, b| a + b)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&parse::format_scaled(self.0, &parse::SIZE_PRINT))
    }
}

impl FromStr for ByteSize {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse::scaled("size", s, &parse::SIZE_READ, "\"64 kB\"").map(Self)
    }
}

macro_rules! serde_as_text {
    ($t:ty, $units:expr) => {
        impl Serialize for $t {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&parse::format_exactly(self.0, &$units))
            }
        }
        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(de::Error::custom)
            }
        }
    };
}
serde_as_text!(Rate, parse::RATE_PRINT);
serde_as_text!(ByteSize, parse::SIZE_PRINT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_and_print_with_their_unit() {
        for (text, bps) in [
            ("40 Mbit/s", 40_000_000),
            ("0.5Gbit/s", 500_000_000),
            ("9600 bit/s", 9_600),
            ("2 MB/s", 16_000_000),
            ("10Mbps", 10_000_000),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), Rate::from_bps(bps), "{text}");
        }
        assert_eq!(Rate::from_bps(40_000_000).to_string(), "40 Mbit/s");
        assert_eq!(Rate::from_bps(1_234_567).to_string(), "1.235 Mbit/s");
    }

    #[test]
    fn serialised_rates_round_trip() {
        for bps in [0, 1, 999, 1_234_567, 98_765_432_109, (1 << 53) - 1] {
            let text = parse::format_exactly(bps, &parse::RATE_PRINT);
            assert_eq!(text.parse::<Rate>().unwrap(), Rate::from_bps(bps), "{text}");
        }
    }

    #[test]
    fn a_number_without_unit_is_refused_with_an_example() {
        let e = "40".parse::<Rate>().unwrap_err().to_string();
        assert!(e.contains("40 Mbit/s"), "{e}");
        assert!("64".parse::<ByteSize>().is_err());
        assert!("-1 kB".parse::<ByteSize>().is_err());
        assert!("nan kB".parse::<ByteSize>().is_err());
        assert!("1e30 GB".parse::<ByteSize>().is_err());
    }

    #[test]
    fn rate_size_and_duration_convert() {
        let r = Rate::from_bps(8_000_000);
        assert_eq!(r.time_for(ByteSize::from_bytes(1_000_000)), Duration::from_secs(1));
        assert_eq!(r.bytes_in(Duration::from_millis(10)), ByteSize::from_bytes(10_000));
        assert_eq!(Rate::over(ByteSize::from_bytes(1_000_000), Duration::from_secs(1)), r);
        assert_eq!(Rate::ZERO.time_for(ByteSize::from_bytes(1)), Duration::MAX);
    }
}
