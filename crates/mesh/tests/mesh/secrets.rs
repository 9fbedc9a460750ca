//! Keying material that only the two ends of a channel have.

use crate::scene::{BEGIN, HandClock, at, id, key, mesh, roster, signed};
use std::{io, sync::Arc};
use thalweg_mesh::{Membership, MeshPeer};
use thalweg_net::{
    Peer as _,
    channel::{Acceptor, Channel, Connector, Protocol},
};
use thalweg_wire::Signer as _;
use tokio::net::{TcpListener, TcpStream};

fn membership() -> Membership {
    let membership = Membership::with_clock(mesh().id(), None, HandClock::at(BEGIN).clock());
    membership.offer(&signed(roster(1, &["a", "b"]))).unwrap();
    membership
}

/// A channel from `a` to `b`.
async fn channel(membership: &Membership) -> (Channel<TcpStream>, Channel<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admission = Arc::new(membership.clone());
    let acceptor = Acceptor::new(&key(2), admission, &[Protocol::Relay]).unwrap();
    let to = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (from, _) = listener.accept().await.unwrap();
    let connector = Connector::new(&key(1)).unwrap();
    let both = tokio::join!(connector.connect(to, id(2), Protocol::Relay), acceptor.accept(from));
    (both.0.unwrap(), both.1.unwrap())
}

fn secret(peer: &MeshPeer, label: &str, context: &str) -> [u8; 32] {
    let mut secret = [0; 32];
    peer.exporter_secret(label.as_bytes(), context.as_bytes(), &mut secret).unwrap();
    secret
}

#[tokio::test]
async fn both_ends_have_the_same_secrets_and_each_purpose_its_own() {
    let membership = membership();
    let peer = |seed| membership.peer(&id(seed), at(BEGIN)).unwrap();
    let (client, server) = channel(&membership).await;
    assert_eq!((client.peer(), server.peer()), (id(2), id(1)));
    let (server, client) =
        (peer(1).with_channel(&server).unwrap(), peer(2).with_channel(&client).unwrap());
    let probe = secret(&client, "probe", "1");
    assert_eq!(secret(&server, "probe", "1"), probe);
    assert_ne!(secret(&server, "probe", "2"), probe);
    assert_ne!(secret(&server, "prob", "e1"), probe);
    let (other, _) = channel(&membership).await;
    assert_ne!(secret(&peer(2).with_channel(&other).unwrap(), "probe", "1"), probe);
    let without = peer(1).exporter_secret(b"probe", b"1", &mut [0; 32]);
    assert_eq!(without.unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert!(!format!("{client:?}").contains(&format!("{probe:?}")));
}
