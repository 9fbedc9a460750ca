//! Tests that a node's port sends strangers nothing beyond the handshake's flight and an alert.
#![expect(clippy::unwrap_used, reason = "tests")]

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    sign::CertifiedKey,
    version::TLS13,
};
use std::{
    io::{self, Write as _},
    sync::Arc,
};
use thalweg_base::{budget::PeerKey, costly::Turns};
use thalweg_net::{
    PrivateKey,
    channel::{AcceptError, Acceptor, Admission, Protocol, Queue},
};
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The SubjectPublicKeyInfo of an Ed25519 key, and the PKCS #8 of its seed (RFC 8410 §4, §7).
const SPKI: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// The length of an alert's record after the handshake's flight: header, two bytes, their type, the tag.
const SEALED_ALERT: usize = 5 + 2 + 1 + 16;

fn id(seed: u8) -> NodeId {
    PrivateKey::from_seed(&[seed; 32]).id()
}

/// Admits only key 2.
#[derive(Debug)]
struct OnlyTwo;

impl Admission for OnlyTwo {
    fn admits(&self, key: &NodeId, _: Protocol) -> bool {
        *key == id(2)
    }
}

/// A client that accepts any server, like one that probes a port.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The client: the key that it presents, and the key that it signs with.
#[derive(Clone, Copy, Debug)]
enum Who {
    NoKey,
    Shows { shown: u8, signs: u8 },
}

fn client(who: Who, alpn: &[&[u8]]) -> ClientConnection {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match who {
        Who::NoKey => builder.with_no_client_auth(),
        Who::Shows { shown, signs } => {
            let pkcs8 = PrivatePkcs8KeyDer::from([PKCS8, &[signs; 32]].concat());
            let signer = provider.key_provider.load_private_key(pkcs8.into()).unwrap();
            let spki = [SPKI, id(shown).as_bytes()].concat();
            let key = Arc::new(CertifiedKey::new(vec![spki.into()], signer));
            builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
        }
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    ClientConnection::new(Arc::new(config), "node.example".try_into().unwrap()).unwrap()
}

/// The result of one attempt.
struct Met {
    /// All bytes that the server sent.
    sent: usize,
    /// The result of TLS at the client.
    client: Result<(), rustls::Error>,
    server: Result<NodeId, AcceptError>,
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn acceptor() -> Acceptor {
    let key = PrivateKey::from_seed(&[1; 32]);
    Acceptor::new(&key, Arc::new(OnlyTwo), &[Protocol::Api, Protocol::Relay]).unwrap()
}

/// Does the handshake, sends a SOCKS5 request at once, and counts every byte received until the end.
async fn probe(
    mut tls: ClientConnection,
    mut tcp: TcpStream,
) -> (usize, Result<(), rustls::Error>) {
    let (mut sent, mut client, mut asked) = (0, Ok(()), false);
    loop {
        if !tls.is_handshaking() && !asked {
            tls.writer()
                .write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50")
                .unwrap();
            tls.send_close_notify();
            asked = true;
        }
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).unwrap();
        }
        // A server that has closed the connection shows when reading.
        let _ = tcp.write_all(&out).await;
        let mut bytes = [0; 4096];
        let n = tcp.read(&mut bytes).await.unwrap();
        if n == 0 {
            return (sent, client);
        }
        sent += n;
        let mut rest = &bytes[..n];
        while !rest.is_empty() && client.is_ok() {
            tls.read_tls(&mut rest).unwrap();
            client = tls.process_new_packets().map(drop);
        }
    }
}

async fn meet(who: Who, alpn: &[&[u8]]) -> Met {
    let (near, far) = sockets().await;
    let serve = async {
        let channel = acceptor().accept(far).await?;
        let peer = channel.peer();
        drop(channel);
        Ok(peer)
    };
    let ((sent, client), server) = tokio::join!(probe(client(who, alpn), near), serve);
    Met { sent, client, server }
}

const RELAY: &[&[u8]] = &[b"thalweg/relay/1"];

/// The length of the handshake's flight that a member receives.
async fn flight() -> usize {
    let (near, far) = sockets().await;
    let serve = async {
        let mut channel = acceptor().accept(far).await.unwrap();
        // Reads everything and sends nothing.
        channel.read_to_end(&mut Vec::new()).await.unwrap();
        channel.peer()
    };
    let member = client(Who::Shows { shown: 2, signs: 2 }, RELAY);
    let ((sent, client), peer) = tokio::join!(probe(member, near), serve);
    assert_eq!((client, peer), (Ok(()), id(2)));
    sent
}

#[tokio::test]
async fn a_stranger_gets_only_the_flight_and_an_alert() {
    let flight = flight().await;
    let met = meet(Who::Shows { shown: 3, signs: 3 }, RELAY).await;
    assert!(matches!(met.server, Err(AcceptError::Stranger(key)) if key == id(3)));
    assert!(matches!(met.client, Err(rustls::Error::AlertReceived(_))), "{:?}", met.client);
    assert_eq!(met.sent, flight + SEALED_ALERT);
}

#[tokio::test]
async fn an_unproven_member_key_is_refused() {
    let flight = flight().await;
    let met = meet(Who::Shows { shown: 2, signs: 3 }, RELAY).await;
    assert!(matches!(met.server, Err(AcceptError::Handshake(_))), "{:?}", met.server);
    assert!(met.client.is_err());
    assert_eq!(met.sent, flight + SEALED_ALERT);
}

#[tokio::test]
async fn without_a_key_there_is_no_channel() {
    let flight = flight().await;
    let met = meet(Who::NoKey, RELAY).await;
    assert!(matches!(met.server, Err(AcceptError::Handshake(_))), "{:?}", met.server);
    assert!(met.client.is_err());
    assert!(met.sent <= flight + SEALED_ALERT, "{} bytes, the flight has {flight}", met.sent);
}

#[tokio::test]
async fn a_protocol_that_is_not_served_gets_an_alert_and_no_flight() {
    let unknown: &[&[u8]] = &[b"h2", b"thalweg/relay/2"];
    let reserved: &[&[u8]] = &[b"thalweg/bond/1"];
    for alpn in [unknown, reserved, &[]] {
        let met = meet(Who::Shows { shown: 2, signs: 2 }, alpn).await;
        assert!(met.client.is_err());
        assert_eq!(met.sent, 7, "header, level, description");
        assert!(matches!(met.server, Err(AcceptError::Handshake(_))), "{:?}", met.server);
    }
    let both: &[&[u8]] = &[b"h2", b"thalweg/api/1"];
    assert!(meet(Who::Shows { shown: 2, signs: 2 }, both).await.server.is_ok());
}

/// The server's answer to these first bytes, and its result.
async fn answer(first: &[u8]) -> (Vec<u8>, Result<(), AcceptError>) {
    let (mut near, far) = sockets().await;
    let client = async {
        near.write_all(first).await?;
        near.shutdown().await?;
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let serve = async { acceptor().accept(far).await.map(drop) };
    let (answer, server) = tokio::join!(client, serve);
    // A reset is no answer either.
    (answer.unwrap_or_default(), server)
}

#[tokio::test]
async fn bytes_that_are_not_tls_get_no_answer() {
    let words: [&[u8]; 7] = [
        b"",
        b"\x05\x01\x00",
        b"\x05\x01\x80",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"TW1\x00",
        b"TW1\xff",
        b"TW",
    ];
    for first in words {
        let (answer, server) = answer(first).await;
        assert!(answer.is_empty(), "{first:?} got {answer:?}");
        assert!(server.is_err(), "{first:?}");
    }
}

#[tokio::test]
async fn bad_handshakes_end_with_an_alert_at_most() {
    // A handshake record with nonsense, one that claims to be too long, and an early application record.
    let words: [&[u8]; 3] = [
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x17\x03\x03\x00\x02hi",
    ];
    for first in words {
        let (answer, server) = answer(first).await;
        assert!(answer.is_empty() || answer[..3] == [21, 3, 3] && answer.len() == 7, "{answer:?}");
        assert!(matches!(server, Err(AcceptError::Handshake(_))), "{first:?}: {server:?}");
    }
}

/// A ClientHello.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    client(Who::Shows { shown: 2, signs: 2 }, RELAY).write_tls(&mut bytes).unwrap();
    bytes
}

fn source(n: u8) -> PeerKey {
    PeerKey::Address([10, 0, 0, n].into())
}

/// Lets all tasks of this thread run until each of them waits.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Handshakes get turns by source, however many each source starts. The test counts turns and does not measure time.
#[tokio::test]
async fn an_honest_handshake_waits_for_at_most_one_of_each_other_source() {
    const SOURCES: u8 = 8;
    const EACH: usize = 32;
    let turns = Arc::new(Turns::new(1));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let held = turns.turn(source(0)).await;
    let begin = |n: u8| {
        let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
        let (mut near, far) = tokio::io::duplex(1 << 14);
        tokio::spawn(async move {
            near.write_all(&hello()).await.unwrap();
            // The first byte of the server's flight shows that its key work is done.
            near.read_u8().await.unwrap();
            order.lock().unwrap().push(n);
            // The client sends nothing more, and its handshake holds no turn.
            std::future::pending::<()>().await;
        });
        tokio::spawn(async move {
            let queue = Queue { turns: &turns, who: source(n), has_left: |_| false };
            acceptor().accept_in_turn(far, &queue).await.map(drop)
        });
    };
    (0..EACH).flat_map(|_| 1..=SOURCES).for_each(begin);
    settle().await;
    assert!(order.lock().unwrap().is_empty(), "key work without a turn");
    begin(99);
    settle().await;
    drop(held);
    let all = usize::from(SOURCES) * EACH + 1;
    while order.lock().unwrap().len() < all {
        tokio::task::yield_now().await;
    }
    let place = order.lock().unwrap().iter().position(|n| *n == 99).unwrap();
    assert!(place <= usize::from(SOURCES), "{place} before it");
}

#[tokio::test]
async fn no_key_work_is_done_for_a_peer_that_has_left() {
    let turns = Turns::new(1);
    let held = turns.turn(source(0)).await;
    let (mut near, far) = sockets().await;
    near.write_all(&hello()).await.unwrap();
    near.shutdown().await.unwrap();
    let has_left =
        |tcp: &TcpStream| thalweg_net::TcpInfo::of(tcp).is_ok_and(|info| info.peer_has_ended);
    let queue = Queue { turns: &turns, who: source(1), has_left };
    let serve = async {
        let refused = acceptor().accept_in_turn(far, &queue).await;
        assert!(matches!(refused, Err(AcceptError::Handshake(_))), "{refused:?}");
    };
    let wait = async {
        settle().await;
        drop(held);
        let mut sent = Vec::new();
        near.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"", "not a byte of the handshake's flight");
    };
    tokio::join!(serve, wait);
}
