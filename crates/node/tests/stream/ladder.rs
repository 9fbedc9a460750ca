//! A ladder of two renditions between nodes: which one a leg sends, and what the subscriber's program plays.

use crate::{
    members::name,
    scene::{nodes, publisher, stream, subscribe_request, subscriber},
};
use std::path::Path;
use thalweg_media::{Frame, FrameClass, Output, TsJoiner, TsSplitter};
use thalweg_stream::{
    LegPlan, ParentRoute, Plan, Quality, RenditionChoice, StreamPlan,
    local::{ReceivedItem, Subscriber},
};
use thalweg_wire::stream::leg::{DropReason, Level, ParentMessage, SubscribeRequest};

/// Two renditions of 24 pictures each, with aligned key frames every eight.
fn ladder() -> Vec<Frame> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../media/samples/ladder.ts");
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    splitter.push(&std::fs::read(sample).unwrap(), &mut frames);
    splitter.end(&mut frames);
    assert_eq!(splitter.take_warnings(), []);
    frames
}

/// A plan that sends this rendition to `n1`.
fn plan(version: u64, track: u8) -> Plan {
    let quality = Quality { track: Some(track), level: Level::All };
    let leg_plan = LegPlan { quality, why: "a test".to_owned(), estimate: None };
    let children = [(name(1), leg_plan)].into();
    let streams = [(stream(), StreamPlan { children, ..StreamPlan::default() })].into();
    Plan { version, streams }
}

/// The place in the middle of each group.
fn middles(frames: &[Frame]) -> Vec<usize> {
    let is_key = |frame: &&(usize, &Frame)| frame.1.class == FrameClass::Key && frame.1.track == 0;
    let numbered: Vec<_> = frames.iter().enumerate().collect();
    let keys: Vec<usize> = numbered.iter().filter(is_key).map(|(at, _)| *at).collect();
    keys.windows(2).map(|pair| usize::midpoint(pair[0], pair[1])).collect()
}

#[tokio::test]
async fn a_leg_switches_renditions_and_the_program_sees_one_video() {
    let (frames, nodes) = (ladder(), nodes(2, |_, _| {}).await);
    let middles = middles(&frames);
    assert_eq!(middles.len(), 2);
    nodes[0].streams.set_plan(plan(1, 0));
    let mut source = publisher(&nodes[0]).await;
    source.send(&frames[0]).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let any = SubscribeRequest { tracks: (0..16).collect(), ..subscribe_request(Some(0)) };
    let mut viewer = subscriber(&nodes[1], any).await;
    let mut sent = 1;
    for (version, track, end) in [(2, 1, middles[0]), (3, 0, middles[1]), (4, 0, frames.len())] {
        for frame in &frames[sent..end] {
            source.send(frame).await.unwrap();
        }
        sent = end;
        let keys = version - 1;
        nodes[0]
            .soon("the leg has sent them", |report| {
                let stream = &report["streams"][0];
                stream["next"] == sent && stream["legs"][0]["sent"][2] == keys
            })
            .await;
        nodes[0].streams.set_plan(plan(version, track));
        let has =
            |report: &serde_json::Value| report["streams"][0]["legs"][0]["gets"]["track"] == track;
        nodes[0].soon("the leg has the rendition", has).await;
    }
    source.end().await.unwrap();
    let (out, tracks) = join(&mut viewer).await;
    let (mut splitter, mut again) = (TsSplitter::default(), Vec::new());
    splitter.push(&out, &mut again);
    splitter.end(&mut again);
    assert_eq!((splitter.take_warnings(), splitter.tracks().len()), (vec![], 1));
    let pictures = again.iter().filter(|frame| frame.class.is_video()).count();
    assert_eq!((pictures, tracks), (24, vec![0, 1, 0]), "each picture once");
}

#[tokio::test]
async fn a_relay_gets_all_renditions_for_children_that_take_different_ones() {
    let (frames, nodes) = (ladder(), nodes(4, |_, settings| settings.relay = true).await);
    let mut source = publisher(&nodes[0]).await;
    source.send(&frames[0]).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // The relay's legs can carry different renditions, which its plan knows.
    let leg = |track: u8| {
        let quality = Quality { track: Some(track), level: Level::All };
        LegPlan { quality, why: "a test".to_owned(), estimate: None }
    };
    let children = [(name(2), leg(0)), (name(3), leg(1))].into();
    let parent = Some(ParentRoute::direct(name(0)));
    let planned = StreamPlan { parent, children, ..StreamPlan::default() };
    nodes[1].streams.set_plan(Plan { version: 1, streams: [(stream(), planned)].into() });
    let any = SubscribeRequest { tracks: (0..16).collect(), ..subscribe_request(Some(1)) };
    let mut viewers = Vec::new();
    for node in &nodes[2..] {
        viewers.push(subscriber(node, any.clone()).await);
    }
    let is_all = |report: &serde_json::Value| {
        let leg = &report["streams"][0]["legs"][0];
        leg["tracks"].as_array().is_some_and(Vec::is_empty)
    };
    nodes[0].soon("the relay requests all renditions", is_all).await;
    let have_their_own = |report: &serde_json::Value| {
        let legs = report["streams"][0]["legs"].as_array();
        let is_own = |leg: &serde_json::Value| leg["gets"]["track"] == u64::from(leg["to"] == "n3");
        legs.is_some_and(|legs| legs.len() == 2 && legs.iter().all(is_own))
    };
    nodes[1].soon("each child has its own rendition", have_their_own).await;
    for frame in &frames[1..] {
        source.send(frame).await.unwrap();
    }
    source.end().await.unwrap();
    for (viewer, track) in viewers.iter_mut().zip([0, 1]) {
        assert_eq!(join(viewer).await.1, [track]);
    }
}

/// The stream as a program plays it, and the renditions in turn.
async fn join(viewer: &mut Subscriber) -> (Vec<u8>, Vec<u8>) {
    let (mut joiner, mut choice) = (TsJoiner::new(Output::Detected), RenditionChoice::default());
    let (mut out, mut tracks) = (Vec::new(), Vec::new());
    loop {
        match viewer.next().await.unwrap() {
            ReceivedItem::Frame(_, frame) => {
                if let Some(track) = choice.add(&frame) {
                    joiner.select(track);
                }
                joiner.push(&frame, &mut out);
                tracks.extend(joiner.selected());
            }
            ReceivedItem::Message(ParentMessage::Lost(lost)) => {
                for lost in lost {
                    assert!(
                        matches!(lost.why, DropReason::Level | DropReason::Upstream),
                        "{lost:?}"
                    );
                    joiner.record_loss(lost.track, FrameClass::from_number(lost.class).unwrap());
                }
            }
            ReceivedItem::Message(ParentMessage::End(_)) => break,
            ReceivedItem::Message(_) => {}
        }
    }
    joiner.end(&mut out);
    tracks.dedup();
    (out, tracks)
}
