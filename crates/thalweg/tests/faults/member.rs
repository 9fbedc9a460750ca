//! The test as a member of the mesh: it dials as a host's command line does.

use super::host::Host;
use std::net::SocketAddr;
use thalweg_mesh::State;
use thalweg_net::{
    DialError, DialOptions, Dialer, Hop, Route, Stream,
    channel::{Channel, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{LegKind, Terms},
};
use tokio::net::TcpStream;

pub const BOTH: [LegKind; 2] = [LegKind::Sealed, LegKind::Open];

/// The daemon key of `host`.
pub fn node(host: &Host) -> NodeId {
    State::open(&host.state()).unwrap().node_key().unwrap().id()
}

/// The TLS connector with the client key of `host`.
pub fn connector(host: &Host) -> Connector {
    Connector::new(&State::open(&host.state()).unwrap().client_key().unwrap()).unwrap()
}

/// Connects from `host` to `to` through `relay`.
pub async fn dial(
    host: &Host,
    relay: &Host,
    leg: LegKind,
    to: &Destination,
) -> Result<Stream, DialError> {
    let terms = Terms { leg, ..Terms::default() };
    let hop = Hop::mesh(relay.address().parse().unwrap(), node(relay), terms);
    let dialer = Dialer::with_identity(DialOptions::default(), connector(host));
    dialer.dial(&Route::new(vec![hop]).unwrap(), to).await
}

/// Opens a channel from `host` to `relay`, in which nothing has been sent.
pub async fn channel(host: &Host, relay: &Host) -> Channel<TcpStream> {
    let tcp = TcpStream::connect(at(relay)).await.unwrap();
    connector(host).connect(tcp, node(relay), Protocol::Relay).await.unwrap()
}

pub fn at(relay: &Host) -> SocketAddr {
    relay.address().parse().unwrap()
}
