//! Tests of channels on loopback: admission, what refused peers learn, and how channels end.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{io, sync::Arc};
use thalweg_net::{
    PrivateKey,
    channel::{AcceptError, Acceptor, Admission, Channel, ChannelError, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signer as _,
    mesh::{MAX_DEPTH, Preamble},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

/// Admits one key to all protocols, and everybody to `Join`.
#[derive(Debug)]
struct Only(NodeId);

impl Admission for Only {
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        protocol == Protocol::Join || *key == self.0
    }
}

/// An acceptor with key 1, for which key 2 is a member.
fn acceptor() -> Acceptor {
    let served = [Protocol::Api, Protocol::Relay, Protocol::Join];
    Acceptor::new(&key(1), Arc::new(Only(key(2).id())), &served).unwrap()
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, server) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

type Ends = (Result<Channel<TcpStream>, ChannelError>, Result<Channel<TcpStream>, AcceptError>);

/// The results at both ends when the owner of `client` asks the owner of `server` for `protocol`.
async fn meet(client: &PrivateKey, server: NodeId, protocol: Protocol) -> Ends {
    let (near, far) = tcp_pair().await;
    let connector = Connector::new(client).unwrap();
    tokio::join!(connector.connect(near, server, protocol), async { acceptor().accept(far).await })
}

async fn open() -> (Channel<TcpStream>, Channel<TcpStream>) {
    let (near, far) = meet(&key(2), key(1).id(), Protocol::Relay).await;
    (near.unwrap(), far.unwrap())
}

#[tokio::test]
async fn a_channel_carries_bytes_and_authenticates_both_ends() {
    let (mut near, mut far) = open().await;
    assert_eq!((near.peer(), near.protocol(), near.depth()), (key(1).id(), Protocol::Relay, 0));
    assert_eq!((far.peer(), far.protocol(), far.depth()), (key(2).id(), Protocol::Relay, 0));
    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let send = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let receive = async {
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        // The other direction stays open after close_notify.
        far.write_all(b"got it").await.unwrap();
        far.shutdown().await.unwrap();
        received
    };
    let (answer, received) = tokio::join!(send, receive);
    assert_eq!(answer, "got it");
    assert!(received == sent);
}

#[tokio::test]
async fn both_ends_export_the_same_secret() {
    let (near, far) = open().await;
    let mut secrets = [[0; 32]; 3];
    near.exporter_secret(b"probe", b"1", &mut secrets[0]).unwrap();
    far.exporter_secret(b"probe", b"1", &mut secrets[1]).unwrap();
    far.exporter_secret(b"probe", b"2", &mut secrets[2]).unwrap();
    assert_eq!(secrets[0], secrets[1]);
    assert_ne!(secrets[0], secrets[2]);
}

#[tokio::test]
async fn another_server_is_recognized_by_its_key() {
    let (near, far) = meet(&key(2), key(9).id(), Protocol::Relay).await;
    assert!(matches!(near, Err(ChannelError::WrongKey(id)) if id == key(9).id()), "{near:?}");
    assert!(matches!(far, Err(AcceptError::Handshake(_))), "{far:?}");
}

#[tokio::test]
async fn a_stranger_is_told_that_it_is_not_admitted() {
    let (near, far) = meet(&key(3), key(1).id(), Protocol::Relay).await;
    assert!(matches!(far, Err(AcceptError::Stranger(id)) if id == key(3).id()), "{far:?}");
    drop(far);
    match near {
        Err(e) => assert!(matches!(e, ChannelError::NotAdmitted), "{e:?}"),
        Ok(mut near) => {
            let error = near.read_u8().await.unwrap_err();
            assert!(ChannelError::is_not_admitted(&error), "{error:?}");
        }
    }
    let (near, far) = meet(&key(3), key(1).id(), Protocol::Join).await;
    assert!(near.is_ok() && far.is_ok(), "everybody may ask to join");
}

#[tokio::test]
async fn a_protocol_that_is_not_served_is_refused() {
    let (near, far) = meet(&key(2), key(1).id(), Protocol::Bond).await;
    let why = near.unwrap_err();
    assert!(matches!(why, ChannelError::NotServed(Protocol::Bond)), "{why:?}");
    let said = why.to_string();
    assert!(said.contains("`[bond]`") && !said.contains("Protocol"), "{said}");
    assert!(matches!(far, Err(AcceptError::Handshake(_))), "{far:?}");
}

#[tokio::test]
async fn a_cut_connection_is_an_error_and_not_an_end() {
    let (mut near, mut far) = open().await;
    near.write_all(b"half a ").await.unwrap();
    near.flush().await.unwrap();
    drop(near);
    let mut received = Vec::new();
    let error = far.read_to_end(&mut received).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(received, b"half a ");
}

#[tokio::test]
async fn the_preamble_of_a_relay_states_the_depth() {
    for depth in 1..=MAX_DEPTH + 1 {
        let (mut near, far) = tcp_pair().await;
        near.write_all(&Preamble { depth }.encode()).await.unwrap();
        let connector = Connector::new(&key(2)).unwrap();
        let connect = connector.connect(near, key(1).id(), Protocol::Relay);
        let (near, far) = tokio::join!(connect, async { acceptor().accept(far).await });
        match far {
            Ok(far) => assert_eq!((far.depth(), near.is_ok()), (depth, true)),
            Err(e) => {
                assert!(matches!(e, AcceptError::TooDeep(d) if d == MAX_DEPTH + 1), "{e:?}");
                assert!(near.is_err());
            }
        }
    }
}
