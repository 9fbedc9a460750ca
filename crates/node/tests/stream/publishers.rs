//! Tests of publishers that die, return, and want the same names.

use crate::{
    members::name,
    passing::open,
    scene::{frame, next, nodes, place, publish_request, stream, subscribe_request, subscriber},
};
use thalweg_media::Frame;
use thalweg_net::channel::Channel;
use thalweg_stream::local::{Publisher, StreamError};
use thalweg_wire::stream::leg::{Answer, FrameHead, Head, Opening, Refusal};
use tokio::io::AsyncWriteExt as _;

fn encoded(frame: &Frame, sequence: u64) -> Vec<u8> {
    let head = FrameHead {
        sequence,
        track: frame.track,
        class: frame.class as u8,
        time_us: frame.time.as_micros() as u64,
        age_us: 0,
        sent_us: 0,
        length: frame.bytes.len() as u32,
    };
    [&Head::Frame(head).encode()[..], &frame.bytes].concat()
}

async fn send(channel: &mut Channel<thalweg_net::Stream>, bytes: &[u8]) {
    channel.write_all(bytes).await.unwrap();
    channel.flush().await.unwrap();
}

#[tokio::test]
async fn a_member_that_returns_replaces_its_dead_connection() {
    let nodes = nodes(3, |_, settings| settings.publish = vec!["*".parse().unwrap()]).await;
    let publish = || Opening::Publish(publish_request());
    let (mut dead, answer) = open(&nodes, 1, &publish()).await;
    assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
    send(&mut dead, &encoded(&frame(0), 0)).await;
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[0], subscribe_request(None)).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    // It stops within a frame, and its connection stays open.
    send(&mut dead, &encoded(&frame(1), 1)[..100]).await;
    let taken = Answer::Refused(Refusal::Taken { stream: stream(), by: name(1).to_string() });
    assert_eq!(open(&nodes, 2, &publish()).await.1, taken);
    let (mut alive, answer) = open(&nodes, 1, &publish()).await;
    assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
    send(&mut alive, &encoded(&frame(15), 0)).await;
    assert_eq!(place(&next(&mut viewer).await.0), 15);
    assert_eq!(nodes[0].stream()["published_by"], "n1");
    // While it is absent again, nobody takes its place.
    drop((alive, dead));
    nodes[0].soon("it has left", |report| report["streams"][0]["published_by"].is_null()).await;
    assert_eq!(open(&nodes, 2, &publish()).await.1, taken);
    let host = Publisher::begin(&nodes[0].socket(), publish_request()).await;
    assert!(matches!(host, Err(StreamError::Refused(Refusal::Taken { .. }))));
}
