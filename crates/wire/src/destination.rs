//! The destination of a connection: a host, by name or address, and a port.

use crate::address_class::classify;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};
use thiserror::Error;

/// The longest accepted host name, in bytes (RFC 1035 §2.3.4; SOCKS5 allows 255).
pub const MAX_NAME: usize = 253;

/// A host: an address, or a name that the connecting node resolves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
    /// A name of 1..=[`MAX_NAME`] bytes of visible ASCII without `:/@[]`, which is not an address.
    ///
    /// Names are opaque: labels are not split, and case is kept.
    Name(Box<str>),
}

impl Host {
    /// Parses an address, or else a name.
    ///
    /// An IPv6 address may be in brackets.
    ///
    /// # Errors
    /// [`DestinationError::Name`] if the text is neither.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(ip) = bare {
            return ip.parse().map(Self::Ip).map_err(|_| DestinationError::Name(excerpt(text)));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        Self::name(text)
    }

    /// Whether the host is local, so that the same text means another host, or none, elsewhere: this host, private
    /// networks, names without a dot, and names reserved for local use (RFC 6761, RFC 6762, RFC 8375).
    pub fn is_near(&self) -> bool {
        match self {
            Self::Ip(ip) => {
                let mapped = match ip {
                    IpAddr::V6(v6) => v6.to_ipv4_mapped(),
                    IpAddr::V4(_) => None,
                };
                classify(mapped.map_or(*ip, IpAddr::V4)).is_some()
            }
            Self::Name(name) => {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let local = [".localhost", ".local", ".internal", ".home.arpa", ".test"];
                !name.contains('.') || local.iter().any(|end| name.ends_with(end))
            }
        }
    }

    fn name(text: &str) -> Result<Self, DestinationError> {
        let good = |b: u8| b.is_ascii_graphic() && !b":/@[]".contains(&b);
        if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(good) {
            return Ok(Self::Name(text.into()));
        }
        Err(DestinationError::Name(excerpt(text)))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.pad(name),
        }
    }
}

/// A host and a TCP port; reads and prints as `www.example:80`, `10.0.0.1:80`, `[::1]:80`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    pub host: Host,
    /// The TCP port, 1..=65535.
    pub port: u16,
}

/// The text is not `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// The host is neither a name nor an address; contains the text, escaped and truncated.
    #[error("`{0}` is neither a host name nor an address")]
    Name(String),
    /// The port is missing, zero, or not a number up to 65535; contains the text, escaped and truncated.
    #[error("`{0}` needs a port from 1 to 65535 at its end, as in `host:1080` or `[::1]:1080`")]
    Port(String),
}

/// Makes `text` safe to print: at most 64 characters, escaped.
fn excerpt(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

impl Destination {
    /// Creates a destination from a name or address and a port.
    ///
    /// # Errors
    /// [`DestinationError`] if the host is neither a name nor an address, or the port is zero.
    pub fn new(host: &str, port: u16) -> Result<Self, DestinationError> {
        let host = Host::parse(host)?;
        if port == 0 {
            Err(DestinationError::Port(format!("{host}:0")))
        } else {
            Ok(Self { host, port })
        }
    }

    /// The socket address; `None` if the host is a name.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(a: SocketAddr) -> Self {
        Self { host: Host::Ip(a.ip()), port: a.port() }
    }
}

impl FromStr for Destination {
    type Err = DestinationError;
    fn from_str(s: &str) -> Result<Self, DestinationError> {
        let port_error = || DestinationError::Port(excerpt(s));
        let (host, port) = s.rsplit_once(':').ok_or_else(port_error)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(port_error());
        }
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|p| digits && *p > 0).ok_or_else(port_error)?;
        Self::new(host, port)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => f.pad(&SocketAddr::new(*ip, self.port).to_string()),
            Host::Name(name) => f.pad(&format!("{name}:{}", self.port)),
        }
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_round_trip() {
        for text in ["www.example:80", "10.0.0.1:1080", "[::1]:443", "a_b:1", "[fd54:1::2]:65535"] {
            let to: Destination = text.parse().unwrap();
            assert_eq!(to.to_string(), text);
        }
        let v6: Destination = "[::1]:443".parse().unwrap();
        assert_eq!(v6.address(), Some("[::1]:443".parse().unwrap()));
        assert_eq!("www.example:80".parse::<Destination>().unwrap().address(), None);
    }

    #[test]
    fn local_hosts_are_near() {
        let is_near = |text: &str| Host::parse(text).unwrap().is_near();
        for near in
            ["printer", "nas.LOCAL.", "a.localhost", "10.1.2.3", "::ffff:127.0.0.1", "fe80::1"]
        {
            assert!(is_near(near), "{near}");
        }
        for far in ["www.example.org", "local.example", "192.0.3.1", "2606:4700::1"] {
            assert!(!is_near(far), "{far}");
        }
    }

    #[test]
    fn invalid_destinations_are_refused_with_the_reason() {
        for text in ["", "host", "host:", "host:0", "host:65536", "host:+1", "::1:80", "::1"] {
            let error = text.parse::<Destination>().unwrap_err();
            assert!(matches!(error, DestinationError::Port(_)), "{text}: {error}");
        }
        for text in [":80", "[::1:80", "[host]:80", "a b:80", "u@h:80", "h/:80", "é.example:80"] {
            let error = text.parse::<Destination>().unwrap_err();
            assert!(matches!(error, DestinationError::Name(_)), "{text}: {error}");
        }
        let long = format!("{}:80", "a".repeat(254));
        assert!(long.parse::<Destination>().unwrap_err().to_string().len() < 120);
        assert!(Destination::new(&"a".repeat(253), 80).is_ok());
        assert!(Destination::new("host", 0).is_err());
    }
}
