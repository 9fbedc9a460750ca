//! Converts the settings file to the daemon's settings.

use super::parts::Parts;
use crate::commands::uplinks;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::{DialOptions, Dialer, SocketOptions, channel::Connector};
use thalweg_node::{
    config::{ApiSection, Config},
    daemon::{ApiConfig, DaemonConfig, HandshakeLimits, LocalRoutes, SocksConfig},
};
use thalweg_relay::RelayConfig;
use thalweg_wire::mesh::Member;
use thalweg_wire::mesh::PORT;

/// Descriptors for everything but connections: standard streams, the runtime, name lookups.
const OTHER_DESCRIPTORS: u64 = 128;

/// The timeout of one route for a local program's connection: half of the time that a program waits, so that the next
/// route gets its chance.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(5);

/// The daemon's settings.
///
/// # Errors
/// If TLS refuses the node's key; not expected.
pub fn daemon(
    config: &Config,
    listen: &[SocketAddr],
    state: &State,
    parts: &Parts,
) -> anyhow::Result<DaemonConfig> {
    let listen = match parts.serves_others() || serves_members(config) {
        true => listen_addresses(config, listen, parts.member().as_ref()),
        // No other host has a reason to connect.
        false => Vec::new(),
    };
    Ok(DaemonConfig {
        listen,
        riding: parts.carrier_address(),
        handshake: config.relay.handshake,
        limits: HandshakeLimits::default(),
        drain: config.relay.drain,
        metrics: config.metrics.listen,
        socket: state.socket(),
        api: api(config, state),
        socks: socks(config, parts, state)?,
    })
}

/// Whether the settings give other members a reason to connect to this node.
pub fn serves_members(config: &Config) -> bool {
    let files = !config.files.offer.is_empty() || !config.files.accept.is_empty();
    let stream = &config.stream;
    let streams = stream.relay || !stream.subscribe.is_empty() || !stream.publish.is_empty();
    files || streams || !config.drop_box.is_empty() || config.carrier.enabled
}

/// The settings of the relay in a node that listens at these addresses: it connects to none of the node's own ports.
pub fn relay(config: &Config, listen: &[SocketAddr]) -> RelayConfig {
    let first = listen.first().copied();
    let mut relay = config.relay.to_relay(first.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()));
    let own = listen.iter().copied().chain(config.socks.listen);
    let own = own.chain(config.metrics.listen).chain(config.api.listen.address());
    relay.egress = relay.egress.with_admin(own);
    relay
}

fn api(config: &Config, state: &State) -> Option<ApiConfig> {
    let listen = config.api.listen.address()?;
    // A second node on a host finds the default port taken, and runs without it.
    let is_optional = config.api == ApiSection::default();
    Some(ApiConfig { listen, is_optional, token_file: state.api_token_file() })
}

/// The addresses to listen at: the given ones, or else those in the settings. If both are missing, the port is the one
/// in the roster.
fn listen_addresses(
    config: &Config,
    given: &[SocketAddr],
    member: Option<&Member>,
) -> Vec<SocketAddr> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let told =
        member.and_then(|m| m.dialled_addresses().next()).map_or(PORT, |address| address.port);
    let unsaid = config.listen == Config::default().listen;
    let port = |mut at: SocketAddr| {
        at.set_port(told);
        at
    };
    match unsaid {
        true => config.listen.iter().copied().map(port).collect(),
        false => config.listen.clone(),
    }
}

fn socks(config: &Config, parts: &Parts, state: &State) -> anyhow::Result<Option<SocksConfig>> {
    let Some(listen) = config.socks.listen else { return Ok(None) };
    let direct = RelayConfig { idle: config.socks.idle, ..config.relay.to_relay(listen) };
    if config.socks.via.is_empty() {
        return Ok(Some(SocksConfig::Direct(Box::new(direct))));
    }
    let options =
        DialOptions { deadline: ROUTE_TIMEOUT, socket: leg_options(), ..DialOptions::default() };
    let dialer = Dialer::with_identity(options, Connector::new(parts.key())?);
    let settings = config.interfaces.settings();
    let told = parts.interface_logger();
    let bonds = uplinks::track_bonds(uplinks::bonding(dialer.clone(), settings, state, told)?);
    let dialer = dialer.with_carrier(Arc::new(bonds)).with_ride_network(parts.rides());
    let (via, terms, limits) = (config.socks.via.clone(), config.socks.terms(), direct.limits());
    let ways = Box::new(LocalRoutes { via, terms, dialer, limits });
    Ok(Some(SocksConfig::Mesh { listen, ways }))
}

/// No TCP_USER_TIMEOUT: it would end uploads to receivers that pause; the liveness check of the pump replaces it.
/// Keepalive, which is on by default, detects black holes for connections that only receive.
fn leg_options() -> SocketOptions {
    SocketOptions { user_timeout: None, ..SocketOptions::default() }
}

/// Warns if the system allows fewer descriptors than the settings need.
pub fn warn_of_few_descriptors(limit: u64, connections: usize) {
    let room = limit.saturating_sub(OTHER_DESCRIPTORS) / 2;
    if (connections as u64) > room {
        note!(
            "thalweg: {limit} descriptors allow about {room} connections, fewer than \
             `relay.max_connections` ({connections}): more will wait; raise `ulimit -n`"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::NodeId;

    fn member(address: &str) -> Member {
        Member {
            name: "a".parse().unwrap(),
            node: None,
            client: NodeId::from_bytes([1; 32]),
            addresses: vec![address.parse().unwrap()],
            roles: [].into(),
            tags: [].into(),
        }
    }

    #[test]
    fn by_default_it_listens_at_the_port_in_the_roster() {
        let (config, given) = (Config::default(), "127.0.0.1:5".parse().unwrap());
        let ports = |config: &Config, given: &[SocketAddr], member: Option<&Member>| {
            listen_addresses(config, given, member).iter().map(SocketAddr::port).collect::<Vec<_>>()
        };
        let told = member("fra.example:9000");
        assert_eq!(ports(&config, &[], Some(&told)), [9000, 9000]);
        assert_eq!(ports(&config, &[], None), [PORT, PORT]);
        assert_eq!(ports(&config, &[given], Some(&told)), [5]);
        let said = Config { listen: vec!["0.0.0.0:7".parse().unwrap()], ..config };
        assert_eq!(ports(&said, &[], Some(&told)), [7]);
    }
}
