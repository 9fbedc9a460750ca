//! The daemon from outside: members, strangers, drawn-out handshakes, and its owner.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod bounds;
mod ends;
mod fixture;
mod local;

use fixture::{Fixture, key};
use std::io;
use thalweg_net::channel::{Connector, Protocol};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[tokio::test]
async fn a_member_is_served_and_the_others_get_no_byte_but_tls() {
    let node = Fixture::start().await;
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    channel.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"hello");

    // An unknown key is refused in the handshake, which shows at the first read at the latest.
    let stranger = async {
        let mut channel = node.relay_channel(&key(66)).await?;
        channel.read_u8().await.map(drop)
    };
    stranger.await.unwrap_err();
    // SOCKS before authentication, HTTP, and a preamble with nothing after it.
    for bytes in [&b"\x05\x01\x00"[..], b"GET / HTTP/1.1\r\n\r\n", b"TW1\x01"] {
        let mut tcp = TcpStream::connect(node.at).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut got = Vec::new();
        // The connection may also be reset, because bytes of this test were not read.
        _ = tcp.read_to_end(&mut got).await;
        // A TLS alert record has type 21 and at most seven bytes; nothing else is sent.
        assert!(got.is_empty() || (got[0] == 21 && got.len() == 7), "{got:?}");
    }
    node.until("thalweg_node_strangers_total{reason=\"handshake\"} 3").await;
    node.until("thalweg_node_strangers_total{reason=\"key\"} 1").await;
}

#[tokio::test]
async fn protocols_that_are_not_served_are_refused() {
    let node = Fixture::start().await;
    for protocol in [Protocol::Api, Protocol::Join, Protocol::Object] {
        let tcp = TcpStream::connect(node.at).await.unwrap();
        let connector = Connector::new(&key(2)).unwrap();
        connector.connect(tcp, node.key, protocol).await.unwrap_err();
    }
}

#[tokio::test]
async fn drawn_out_handshakes_do_not_keep_members_out() {
    // Four simultaneous handshakes, each of which may be evicted at once.
    let node = Fixture::with_limits(4).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut tcp = TcpStream::connect(node.at).await.unwrap();
        tcp.write_all(&[0x16, 3, 1, 1]).await.unwrap();
        slow.push(tcp);
    }
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"!").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'!');
    // The first ones were closed without a byte.
    let ended = slow[0].read(&mut [0; 1]).await;
    assert!(
        matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
    );
}

#[tokio::test]
async fn a_revoked_member_is_cut_and_kept_out() {
    let node = Fixture::start().await;
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"!").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'!');
    node.publish(2, &[1, 3]);
    // The echo service, in place of the relay, ends with the peer; then the peer is not admitted.
    channel.read_u8().await.unwrap_err();
    let again = async { node.relay_channel(&key(2)).await?.read_u8().await };
    again.await.unwrap_err();
    node.until("thalweg_roster_version 2").await;
}
