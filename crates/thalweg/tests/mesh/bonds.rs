//! Bonds to a daemon, which accepts them at its only port.

use super::host::{Host, PATIENCE};
use std::{num::NonZeroU32, sync::Arc};
use thalweg_mesh::{Names, State};
use thalweg_net::{DialOptions, Dialer, Interface, channel::Connector};
use thalweg_uplinks::bond::{Bond, Readiness, Settings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

fn loopback() -> Interface {
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM);
    let socket = rustix::net::socket(family, kind, None).unwrap();
    let index = rustix::net::netdevice::name_to_index(socket, "lo").unwrap();
    let addresses = vec!["127.0.0.1".parse().unwrap()];
    Interface { addresses, ..Interface::new(NonZeroU32::new(index).unwrap(), "lo") }
}

/// A bond from `host`'s client to the founder.
fn bond(host: &Host) -> (Bond, Connector) {
    let state = State::open(&host.state()).unwrap();
    let identity = Connector::new(&state.client_key().unwrap()).unwrap();
    let (me, membership) = (state.mesh().unwrap().name, state.membership().unwrap());
    let roster = membership.current();
    let names = Names { roster: roster.as_deref().ok_or("no roster"), me: Some(&me) };
    let to = names.node(&"fra".parse().unwrap()).unwrap();
    let dialer = Dialer::with_identity(DialOptions::default(), identity.clone());
    let by = Arc::new(|_: &_| Ok(vec![loopback()]));
    (Bond::with_interfaces(dialer, to, Settings::default(), by).unwrap(), identity)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_a_daemon_bonds_to_a_node() {
    let fra = Host::founder();
    let mut runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let (bond, identity) = bond(&lap);
    let stream = timeout(PATIENCE, bond.open()).await.unwrap().unwrap();
    // The bond carries a channel as TCP does: the relay sees the member.
    let key = State::open(&fra.state()).unwrap().node_key().unwrap();
    let id = thalweg_wire::Signer::id(&key);
    let channel = identity.connect(stream, id, thalweg_net::channel::Protocol::Relay);
    let mut channel = timeout(PATIENCE, channel).await.unwrap().unwrap();
    channel.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    channel.flush().await.unwrap();
    // Invalid requests are closed, and logged with the member's name.
    timeout(PATIENCE, channel.read_to_end(&mut Vec::new())).await.unwrap().ok();
    assert!(runs.log_until("peer=lap").contains("127.0.0.1"));
    let links = bond.links();
    assert_eq!(links.len(), 1, "{links:?}");
    assert_eq!(links[0].interface.as_deref(), Some("lo"));
    assert!(links[0].sent > 0 && links[0].received > 0, "{links:?}");
    drop((channel, bond));
    runs.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_refuses_bonds_reports_it() {
    let fra = Host::founder();
    let _runs = fra.start_with("[bond]\nenabled = false\n", None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let (bond, _) = bond(&lap);
    let mut readiness = bond.readiness();
    let refused = |readiness: &Readiness| readiness.refused.is_some();
    let readiness = timeout(PATIENCE, readiness.wait_for(refused)).await.unwrap().unwrap();
    assert_eq!((readiness.live, readiness.most), (0, 0));
}
