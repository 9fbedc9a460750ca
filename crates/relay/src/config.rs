//! The settings of a relay, with their defaults and the reasons for them.

use super::{
    egress::EgressPolicy,
    resolver::{Resolver, SystemResolver},
};
use ipnet::IpNet;
use std::{net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_net::liveness::Limits;
use thalweg_wire::mesh::Quota;
use thiserror::Error;

/// The settings of a [`super::Relay`] or a [`super::MeshRelay`].
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The clients it serves. If empty, it serves only this host, and `listen` must be loopback.
    pub allow_from: Vec<IpNet>,
    /// The destinations that it connects to.
    pub egress: EgressPolicy,
    /// The resolver of names; the system's by default.
    pub resolver: Arc<dyn Resolver>,
    /// The quota of each member at this relay, in addition to the mesh's rules; only for [`super::MeshRelay`].
    pub quota: Quota,
    /// The most connections at a time, [`RelayConfig::MAX_CONNECTIONS`] by default. Further ones wait unaccepted.
    pub max_connections: usize,
    /// The timeout for a client's SOCKS5 messages: 10 s, five round trips of the slowest satellite path.
    pub handshake: Duration,
    /// The timeout for name resolution and connecting together: 10 s, as in [`thalweg_net::DialOptions`].
    pub connect: Duration,
    /// The longest time without a byte moved or acknowledged in either direction and with nothing waiting to be sent:
    /// 10 min, twice as long as a web server keeps a connection.
    pub idle: Duration,
    /// The same limit once one direction has ended: 60 s, so that no leg stays half-closed for ever.
    pub linger: Duration,
    /// The longest time in which sent data gets no acknowledgement: 30 s. Then the peer counts as gone.
    pub black_hole: Duration,
    /// The time that live connections have to finish on shutdown: 30 s. Then they are reset.
    pub drain: Duration,
}

/// An error in the settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Other hosts can reach the listener, and no clients are listed.
    #[error("{0} is reachable from other hosts, and no clients are named")]
    OpenListener(SocketAddr),
    /// `max_connections` is zero.
    #[error("at least one connection must be allowed")]
    NoConnections,
}

/// An error of [`parse_cidr`]: the text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a network: write `10.0.0.0/8`, `fd54::/16`, or one address")]
pub struct CidrError(String);

/// Parses a network in CIDR form, or a single address as the network that contains only it.
///
/// # Errors
/// [`CidrError`].
pub fn parse_cidr(text: &str) -> Result<IpNet, CidrError> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    let net = text.parse().or_else(|_| one());
    net.map_err(|_| CidrError(text.chars().take(64).flat_map(char::escape_debug).collect()))
}

impl RelayConfig {
    /// The default of `max_connections`. These connections take 8,192 descriptors (two each), and at most 512 MiB of
    /// buffers (two of 64 KiB each).
    pub const MAX_CONNECTIONS: usize = 4096;

    /// The default settings, with this address to listen on.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            allow_from: Vec::new(),
            egress: EgressPolicy::new(Vec::new(), Vec::new()),
            resolver: Arc::new(SystemResolver),
            quota: Quota::default(),
            max_connections: Self::MAX_CONNECTIONS,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            linger: Duration::from_secs(60),
            black_hole: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.max_connections == 0 {
            return Err(ConfigError::NoConnections);
        }
        // `to_canonical` makes ::ffff:127.0.0.1 loopback, and ::ffff:0.0.0.0 not.
        if self.allow_from.is_empty() && !self.listen.ip().to_canonical().is_loopback() {
            return Err(ConfigError::OpenListener(self.listen));
        }
        Ok(())
    }

    /// The most connections of one member if no quota says otherwise: a quarter of `max_connections`, so that one
    /// member leaves room for others, but at least 16 (or all, if `max_connections` is lower).
    pub fn connections_per_member(&self) -> u32 {
        let share = (self.max_connections / 4).max(16).min(self.max_connections);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// The limits after which a connection is given up.
    pub fn limits(&self) -> Limits {
        Limits { idle: self.idle, linger: self.linger, black_hole: self.black_hole }
    }

    /// Whether a client at this address is served. Connections of other clients are closed without a reply.
    pub fn admits(&self, client: IpAddr) -> bool {
        // A dual-stack listener sees IPv4 clients as mapped addresses.
        let client = client.to_canonical();
        match self.allow_from.is_empty() {
            true => client.is_loopback(),
            false => self.allow_from.iter().any(|net| net.contains(&client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, allow: &[&str]) -> RelayConfig {
        let mut config = RelayConfig::new(listen.parse().unwrap());
        config.allow_from = allow.iter().map(|t| t.parse().unwrap()).collect();
        config
    }

    #[test]
    fn a_listener_beyond_loopback_needs_its_clients_named() {
        for open in ["0.0.0.0:1080", "[::]:1080", "10.0.0.1:0", "[::ffff:0.0.0.0]:1080"] {
            let address = open.parse().unwrap();
            assert_eq!(config(open, &[]).check(), Err(ConfigError::OpenListener(address)));
            assert_eq!(config(open, &["10.0.0.0/8"]).check(), Ok(()));
        }
        for closed in ["127.0.0.1:1080", "[::1]:0", "127.9.9.9:1"] {
            assert_eq!(config(closed, &[]).check(), Ok(()));
        }
    }

    #[test]
    fn networks_are_read_with_and_without_a_prefix() {
        assert_eq!(parse_cidr("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(parse_cidr("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        assert_eq!(parse_cidr("::1").unwrap().to_string(), "::1/128");
        for text in ["", "10.0.0.0/33", "host", "10.0.0/8", "::1/129"] {
            assert!(parse_cidr(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_named_clients_are_served() {
        let named = config("0.0.0.0:1080", &["10.1.0.0/16", "fd54:1::/64"]);
        for (client, served) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd54:1::9", true),
            ("fd54:2::9", false),
            ("127.0.0.1", false),
            ("::1", false),
        ] {
            assert_eq!(named.admits(client.parse().unwrap()), served, "{client}");
        }
        let local = config("127.0.0.1:1080", &[]);
        assert!(local.admits("127.0.0.1".parse().unwrap()));
        assert!(!local.admits("10.0.0.1".parse().unwrap()));
    }
}
