//! The demonstration's network: eight hosts with rates, delays and losses chosen by hand so that every kind of relay
//! occurs. (Experiments draw their networks from the paper's figures instead.)
//!
//! The direct path is long, narrow and slightly lossy. Of the six relays one is far better, one is better, one has a
//! wide link that loses too much for TCP, and three are worse. The seed is fixed, so that every run has the same
//! losses.

use super::mesh::ORACLE;
use std::time::Duration;
use thalweg_lab::topology::{Resolved, Topology, TopologyError};
use thalweg_units::Rate;

/// The host that downloads.
pub const CLIENT: &str = "client";
/// The host that serves.
pub const SERVER: &str = "server";
/// The hosts that relay.
pub const RELAYS: [&str; 6] = ["relay1", "relay2", "relay3", "relay4", "relay5", "relay6"];

/// Rates are those of the narrowest link of a path, delays are one way. UKAIRO §4 looks for detours of direct paths
/// below 40 Mbit/s; most of its direct paths have 5 to 20.
const TOPOLOGY: &str = r#"
seed = 20
congestion = "cubic"

[host.client]
[host.server]
[host.relay1]
[host.relay2]
[host.relay3]
[host.relay4]
[host.relay5]
[host.relay6]

[link.client-access]
rate = "100 Mbit/s"
delay = "2 ms"
queue = "1 BDP of 60 ms"
[link.server-access]
rate = "200 Mbit/s"
delay = "1 ms"
queue = "1 BDP of 60 ms"

# Between relays only tokens and rosters travel.
[link.backbone]
rate = "100 Mbit/s"
delay = "20 ms"

[link.direct]
rate = "15 Mbit/s"
delay = "70 ms"
loss = "0.005 %"

[link.c1]
rate = "30 Mbit/s"
delay = "25 ms"
[link.s1]
rate = "8 Mbit/s"
delay = "40 ms"

[link.c2]
rate = "90 Mbit/s"
delay = "20 ms"
[link.s2]
rate = "40 Mbit/s"
delay = "35 ms"

[link.c3]
rate = "80 Mbit/s"
delay = "20 ms"
[link.s3]
rate = "70 Mbit/s"
delay = "25 ms"

[link.c4]
rate = "6 Mbit/s"
delay = "15 ms"
[link.s4]
rate = "60 Mbit/s"
delay = "50 ms"

[link.c5]
rate = "50 Mbit/s"
delay = "30 ms"
loss = "1 %"
[link.s5]
rate = "90 Mbit/s"
delay = "30 ms"

[link.c6]
rate = "20 Mbit/s"
delay = "60 ms"
[link.s6]
rate = "5 Mbit/s"
delay = "45 ms"
"#;

/// The topology. Every path crosses the access links of its ends, so paths share them.
///
/// # Errors
/// Never, while the text above is valid.
pub fn topology() -> Result<Topology, TopologyError> {
    let mut text = String::from(TOPOLOGY);
    let mut path = |from: &str, to: &str, links: &str| {
        text += &format!("[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [{links}]\n");
    };
    path(CLIENT, SERVER, r#""client-access", "direct", "server-access""#);
    for (index, relay) in RELAYS.iter().enumerate() {
        let number = index + 1;
        path(CLIENT, relay, &format!(r#""client-access", "c{number}""#));
        path(relay, SERVER, &format!(r#""s{number}", "server-access""#));
    }
    for relay in &RELAYS[1..] {
        path(relay, ORACLE, r#""backbone""#);
    }
    Topology::from_toml(&text)
}

/// The properties of a path's links, independent of any download.
#[derive(Debug, Clone, Default)]
pub struct PathProperties {
    /// The rate of the narrowest link from the server to the client.
    pub limit: Option<Rate>,
    /// Round-trip times without queues, one per leg from the client on; each leg is a TCP connection of its own.
    pub rtts: Vec<Duration>,
    /// The share of packets that are lost between server and client, over all legs.
    pub loss: Option<f64>,
}

/// The path from the server to the client, directly or through a relay.
pub fn course(network: &Resolved, relay: Option<&str>) -> PathProperties {
    let legs = match relay {
        None => vec![(SERVER, CLIENT)],
        Some(relay) => vec![(relay, CLIENT), (SERVER, relay)],
    };
    let links = legs.iter().flat_map(|leg| links(network, *leg));
    let kept: f64 = links.map(|link| 1.0 - network.links[link].config.loss.mean()).product();
    PathProperties {
        limit: legs.iter().filter_map(|leg| of_leg(network, *leg, Resolved::physical_limit)).min(),
        rtts: legs.iter().filter_map(|leg| of_leg(network, *leg, Resolved::rtt)).collect(),
        loss: Some(1.0 - kept),
    }
}

/// The maximum rate of all paths together: that of the links before the client that every path crosses, but at most the
/// sum of the paths' own limits.
pub fn limit_of_all(network: &Resolved) -> Option<Rate> {
    let paths = || std::iter::once(None).chain(RELAYS.into_iter().map(Some));
    let limits = paths().filter_map(|relay| course(network, relay).limit);
    let sum = Rate::from_mbps(limits.map(Rate::as_mbps).sum());
    let last_legs = || paths().map(|relay| links(network, (relay.unwrap_or(SERVER), CLIENT)));
    let shared = links(network, (SERVER, CLIENT)).into_iter();
    let shared = shared.filter(|link| last_legs().all(|leg| leg.contains(link)));
    shared.filter_map(|link| network.links[link].config.peak_rate()).chain([sum]).min()
}

fn links(network: &Resolved, leg: (&str, &str)) -> Vec<usize> {
    of_leg(network, leg, |network, from, to| network.path_links(from, to).map(<[usize]>::to_vec))
        .unwrap_or_default()
}

fn of_leg<T>(
    network: &Resolved,
    (from, to): (&str, &str),
    of: impl Fn(&Resolved, usize, usize) -> Option<T>,
) -> Option<T> {
    let interface = |host| network.interface_named(host).ok();
    of(network, interface(from)?, interface(to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_sum_of_its_links() {
        let network = topology().unwrap().resolve().unwrap();
        let direct = course(&network, None);
        assert_eq!(direct.limit, Some(Rate::from_mbps(15.0)));
        assert_eq!(direct.rtts, [Duration::from_millis(146)]);
        let lossy = course(&network, Some("relay5"));
        assert_eq!(lossy.limit, Some(Rate::from_mbps(50.0)));
        assert_eq!(lossy.rtts, [64, 62].map(Duration::from_millis));
        assert!((lossy.loss.unwrap() - 0.01).abs() < 1e-12, "{:?}", lossy.loss);
    }

    #[test]
    fn all_paths_together_are_limited_by_the_link_they_share() {
        let network = topology().unwrap().resolve().unwrap();
        assert_eq!(limit_of_all(&network), Some(Rate::from_mbps(100.0)));
    }
}
