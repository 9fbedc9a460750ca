use super::*;
use crate::{Frame, numbered::class_of};
use FrameClass::{Audio, Disposable, Key, Reference, Tables};
use bytes::Bytes;
use proptest::prelude::*;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn frame(sequence: u64, class: FrameClass, bytes: usize, born: u64) -> Entry {
    tracked(sequence, 0, class, bytes, born)
}

fn tracked(sequence: u64, track: u8, class: FrameClass, bytes: usize, born: u64) -> Entry {
    let bytes = Bytes::from(vec![0; bytes]);
    let frame = Frame { track, class, time: Duration::from_millis(born), bytes };
    Entry::Frame(Arc::new(Numbered { sequence, born: at(born), frame }))
}

fn queue(bytes: usize) -> LegQueue {
    LegQueue::new(Bounds { latency: Duration::from_secs(1), bytes }, Quality::default())
}

/// All that comes out now: numbers of frames, and of those left out.
fn drain(queue: &mut LegQueue, now: u64) -> (Vec<u64>, Vec<(u64, Why)>) {
    let (mut sent, mut lost) = (Vec::new(), Vec::new());
    while let Some(next) = queue.pop(at(now)) {
        match next {
            Next::Frame(frame) => sent.push(frame.sequence),
            Next::Lost(some) => lost.extend(some.iter().map(|lost| (lost.sequence, lost.why))),
        }
    }
    (sent, lost)
}

fn fill(queue: &mut LegQueue, classes: &[FrameClass], bytes: usize) {
    for (sequence, class) in classes.iter().enumerate() {
        queue.push(frame(sequence as u64, *class, bytes, 0), at(0));
    }
}

const GOP: [FrameClass; 8] =
    [Tables, Key, Audio, Reference, Disposable, Reference, Disposable, Reference];

#[test]
fn what_has_room_goes_in_order() {
    let mut queue = queue(1 << 20);
    fill(&mut queue, &GOP, 1000);
    assert_eq!(drain(&mut queue, 1), ((0..8).collect(), vec![]));
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn disposable_frames_go_first_then_the_ends_of_chains_then_keys() {
    let left_out = |room: usize| {
        let mut queue = queue(room);
        fill(&mut queue, &GOP, 2000);
        let (sent, lost) = drain(&mut queue, 1);
        assert_eq!(sent.len() + lost.len(), 8);
        sent
    };
    assert_eq!(left_out(14_000), [0, 1, 2, 3, 5, 6, 7], "the oldest disposable one");
    assert_eq!(left_out(12_000), [0, 1, 2, 3, 5, 7]);
    assert_eq!(left_out(10_000), [0, 1, 2, 3, 5], "the end of the chain");
    assert_eq!(left_out(8000), [0, 1, 2, 3]);
    assert_eq!(left_out(6000), [0, 1, 2], "tables, key frame and sound");
    assert_eq!(left_out(4500), [0, 2], "tables and sound last");
}

#[test]
fn an_older_group_ends_sooner_before_a_newer_one_breaks() {
    let mut queue = queue(9000);
    fill(&mut queue, &[Key, Reference, Reference, Key, Reference], 2000);
    let (sent, lost) = drain(&mut queue, 1);
    assert_eq!((sent, lost), (vec![0, 1, 3, 4], vec![(2, Why::Room)]));
}

#[test]
fn after_a_broken_chain_nothing_goes_before_the_next_key_frame() {
    let mut queue = queue(1 << 20);
    queue.push(frame(0, Key, 10, 0), at(0));
    queue.push(Entry::Lost(Lost { sequence: 1, track: 0, class: 3, why: Why::Late }), at(0));
    for (sequence, class) in
        [(2, Reference), (3, Disposable), (4, Audio), (5, Key), (6, Disposable)]
    {
        queue.push(frame(sequence, class, 10, 0), at(0));
    }
    let (sent, lost) = drain(&mut queue, 1);
    assert_eq!(sent, [0, 4, 5, 6]);
    assert_eq!(lost, [(1, Why::Upstream), (2, Why::Chain), (3, Why::Chain)]);
}

#[test]
fn what_would_come_too_late_does_not_go_nor_what_refers_to_it() {
    let mut queue = queue(1 << 20);
    queue.set_path(None, Duration::from_millis(200));
    for (sequence, class) in [Key, Reference, Disposable].into_iter().enumerate() {
        queue.push(frame(sequence as u64, class, 10, 100 * sequence as u64), at(200));
    }
    queue.push(frame(3, Key, 10, 500), at(500));
    // 100 ms of the second are for the network, and 100 for its queue.
    let (sent, lost) = drain(&mut queue, 850);
    assert_eq!(sent, [3]);
    assert_eq!(lost, [(0, Why::Late), (1, Why::Chain), (2, Why::Chain)]);
}

#[test]
fn no_more_waits_than_the_leg_sends_in_half_of_the_latency() {
    let mut queue = queue(1 << 20);
    queue.set_path(Some(Rate::from_mbps(0.4)), Duration::ZERO);
    for sequence in 0..100 {
        queue.push(frame(sequence, if sequence == 0 { Key } else { Reference }, 1000, 0), at(0));
    }
    assert_eq!(queue.bytes(), 25_000);
    assert_eq!(queue.tally().dropped[&Why::Room][3], 1);
    assert_eq!(queue.tally().dropped[&Why::Chain][3], 74);
}

#[test]
fn a_lower_level_holds_at_once_and_references_again_from_a_key_frame_on() {
    let mut queue = queue(1 << 20);
    fill(&mut queue, &GOP, 10);
    queue.set_quality(Quality { level: Level::Keys, ..Quality::default() });
    assert_eq!(drain(&mut queue, 1).0, [0, 1, 2]);
    queue.set_quality(Quality::default());
    for (sequence, class) in [(8, Reference), (9, Disposable), (10, Key), (11, Disposable)] {
        queue.push(frame(sequence, class, 10, 0), at(1));
    }
    assert_eq!(drain(&mut queue, 1).0, [10, 11]);
    queue.set_quality(Quality { level: Level::NoDisposable, ..Quality::default() });
    queue.push(frame(12, Disposable, 10, 0), at(1));
    queue.set_quality(Quality::default());
    queue.push(frame(13, Reference, 10, 0), at(1));
    queue.push(frame(14, Disposable, 10, 0), at(1));
    assert_eq!(drain(&mut queue, 1).0, [13, 14], "nothing refers to the one that did not go");
}

#[test]
fn another_rendition_is_taken_at_its_key_frame() {
    let mut queue = queue(1 << 20);
    queue.set_quality(Quality { track: Some(0), level: Level::All });
    let push = |queue: &mut LegQueue, sequence, track, class| {
        queue.push(tracked(sequence, track, class, 10, 0), at(0));
    };
    push(&mut queue, 0, 0, Key);
    push(&mut queue, 1, 1, Key);
    queue.set_quality(Quality { track: Some(1), level: Level::All });
    push(&mut queue, 2, 0, Reference);
    push(&mut queue, 3, 1, Reference);
    push(&mut queue, 4, 0, Audio);
    push(&mut queue, 5, 1, Key);
    push(&mut queue, 6, 0, Key);
    push(&mut queue, 7, 1, Reference);
    assert_eq!(drain(&mut queue, 1).0, [0, 2, 4, 5, 7]);
}

proptest! {
    /// Whatever comes and however slow the leg is: what is sent can be decoded, all else is told, and memory is bounded.
    #[test]
    fn all_that_is_sent_can_be_decoded(
        steps in prop::collection::vec((0_u8..5, 0_u8..3, 1_usize..9000, 0_u64..80, 0_u8..12), 1..300),
        kbps in prop::option::of(50_u64..5000),
        most in 5000_usize..60_000,
    ) {
        let mut queue = queue(most);
        queue.set_path(kbps.map(|kbps| Rate::from_bps(kbps * 1000)), Duration::from_millis(30));
        let (mut chains, mut now, mut seen, mut next) = (Chains::default(), 0, Vec::new(), 0);
        let mut take = |queue: &mut LegQueue, now| {
            let Some(out) = queue.pop(at(now)) else { return false };
            match out {
                Next::Frame(frame) => {
                    assert!(chains.take(frame.frame.track, frame.frame.class), "{}", frame.sequence);
                    assert!(frame.age(at(now)) <= Duration::from_millis(970));
                    seen.push(frame.sequence);
                }
                Next::Lost(lost) => for lost in lost {
                    chains.lost(lost.track, class_of(lost.class).unwrap());
                    seen.push(lost.sequence);
                },
            }
            true
        };
        for (sequence, (class, track, bytes, passed, action)) in steps.into_iter().enumerate() {
            now += passed;
            let class = class_of(class).unwrap();
            queue.push(tracked(sequence as u64, track, class, bytes, now), at(now));
            next = sequence as u64 + 1;
            prop_assert!(queue.bytes() <= most.max(9000));
            match action {
                0..6 => drop(take(&mut queue, now)),
                6 => queue.set_quality(Quality { level: Level::Keys, ..queue.quality() }),
                7 => queue.set_quality(Quality { level: Level::All, ..queue.quality() }),
                8 => queue.set_quality(Quality { track: Some(track), ..queue.quality() }),
                _ => {}
            }
        }
        while take(&mut queue, now) {}
        prop_assert_eq!(seen, (0..next).collect::<Vec<_>>(), "each once, in order");
        prop_assert_eq!(queue.bytes(), 0);
    }
}
