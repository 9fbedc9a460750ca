//! Tests of frames that pass through nodes.

use crate::{
    members::name,
    scene::{
        Node, frame, next, nodes, place, publish_request, publisher, subscribe_request, subscriber,
    },
};
use thalweg_media::FrameClass;
use thalweg_mesh::service::MemberService as _;
use thalweg_net::channel::{Channel, Protocol};
use thalweg_stream::local::{Publisher, ReceivedItem, StreamError, Subscriber};
use thalweg_wire::stream::leg::{
    Answer, DropReason, Ending, FrameHead, Head, Level, LimitedResource, MAX_ANSWER, Opening,
    ParentMessage, Refusal, SubscribeRequest, decode, encode, length,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn frames_pass_from_node_to_node() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    assert_eq!(viewer.about().origin, name(0));
    for n in 1..45 {
        source.send(&frame(n)).await.unwrap();
    }
    for n in 0..45 {
        let (frame, missing) = next(&mut viewer).await;
        assert_eq!((place(&frame), missing.len()), (n, 0));
        assert_eq!(
            (frame.class, frame.bytes.len()),
            (self::frame(n).class, self::frame(n).bytes.len())
        );
    }
    source.end().await.unwrap();
    loop {
        match viewer.next().await.unwrap() {
            ReceivedItem::Message(ParentMessage::End(why)) => {
                assert_eq!(why, Ending::Over);
                break;
            }
            ReceivedItem::Message(_) => {}
            ReceivedItem::Frame(..) => panic!("an unexpected frame"),
        }
    }
}

#[tokio::test]
async fn a_relay_receives_the_stream_once_and_forwards_it() {
    let nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // By the plan n1 subscribes at n0, and n2 at n1.
    let mut plan = thalweg_stream::Plan::default();
    let parent = Some(thalweg_stream::ParentRoute::direct(name(1)));
    let stream_plan = thalweg_stream::StreamPlan { parent, ..Default::default() };
    plan.streams.insert(crate::scene::stream(), stream_plan);
    nodes[2].streams.set_plan(plan);
    let mut near = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    let keys = SubscribeRequest { level: Level::Keys, ..subscribe_request(None) };
    let mut far = subscriber(&nodes[2], subscribe_request(None)).await;
    let mut modest = subscriber(&nodes[2], keys).await;
    for n in 1..31 {
        source.send(&frame(n)).await.unwrap();
    }
    for n in 0..31 {
        assert_eq!(place(&next(&mut near).await.0), n);
        assert_eq!(place(&next(&mut far).await.0), n);
    }
    for n in [0, 15, 30] {
        let (frame, missing) = next(&mut modest).await;
        assert_eq!((place(&frame), frame.class), (n, FrameClass::Key));
        assert!(missing.iter().all(|lost| lost.why == DropReason::Level));
    }
    // Each node has one leg to the next one.
    assert_eq!(nodes[0].stream()["legs"].as_array().unwrap().len(), 1);
    nodes[1]
        .soon("a leg for n2", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(|legs| legs.len() == 2)
        })
        .await;
}

#[tokio::test]
async fn a_plan_lowers_a_leg_and_raises_it_again() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    let plan = |level| {
        let quality = thalweg_stream::Quality { track: None, level };
        let leg_plan =
            thalweg_stream::LegPlan { quality, why: "a test".to_owned(), estimate: None };
        let children = [(name(1), leg_plan)].into();
        let stream_plan = thalweg_stream::StreamPlan { children, ..Default::default() };
        let streams = [(crate::scene::stream(), stream_plan)].into();
        thalweg_stream::Plan { version: 1, streams }
    };
    for (level, expected) in [
        (Level::NoDisposable, vec![15, 18, 21, 24, 27]),
        (Level::Keys, vec![30]),
        (Level::All, (45..60).collect::<Vec<u64>>()),
    ] {
        nodes[0].streams.set_plan(plan(level));
        let word = level.word();
        nodes[0]
            .soon("the leg has the level", |report| {
                report["streams"][0]["legs"][0]["gets"]["level"] == word
            })
            .await;
        let begin = expected[0];
        for n in begin..begin + 15 {
            source.send(&frame(n)).await.unwrap();
        }
        for n in expected {
            assert_eq!(place(&next(&mut viewer).await.0), n, "{level}");
        }
    }
    assert_eq!(nodes[0].stream()["legs"][0]["why"], "a test");
}

#[tokio::test]
async fn members_without_permission_are_refused() {
    let nodes = nodes(3, |n, settings| {
        settings.subscribe = if n == 0 { vec!["n1".parse().unwrap()] } else { Vec::new() };
        settings.relay = n == 1;
    })
    .await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let refused = |result: Result<Subscriber, StreamError>| match result {
        Err(StreamError::Refused(why)) => why,
        Err(why) => panic!("{why}"),
        Ok(_) => panic!("the subscription was accepted"),
    };
    assert_eq!(
        refused(Subscriber::begin(&nodes[2].socket(), subscribe_request(Some(0))).await),
        Refusal::Subscribe
    );
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    // n1 relays, and enforces the permissions of the publisher's node.
    assert_eq!(
        refused(Subscriber::begin(&nodes[2].socket(), subscribe_request(Some(1))).await),
        Refusal::Subscribe
    );
    // n2 does not relay, and does not reveal whether the stream exists.
    let unknown = Refusal::Unknown(crate::scene::stream());
    let other = SubscribeRequest { stream: crate::scene::stream(), ..subscribe_request(Some(2)) };
    assert_eq!(refused(Subscriber::begin(&nodes[2].socket(), other).await), unknown);
    let again = Publisher::begin(&nodes[0].socket(), publish_request()).await;
    assert!(matches!(again, Err(StreamError::Refused(Refusal::Taken { .. }))), "published twice");
}

#[tokio::test]
async fn a_publisher_that_dies_and_returns_resumes_the_stream() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    let first = next(&mut viewer).await.0;
    drop(source);
    nodes[0].soon("it has left", |report| report["streams"][0]["published_by"].is_null()).await;
    let mut source = publisher(&nodes[0]).await;
    // Its first frames refer to frames that nobody has.
    for n in [3, 4, 15, 16] {
        source.send(&frame(n)).await.unwrap();
    }
    let (second, missing) = next(&mut viewer).await;
    assert_eq!((place(&second), second.class), (15, FrameClass::Key), "{missing:?}");
    assert!(second.time > first.time, "time goes on");
    assert_eq!(place(&next(&mut viewer).await.0), 16);
}

#[tokio::test]
async fn a_stream_ends_when_its_publisher_does_not_return() {
    let grace = std::time::Duration::from_millis(200);
    let nodes = nodes(2, |_, settings| settings.grace = grace).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    next(&mut viewer).await;
    drop(source);
    let ended = loop {
        if let ReceivedItem::Message(ParentMessage::End(why)) = viewer.next().await.unwrap() {
            break why;
        }
    };
    assert_eq!(ended, Ending::Gone);
    nodes[0]
        .soon("it is forgotten", |report| report["streams"].as_array().is_some_and(Vec::is_empty))
        .await;
}

#[tokio::test]
async fn a_stalled_subscriber_is_disconnected_and_delays_no_other() {
    let nodes = nodes(1, |_, settings| {
        settings.stall = std::time::Duration::from_secs(3);
        settings.leg_memory = thalweg_units::ByteSize::from_bytes(200_000);
    })
    .await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut stalled = subscriber(&nodes[0], subscribe_request(None)).await;
    let mut viewer = subscriber(&nodes[0], subscribe_request(None)).await;
    for n in 1..600 {
        source.send(&frame(n)).await.unwrap();
        let (frame, missing) = next(&mut viewer).await;
        assert!(place(&frame) == n - 1 && missing.is_empty());
    }
    nodes[0]
        .soon("it is disconnected", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(|legs| legs.len() == 1)
        })
        .await;
    // Frames in flight still arrive, and all of them can be decoded.
    let (mut chains, mut came) = (thalweg_stream::Chains::default(), 0);
    while let Ok(coming) = stalled.next().await {
        match coming {
            ReceivedItem::Frame(_, frame) => {
                assert!(chains.accept(0, frame.class), "{}", place(&frame));
                came += 1;
            }
            ReceivedItem::Message(ParentMessage::Lost(lost)) => {
                for lost in lost {
                    chains.record_loss(0, FrameClass::from_number(lost.class).unwrap());
                }
            }
            ReceivedItem::Message(_) => {}
        }
    }
    assert!(came < 300, "{came} frames were queued for it");
}

#[tokio::test]
async fn one_member_cannot_use_all_subscriber_slots() {
    // A member may hold half as many slots as there may be streams.
    let nodes = nodes(3, |_, settings| settings.max_streams = 4).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let subscribe = || Opening::Subscribe(subscribe_request(None));
    let mut held = Vec::new();
    for _ in 0..2 {
        let (channel, answer) = open(&nodes, 1, &subscribe()).await;
        assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
        held.push(channel);
    }
    let refused = Answer::Refused(Refusal::Busy(LimitedResource::Subscribers));
    assert_eq!(open(&nodes, 1, &subscribe()).await.1, refused);
    // n2's node subscribes once for all its programs.
    let mut viewers = Vec::new();
    for _ in 0..8 {
        viewers.push(subscriber(&nodes[2], subscribe_request(Some(0))).await);
    }
    assert_eq!(place(&next(&mut viewers[0]).await.0), 0);
    assert_eq!(nodes[0].streams.report()["subscribers"], 3);
    held.clear();
    nodes[0].soon("n1's slots are free", |report| report["subscribers"] == 1).await;
    assert!(matches!(open(&nodes, 1, &subscribe()).await.1, Answer::Accepted(_)));
}

#[tokio::test]
async fn a_node_gives_no_stream_to_its_own_parent() {
    let nodes = nodes(2, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    let (_channel, answer) =
        open_to(&nodes, 0, 1, &Opening::Subscribe(subscribe_request(None))).await;
    let is_loop = |why: &str| why.contains("you are its parent");
    assert!(
        matches!(&answer, Answer::Refused(Refusal::Upstream(why)) if is_loop(why)),
        "{answer:?}"
    );
}

/// Sends an opening to n0 in the name of member `n`; the channel, and the answer.
pub async fn open(
    nodes: &[Node],
    n: u8,
    opening: &Opening,
) -> (Channel<thalweg_net::Stream>, Answer) {
    open_to(nodes, n, 0, opening).await
}

async fn open_to(
    nodes: &[Node],
    n: u8,
    to: u8,
    opening: &Opening,
) -> (Channel<thalweg_net::Stream>, Answer) {
    let dialer = nodes[usize::from(n)].dialer(n);
    let mut channel = dialer.channel(&name(to), &[], Protocol::Stream).await.unwrap();
    channel.write_all(&encode(opening)).await.unwrap();
    channel.flush().await.unwrap();
    let mut head = [0; 4];
    channel.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; length(head, MAX_ANSWER).unwrap()];
    channel.read_exact(&mut body).await.unwrap();
    (channel, decode(&body).unwrap())
}

#[tokio::test]
async fn a_permitted_member_publishes_remotely() {
    let nodes = nodes(3, |_, settings| settings.publish = vec!["n1".parse().unwrap()]).await;
    let begin = async |n: u8| open(&nodes, n, &Opening::Publish(publish_request())).await;
    assert_eq!(begin(2).await.1, Answer::Refused(Refusal::Publish));
    let (mut channel, answer) = begin(1).await;
    assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
    let sent = frame(0);
    let head = FrameHead {
        sequence: 0,
        track: 0,
        class: sent.class as u8,
        time_us: 0,
        age_us: 0,
        sent_us: 0,
        length: sent.bytes.len() as u32,
    };
    channel.write_all(&Head::Frame(head).encode()).await.unwrap();
    channel.write_all(&sent.bytes).await.unwrap();
    channel.flush().await.unwrap();
    nodes[0].soon("it is published", |report| report["streams"][0]["published_by"] == "n1").await;
    let mut viewer = subscriber(&nodes[0], subscribe_request(None)).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    // When the member is revoked, the stream loses its publisher at once.
    use crate::members::{member, signed};
    let only = vec![member(0, Some(([127, 0, 0, 1], 9).into()), &[])];
    nodes[0].offer(&signed(2, only));
    nodes[0].soon("it has left", |report| report["streams"][0]["published_by"].is_null()).await;
}
