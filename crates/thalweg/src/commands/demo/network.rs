//! The demonstration's network: eight hosts, with paths like those between PlanetLab sites.
//!
//! The direct path is long, narrow and a little lossy; of six relays one is far
//! better, one better, one has a wide link that loses too much for TCP, and three
//! are worse. The seed is fixed, so that every run meets the same losses.

use thalweg_lab::topology::{Resolved, Topology, TopologyError};
use thalweg_units::Rate;

/// The host that downloads.
pub const CLIENT: &str = "client";
/// The host that serves.
pub const SERVER: &str = "server";
/// The hosts that relay.
pub const RELAYS: [&str; 6] = ["relay1", "relay2", "relay3", "relay4", "relay5", "relay6"];

/// Rates are those of the narrowest link of a path, delays one way. Direct: UKAIRO §4
/// looks for detours of paths below 40 Mbit/s; most of its direct paths have 5 to 20.
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

/// Every path crosses the access links of its ends, so that paths share them.
///
/// # Errors
/// Never, while the text above is right.
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
    Topology::from_toml(&text)
}

/// What the links let through from the server to the client, directly or by a relay:
/// the narrowest link of all.
pub fn physical_limit(network: &Resolved, relay: Option<&str>) -> Option<Rate> {
    let interface = |host| network.interface_named(host).ok();
    let leg = |from, to| network.physical_limit(interface(from)?, interface(to)?);
    match relay {
        None => leg(SERVER, CLIENT),
        Some(relay) => Some(leg(SERVER, relay)?.min(leg(relay, CLIENT)?)),
    }
}
