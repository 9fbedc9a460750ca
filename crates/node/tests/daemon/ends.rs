//! How a daemon ends.

use super::fixture::{Fixture, key};
use std::{io, time::Duration};
use thalweg_node::daemon::HandshakeLimits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_daemon_accepts_nothing_and_lets_live_connections_end() {
    let mut node = Fixture::start().await;
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"a").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'a');
    node.stop();
    let draining = node.log.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(draining.to_string().starts_with("event=draining live=1"), "{draining}");
    // The listener closes when its task is polled next.
    while TcpStream::connect(node.at).await.is_ok() {
        tokio::task::yield_now().await;
    }
    channel.write_all(b"b").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'b');
    let socket = node.socket.clone();
    drop(channel);
    assert_eq!(node.ended().await.cut, 0);
    assert!(!socket.exists());
}

#[tokio::test]
async fn connections_that_do_not_end_in_time_are_cut() {
    let mut node = Fixture::with(HandshakeLimits::default(), Duration::from_millis(50)).await;
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"a").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'a');
    node.stop();
    assert_eq!(node.ended().await.cut, 1);
    let e = channel.read_u8().await.unwrap_err();
    assert!(e.kind() == io::ErrorKind::UnexpectedEof || e.kind() == io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_second_request_to_stop_cuts_at_once() {
    let mut node = Fixture::start().await;
    let mut channel = node.relay_channel(&key(2)).await.unwrap();
    channel.write_all(b"a").await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), b'a');
    node.stop();
    node.cut();
    assert_eq!(node.ended().await.cut, 1);
    channel.read_u8().await.unwrap_err();
}
