//! Bounds on what one peer can take: places for channels, and connections to the metrics.

use super::fixture::{Fixture, key};
use std::io;
use thalweg_net::{PrivateKey, channel::Protocol};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Opens a channel and checks that it is served.
async fn served(node: &Fixture, key: &PrivateKey) -> io::Result<impl Sized + use<>> {
    let mut channel = node.channel(key, Protocol::Cast).await?;
    channel.write_all(b"!").await?;
    channel.flush().await?;
    channel.read_u8().await.map(|_| channel)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_channels_of_a_member_are_bounded_and_leave_others_room() {
    let node = Fixture::start().await;
    let mut held = Vec::new();
    // The member's two keys count as one member.
    while let Ok(channel) = served(&node, &key([2, 102][held.len() % 2])).await {
        held.push(channel);
        assert!(held.len() <= 128, "there is no bound");
    }
    assert_eq!(held.len(), 128);
    node.until("thalweg_node_channels_open{protocol=\"cast\"} 128").await;
    assert!(served(&node, &key(3)).await.is_ok(), "another member");
    held.clear();
    node.until("thalweg_node_channels_open{protocol=\"cast\"} 0").await;
    assert!(served(&node, &key(2)).await.is_ok(), "its places are free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_to_the_metrics_keep_nobody_out() {
    let node = Fixture::start().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(node.metrics).await.unwrap());
    }
    // Connections beyond the places are closed at once.
    let mut closed = 0;
    for tcp in &mut idle[16..] {
        let read = tcp.read(&mut [0; 1]).await;
        closed += usize::from(matches!(read, Ok(0)) || read.is_err());
    }
    assert_eq!(closed, 84);
    // Once the other connections are a second old, a new one gets a place.
    let page = async {
        loop {
            let mut tcp = TcpStream::connect(node.metrics).await.unwrap();
            let mut text = String::new();
            let asked = tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let read = tcp.read_to_string(&mut text).await;
            if asked.is_ok() && read.is_ok() && text.starts_with("HTTP/1.1 200") {
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(page.await.ends_with("# EOF\n"));
    drop(idle);
}
