//! What an operator allows the members with a tag.

use super::Tag;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr};
use thalweg_units::{ByteSize, Rate};
use thiserror::Error;

/// A rule of the roster: for clients with a tag, at relays with a tag. Deny beats allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The clients that it is about; none: all.
    pub client: Option<Tag>,
    /// The relays at which it holds; none: all.
    pub relay: Option<Tag>,
    /// Networks that these clients are not connected to.
    pub deny_to: Vec<IpNet>,
    /// If not empty: the only ports that these clients are connected to.
    pub ports: Vec<PortRange>,
    /// Relays with one of these tags do not serve these clients, and no relay connects
    /// them to one.
    pub avoid: BTreeSet<Tag>,
    /// What each of these clients may use at one relay.
    pub quota: Quota,
}

impl Rule {
    /// Whether it is about a client with these tags at a relay with those.
    pub fn applies(&self, client: &BTreeSet<Tag>, relay: &BTreeSet<Tag>) -> bool {
        self.client.as_ref().is_none_or(|tag| client.contains(tag))
            && self.relay.as_ref().is_none_or(|tag| relay.contains(tag))
    }
}

/// What one client may use at one relay; `None`: no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Connections at a time.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Bytes a second, both directions together.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Bytes a day, both directions together.
    #[serde(default)]
    pub bytes_per_day: Option<ByteSize>,
}

impl Quota {
    /// The tighter of both, each part by itself.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, None) | (None, one) => one,
            }
        }
        Self {
            connections: least(self.connections, other.connections),
            rate: least(self.rate, other.rate),
            bytes_per_day: least(self.bytes_per_day, other.bytes_per_day),
        }
    }
}

/// TCP ports `first` to `last`; reads as `443` or `8000-8999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text is no port range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no port range: write one port (`443`) or two, the lower first (`8000-8999`)")]
pub struct PortRangeError(String);

impl PortRange {
    /// The one port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Its first port to its last.
    pub const fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether `port` is in it.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;
    fn from_str(s: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|&p| digits && p > 0)
        };
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(PortRangeError(s.chars().take(32).flat_map(char::escape_debug).collect())),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_read_exactly() {
        assert_eq!("443".parse(), Ok(PortRange::one(443)));
        let range: PortRange = "8000-8999".parse().unwrap();
        assert!(range.contains(8000) && range.contains(8999) && !range.contains(7999));
        assert_eq!(range.to_string(), "8000-8999");
        for text in ["", "0", "-", "1-", "-1", "2-1", "65536", "+1", "1-2-3", "http"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_tighter_part_of_two_quotas_holds() {
        let a = Quota { connections: Some(5), rate: None, ..Quota::default() };
        let rate = Some(Rate::from_bps(8));
        let b = Quota { connections: Some(9), rate, ..Quota::default() };
        assert_eq!(a.tightest(b), Quota { connections: Some(5), rate, bytes_per_day: None });
    }
}
