//! Rules by which an operator restricts members with a tag.

use super::Tag;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr};
use thalweg_units::{ByteSize, Rate};
use thiserror::Error;

/// A rule of the roster, for clients with a tag at relays with a tag. Deny overrides allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The tag of the clients; none: all clients.
    pub client: Option<Tag>,
    /// The tag of the relays; none: all relays.
    pub relay: Option<Tag>,
    /// Networks to which these clients are not connected.
    pub deny_to: Vec<IpNet>,
    /// The only ports to which these clients are connected; empty: all.
    pub ports: Vec<PortRange>,
    /// Tags to avoid: relays with one of them do not serve these clients, and no relay connects these clients to such a
    /// relay.
    pub avoid: BTreeSet<Tag>,
    /// The quota of each of these clients at one relay.
    pub quota: Quota,
}

impl Rule {
    /// Whether the rule applies to a client and a relay with these tags.
    pub fn applies(&self, client: &BTreeSet<Tag>, relay: &BTreeSet<Tag>) -> bool {
        self.client.as_ref().is_none_or(|tag| client.contains(tag))
            && self.relay.as_ref().is_none_or(|tag| relay.contains(tag))
    }
}

/// The quota of one client at one relay; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The maximum number of simultaneous connections.
    #[serde(default)]
    pub connections: Option<u32>,
    /// The maximum rate, both directions together.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// The maximum number of bytes per day, both directions together.
    #[serde(default)]
    pub bytes_per_day: Option<ByteSize>,
}

impl Quota {
    /// The tighter limit of each kind.
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

/// A range of TCP ports; reads and prints as `443` or `8000-8999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text is not a port range; contains the text, escaped and truncated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a port range: write one port (`443`), or two with the lower first (`8000-8999`)"
)]
pub struct PortRangeError(String);

impl PortRange {
    /// Creates the range of a single port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The ports of the range.
    pub const fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether the range contains `port`.
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
    fn only_valid_port_ranges_are_accepted() {
        assert_eq!("443".parse(), Ok(PortRange::one(443)));
        let range: PortRange = "8000-8999".parse().unwrap();
        assert!(range.contains(8000) && range.contains(8999) && !range.contains(7999));
        assert_eq!(range.to_string(), "8000-8999");
        for text in ["", "0", "-", "1-", "-1", "2-1", "65536", "+1", "1-2-3", "http"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_tighter_limits_of_two_quotas_apply() {
        let a = Quota { connections: Some(5), rate: None, ..Quota::default() };
        let rate = Some(Rate::from_bps(8));
        let b = Quota { connections: Some(9), rate, ..Quota::default() };
        assert_eq!(a.tightest(b), Quota { connections: Some(5), rate, bytes_per_day: None });
    }
}
