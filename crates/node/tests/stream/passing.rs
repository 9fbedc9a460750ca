//! Frames on their way.

use crate::{
    members::name,
    scene::{announce, ask, frame, next, nodes, place, publisher, subscriber},
};
use thalweg_mesh::service::MemberService as _;
use thalweg_stream::{
    FrameClass,
    local::{Coming, Publisher, StreamError, Subscriber},
};
use thalweg_wire::stream::leg::{Ask, Ending, Level, Refusal, Said, Why};

#[tokio::test]
async fn frames_pass_from_node_to_node() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
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
            Coming::Said(Said::End(why)) => {
                assert_eq!(why, Ending::Over);
                break;
            }
            Coming::Said(_) => {}
            Coming::Frame(..) => panic!("one more frame"),
        }
    }
}

#[tokio::test]
async fn a_node_in_between_hands_on_and_takes_the_stream_once() {
    let nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // n1 takes it from n0, and n2 from n1, by the plan.
    let mut plan = thalweg_stream::Plan::default();
    let parent = Some(thalweg_stream::Way::direct(name(1)));
    let planned = thalweg_stream::Planned { parent, ..Default::default() };
    plan.streams.insert(crate::scene::stream(), planned);
    nodes[2].streams.set_plan(plan);
    let mut near = subscriber(&nodes[1], ask(Some(0))).await;
    let keys = Ask { level: Level::Keys, ..ask(None) };
    let mut far = subscriber(&nodes[2], ask(None)).await;
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
        assert!(missing.iter().all(|lost| lost.why == Why::Level));
    }
    // One leg of each node to the next one.
    assert_eq!(nodes[0].stream()["legs"].as_array().unwrap().len(), 1);
    nodes[1]
        .soon("a leg for n2", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(|legs| legs.len() == 2)
        })
        .await;
}

#[tokio::test]
async fn a_plan_lowers_a_leg_and_lifts_it_again() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    let plan = |level| {
        let quality = thalweg_stream::Quality { track: None, level };
        let ordered = thalweg_stream::Ordered { quality, why: "a test".to_owned(), estimate: None };
        let children = [(name(1), ordered)].into();
        let planned = thalweg_stream::Planned { children, ..Default::default() };
        let streams = [(crate::scene::stream(), planned)].into();
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
            .soon("the leg has it", |report| {
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
async fn who_may_not_does_not() {
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
        Ok(_) => panic!("it was let in"),
    };
    assert_eq!(
        refused(Subscriber::begin(&nodes[2].socket(), ask(Some(0))).await),
        Refusal::Subscribe
    );
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    // n1 hands on, and applies the rights of the publisher's node.
    assert_eq!(
        refused(Subscriber::begin(&nodes[2].socket(), ask(Some(1))).await),
        Refusal::Subscribe
    );
    // n2 hands nothing on, and knows nothing.
    let unknown = Refusal::Unknown(crate::scene::stream());
    let other = Ask { stream: crate::scene::stream(), ..ask(Some(2)) };
    assert_eq!(refused(Subscriber::begin(&nodes[2].socket(), other).await), unknown);
    let again = Publisher::begin(&nodes[0].socket(), announce()).await;
    assert!(matches!(again, Err(StreamError::Refused(Refusal::Taken { .. }))), "published twice");
}

#[tokio::test]
async fn a_publisher_that_dies_and_returns_goes_on() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
    let first = next(&mut viewer).await.0;
    drop(source);
    nodes[0].soon("it is gone", |report| report["streams"][0]["published_by"].is_null()).await;
    let mut source = publisher(&nodes[0]).await;
    // Its first frames refer to what nobody has.
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
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
    next(&mut viewer).await;
    drop(source);
    let ended = loop {
        if let Coming::Said(Said::End(why)) = viewer.next().await.unwrap() {
            break why;
        }
    };
    assert_eq!(ended, Ending::Gone);
    nodes[0]
        .soon("it is forgotten", |report| report["streams"].as_array().is_some_and(Vec::is_empty))
        .await;
}

#[tokio::test]
async fn one_who_takes_nothing_holds_nobody_and_is_let_go() {
    let nodes = nodes(1, |_, settings| {
        settings.stall = std::time::Duration::from_secs(3);
        settings.leg_memory = thalweg_units::ByteSize::from_bytes(200_000);
    })
    .await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut stalled = subscriber(&nodes[0], ask(None)).await;
    let mut viewer = subscriber(&nodes[0], ask(None)).await;
    for n in 1..600 {
        source.send(&frame(n)).await.unwrap();
        let (frame, missing) = next(&mut viewer).await;
        assert!(place(&frame) == n - 1 && missing.is_empty());
    }
    nodes[0]
        .soon("it is let go", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(|legs| legs.len() == 1)
        })
        .await;
    // What was on its way still comes, and all of it can be decoded.
    let (mut chains, mut came) = (thalweg_stream::Chains::default(), 0);
    while let Ok(coming) = stalled.next().await {
        match coming {
            Coming::Frame(_, frame) => {
                assert!(chains.take(0, frame.class), "{}", place(&frame));
                came += 1;
            }
            Coming::Said(Said::Lost(lost)) => {
                for lost in lost {
                    chains.lost(0, thalweg_stream::class_of(lost.class).unwrap());
                }
            }
            Coming::Said(_) => {}
        }
    }
    assert!(came < 300, "{came} frames were held for it");
}

#[tokio::test]
async fn one_member_does_not_take_all_places() {
    let nodes = nodes(3, |_, settings| settings.max_streams = 4).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // Each of n1's legs is a connection of its own; its node takes the stream once, and so another program does not help.
    let mut viewers = Vec::new();
    for _ in 0..8 {
        viewers.push(subscriber(&nodes[1], ask(Some(0))).await);
    }
    assert_eq!(nodes[0].stream()["legs"].as_array().unwrap().len(), 1);
    let mut other = subscriber(&nodes[2], ask(Some(0))).await;
    assert_eq!(place(&next(&mut other).await.0), 0);
    assert_eq!(nodes[0].streams.report()["subscribers"], 2);
}

#[tokio::test]
async fn a_member_that_may_publishes_from_afar() {
    use thalweg_net::channel::Protocol;
    use thalweg_wire::stream::leg::{
        Answer, FrameHead, Head, MAX_ANSWER, Opening, decode, encode, length,
    };
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let nodes = nodes(3, |_, settings| settings.publish = vec!["n1".parse().unwrap()]).await;
    let begin = async |n: usize| {
        let dialer = nodes[n].dialer(n as u8);
        let mut channel = dialer.channel(&name(0), &[], Protocol::Stream).await.unwrap();
        channel.write_all(&encode(&Opening::Publish(announce()))).await.unwrap();
        channel.flush().await.unwrap();
        let mut head = [0; 4];
        channel.read_exact(&mut head).await.unwrap();
        let mut body = vec![0; length(head, MAX_ANSWER).unwrap()];
        channel.read_exact(&mut body).await.unwrap();
        (channel, decode::<Answer>(&body).unwrap())
    };
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
    let mut viewer = subscriber(&nodes[0], ask(None)).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    // Revoked, it is without a publisher at once.
    use crate::members::{member, signed};
    let only = vec![member(0, Some(([127, 0, 0, 1], 9).into()), &[])];
    nodes[0].offer(&signed(2, only));
    nodes[0].soon("it has none", |report| report["streams"][0]["published_by"].is_null()).await;
}
