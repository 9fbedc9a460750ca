//! A ladder of two renditions between nodes: which one a leg sends, and what the subscriber's program plays.

use crate::{
    members::name,
    scene::{ask, nodes, publisher, stream, subscriber},
};
use std::path::Path;
use thalweg_media::{Frame, FrameClass, Output, TsJoiner, TsSplitter};
use thalweg_stream::{
    LegPlan, Plan, Quality, RenditionChoice, StreamPlan,
    local::{Received, Subscriber},
};
use thalweg_wire::stream::leg::{Ask, Level, Said, Why};

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
    let any = Ask { tracks: (0..16).collect(), ..ask(Some(0)) };
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

/// The stream as a program plays it, and the renditions in turn.
async fn join(viewer: &mut Subscriber) -> (Vec<u8>, Vec<u8>) {
    let (mut joiner, mut choice) = (TsJoiner::new(Output::Detected), RenditionChoice::default());
    let (mut out, mut tracks) = (Vec::new(), Vec::new());
    loop {
        match viewer.next().await.unwrap() {
            Received::Frame(_, frame) => {
                if let Some(track) = choice.add(&frame) {
                    joiner.select(track);
                }
                joiner.push(&frame, &mut out);
                tracks.extend(joiner.selected());
            }
            Received::Said(Said::Lost(lost)) => {
                for lost in lost {
                    assert!(matches!(lost.why, Why::Level | Why::Upstream), "{lost:?}");
                    joiner.lost(lost.track, FrameClass::from_number(lost.class).unwrap());
                }
            }
            Received::Said(Said::End(_)) => break,
            Received::Said(_) => {}
        }
    }
    joiner.end(&mut out);
    tracks.dedup();
    (out, tracks)
}
