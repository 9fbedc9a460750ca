//! SOCKS5 (RFC 1928): the bytes of each reply.

use crate::scene::{Origin, Peer, Scene, text};
use std::net::SocketAddr;
use thalweg_wire::socks5::{Decoded, Reply, decode_reply, encode_connect};
use tokio::net::TcpListener;

/// Greets, asks, and returns the reply's bytes.
async fn ask(program: &mut Peer, request: &[u8]) -> Vec<u8> {
    program.send(b"\x05\x01\x00").await;
    assert_eq!(program.take(2).await, b"\x05\x00");
    program.send(request).await;
    let mut reply = program.take(4).await;
    let rest = if reply[3] == 4 { 18 } else { 6 };
    reply.extend(program.take(rest).await);
    reply
}

fn code(reply: &[u8]) -> Reply {
    let Ok(Decoded::Message(reply, _)) = decode_reply(reply) else { panic!("{reply:?}") };
    reply
}

async fn is_carried(scene: &Scene, origin: &Origin, to: &str) {
    let mut program = scene.program().await;
    let reply = ask(&mut program, &encode_connect(&to.parse().unwrap())).await;
    assert_eq!(code(&reply), Reply::Succeeded, "{to}");
    let mut at = origin.accept().await;
    // The address that the destination sees.
    let seen = at.tcp.peer_addr().unwrap();
    assert_eq!(reply[reply.len() - 2..], seen.port().to_be_bytes());
    program.send("up").await;
    program.end().await;
    assert_eq!(at.rest().await, b"up");
    at.send("down").await;
    at.end().await;
    assert_eq!(text(program.rest().await), "down");
}

#[tokio::test]
async fn addresses_of_all_kinds_are_reached() {
    let scene = Scene::new().await;
    let (four, six) = (Origin::new().await, Origin::at("[::1]:0").await);
    is_carried(&scene, &four, &four.at.to_string()).await;
    is_carried(&scene, &six, &six.at.to_string()).await;
    is_carried(&scene, &four, &format!("localhost:{}", four.at.port())).await;
    assert_eq!(scene.end().await.0.tunnels, 3);
}

async fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn failures_are_told_by_the_codes_of_the_rfc() {
    let scene = Scene::new().await;
    let refused = encode_connect(&closed().await.into());
    let itself = encode_connect(&scene.at.into());
    let nobody = encode_connect(&"no-such-name.invalid:80".parse().unwrap());
    for (request, expected) in [
        (&refused[..], Reply::ConnectionRefused),
        (&itself, Reply::NotAllowed),
        (&nobody, Reply::HostUnreachable),
        // BIND, UDP ASSOCIATE, Tor's RESOLVE, and invalid commands.
        (b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", Reply::CommandNotSupported),
        (b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", Reply::CommandNotSupported),
        (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", Reply::CommandNotSupported),
        (b"\x05\x03\x00\x01\x7f\x00\x00\x01\x13\x88", Reply::CommandNotSupported),
        (b"\x05\x03\x00\x03\x09localhost\x00\x00", Reply::CommandNotSupported),
        (b"\x05\x03\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Reply::CommandNotSupported),
        (b"\x05\x03\x00\x09\x00\x00", Reply::CommandNotSupported),
        (b"\x05\xf0\x00\x03\x09localhost\x00\x00", Reply::CommandNotSupported),
        (b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50", Reply::CommandNotSupported),
        (b"\x05\x01\x07\x01\x7f\x00\x00\x01\x00\x50", Reply::GeneralFailure),
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00", Reply::GeneralFailure),
        (b"\x05\x01\x00\x03\x00\x00\x50", Reply::GeneralFailure),
        (b"\x05\x01\x00\x03\x0alocal host\x00\x50", Reply::GeneralFailure),
        (b"\x05\x01\x00\x09\x7f\x00\x00\x01\x00\x50", Reply::AddressTypeNotSupported),
    ] {
        let mut program = scene.program().await;
        let reply = ask(&mut program, request).await;
        assert_eq!(code(&reply), expected, "{request:?}");
        assert_eq!(program.rest().await, b"", "it is closed");
    }
    assert_eq!(scene.end().await.0.refused, 17);
}

#[tokio::test]
async fn a_program_that_insists_on_a_password_is_told_that_there_is_none() {
    let scene = Scene::new().await;
    let mut program = scene.program().await;
    program.send(b"\x05\x01\x02").await;
    assert_eq!(program.take(2).await, b"\x05\xff");
    assert_eq!(program.rest().await, b"");
}

#[tokio::test]
async fn a_program_that_speaks_socks4_is_told_so_at_once() {
    let scene = Scene::new().await;
    for request in [
        &b"\x04\x01\x00\x50\x7f\x00\x00\x01me\x00"[..],
        // SOCKS4a: with a name.
        b"\x04\x01\x00\x50\x00\x00\x00\x01\x00localhost\x00",
        b"\x04\x02",
    ] {
        let mut program = scene.program().await;
        program.send(request).await;
        assert_eq!(program.rest().await, b"\x00\x5b\0\0\0\0\0\0", "{request:x?}");
    }
    assert_eq!(scene.end().await.0.refused, 3);
}
