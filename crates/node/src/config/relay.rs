//! `[relay]`: relaying for other members.

use super::text;
use ipnet::IpNet;
use serde::Deserialize;
use std::{net::SocketAddr, time::Duration};
use thalweg_relay::{EgressPolicy, RelayConfig};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::{PortRange, Quota};

/// The relay's settings; see [`RelayConfig`] for the reasons of the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelaySection {
    /// Whether this node relays, if the roster gives it the role.
    pub enabled: bool,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The time limit of TLS and then of SOCKS5, each.
    #[serde(deserialize_with = "text::one")]
    pub handshake: Duration,
    /// The time limit for resolving a name and connecting.
    #[serde(deserialize_with = "text::one")]
    pub connect: Duration,
    /// How long a connection may make no progress in either direction.
    #[serde(deserialize_with = "text::one")]
    pub idle: Duration,
    /// The same, once one direction has ended.
    #[serde(deserialize_with = "text::one")]
    pub linger: Duration,
    /// How long sent data may go without any acknowledgement.
    #[serde(deserialize_with = "text::one")]
    pub black_hole: Duration,
    /// How long live connections may go on after shutdown begins.
    #[serde(deserialize_with = "text::one")]
    pub drain: Duration,
    /// Networks besides public addresses that it connects to.
    #[serde(deserialize_with = "text::list")]
    pub allow_to: Vec<IpNet>,
    /// Networks that it never connects to; they override `allow_to`.
    #[serde(deserialize_with = "text::list")]
    pub deny_to: Vec<IpNet>,
    /// Ports that it connects to.
    #[serde(deserialize_with = "text::list")]
    pub ports: Vec<PortRange>,
    /// What each member may use here.
    pub quota: QuotaSection,
}

/// What one member may use at one relay; an absent value sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaSection {
    /// The most connections at a time.
    pub connections: Option<u32>,
    /// The highest rate, both directions together.
    #[serde(deserialize_with = "text::option")]
    pub rate: Option<Rate>,
    /// The most bytes in a day, both directions together.
    #[serde(deserialize_with = "text::option")]
    pub bytes_per_day: Option<ByteSize>,
}

impl Default for RelaySection {
    fn default() -> Self {
        // The address does not matter here.
        let relay = RelayConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self {
            enabled: true,
            max_connections: relay.max_connections,
            handshake: relay.handshake,
            connect: relay.connect,
            idle: relay.idle,
            linger: relay.linger,
            black_hole: relay.black_hole,
            drain: relay.drain,
            allow_to: Vec::new(),
            deny_to: Vec::new(),
            ports: vec![PortRange::one(80), PortRange::one(443)],
            quota: QuotaSection::default(),
        }
    }
}

impl RelaySection {
    /// The configuration of a relay with these settings, for the mesh or listening at `listen`.
    pub fn to_relay(&self, listen: SocketAddr) -> RelayConfig {
        let egress = EgressPolicy::new(self.allow_to.clone(), self.ports.clone());
        RelayConfig {
            egress: egress.deny(self.deny_to.iter().copied()),
            quota: self.quota.into(),
            max_connections: self.max_connections,
            handshake: self.handshake,
            connect: self.connect,
            idle: self.idle,
            linger: self.linger,
            black_hole: self.black_hole,
            drain: self.drain,
            ..RelayConfig::new(listen)
        }
    }
}

impl From<QuotaSection> for Quota {
    fn from(q: QuotaSection) -> Self {
        Self { connections: q.connections, rate: q.rate, bytes_per_day: q.bytes_per_day }
    }
}
