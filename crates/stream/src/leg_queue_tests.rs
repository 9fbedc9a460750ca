use super::*;
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
    Entry::Frame(Arc::new(NumberedFrame { sequence, born: at(born), frame }))
}

fn queue(bytes: usize) -> LegQueue {
    LegQueue::new(Bounds { latency: Duration::from_secs(1), bytes }, Quality::default())
}

/// Drains the queue: the numbers of sent frames and of lost ones.
fn drain(queue: &mut LegQueue, now: u64) -> (Vec<u64>, Vec<(u64, DropReason)>) {
    let (mut sent, mut lost) = (Vec::new(), Vec::new());
    while let Some(next) = queue.pop(at(now)) {
        match next {
            NextItem::Frame(frame) => sent.push(frame.sequence),
            NextItem::Lost(some) => lost.extend(some.iter().map(|lost| (lost.sequence, lost.why))),
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
fn frames_that_fit_are_sent_in_order() {
    let mut queue = queue(1 << 20);
    fill(&mut queue, &GOP, 1000);
    assert_eq!(drain(&mut queue, 1), ((0..8).collect(), vec![]));
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn disposable_frames_are_dropped_first_then_ends_of_chains_then_key_frames() {
    let sent_with = |room: usize| {
        let mut queue = queue(room);
        fill(&mut queue, &GOP, 2000);
        let (sent, lost) = drain(&mut queue, 1);
        assert_eq!(sent.len() + lost.len(), 8);
        sent
    };
    assert_eq!(sent_with(14_000), [0, 1, 2, 3, 5, 6, 7], "the oldest disposable one");
    assert_eq!(sent_with(12_000), [0, 1, 2, 3, 5, 7]);
    assert_eq!(sent_with(10_000), [0, 1, 2, 3, 5], "the end of the chain");
    assert_eq!(sent_with(8000), [0, 1, 2, 3]);
    assert_eq!(sent_with(6000), [0, 1, 2], "tables, key frame and sound");
    assert_eq!(sent_with(4500), [0, 2], "tables and sound last");
}

#[test]
fn an_older_group_ends_sooner_before_a_newer_one_breaks() {
    let mut queue = queue(9000);
    fill(&mut queue, &[Key, Reference, Reference, Key, Reference], 2000);
    let (sent, lost) = drain(&mut queue, 1);
    assert_eq!((sent, lost), (vec![0, 1, 3, 4], vec![(2, DropReason::Room)]));
}

#[test]
fn after_a_broken_chain_nothing_is_sent_before_the_next_key_frame() {
    let mut queue = queue(1 << 20);
    queue.push(frame(0, Key, 10, 0), at(0));
    queue.push(
        Entry::Lost(LostFrame { sequence: 1, track: 0, class: 3, why: DropReason::Late }),
        at(0),
    );
    for (sequence, class) in
        [(2, Reference), (3, Disposable), (4, Audio), (5, Key), (6, Disposable)]
    {
        queue.push(frame(sequence, class, 10, 0), at(0));
    }
    let (sent, lost) = drain(&mut queue, 1);
    assert_eq!(sent, [0, 4, 5, 6]);
    assert_eq!(lost, [(1, DropReason::Upstream), (2, DropReason::Chain), (3, DropReason::Chain)]);
}

#[test]
fn frames_excluded_by_a_request_are_named_so_on_every_leg() {
    let keys = Quality { track: Some(0), level: Level::Keys };
    let reasons = |quality: Quality| {
        let mut queue = LegQueue::new(queue(1 << 20).bounds(), quality);
        queue.push(frame(0, Key, 10, 0), at(0));
        for (sequence, track, why) in [
            (1, 0, DropReason::Level),
            (2, 0, DropReason::Room),
            (3, 1, DropReason::Level),
            (4, 1, DropReason::Upstream),
        ] {
            queue.push(Entry::Lost(LostFrame { sequence, track, class: 3, why }), at(0));
        }
        assert_eq!(drain(&mut queue, 1).0, [0]);
        let tally = queue.tally().dropped.clone();
        DropReason::ALL.map(|why| tally.get(&why).map_or(0, |by_class| by_class[3]))
    };
    // As `DropReason::ALL` has them: level, late, room, chain, upstream.
    assert_eq!(reasons(Quality::default()), [2, 0, 0, 0, 2], "left out on the parent's own leg");
    assert_eq!(reasons(keys), [4, 0, 0, 0, 0], "this leg would not have sent them either");
}

#[test]
fn a_late_frame_is_dropped_with_the_frames_that_depend_on_it() {
    let mut queue = queue(1 << 20);
    queue.set_path(None, Duration::from_millis(200));
    for (sequence, class) in [Key, Reference, Disposable].into_iter().enumerate() {
        queue.push(frame(sequence as u64, class, 10, 100 * sequence as u64), at(200));
    }
    queue.push(frame(3, Key, 10, 500), at(500));
    // The deadline is 800 ms: the latency of 1 s less 200 ms behind the queue.
    let (sent, lost) = drain(&mut queue, 850);
    assert_eq!(sent, [3]);
    assert_eq!(lost, [(0, DropReason::Late), (1, DropReason::Chain), (2, DropReason::Chain)]);
}

#[test]
fn the_queue_holds_what_the_leg_sends_in_half_of_the_latency() {
    let mut queue = queue(1 << 20);
    queue.set_path(Some(Rate::from_mbps(0.4)), Duration::ZERO);
    for sequence in 0..100 {
        queue.push(frame(sequence, if sequence == 0 { Key } else { Reference }, 1000, 0), at(0));
    }
    assert_eq!(queue.bytes(), 25_000);
    assert_eq!(queue.tally().dropped[&DropReason::Room][3], 1);
    assert_eq!(queue.tally().dropped[&DropReason::Chain][3], 74);
}

#[test]
fn a_lower_level_applies_at_once_and_a_higher_one_from_a_key_frame_on() {
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
    assert_eq!(drain(&mut queue, 1).0, [13, 14], "no frame depends on the dropped one");
}

#[test]
fn another_rendition_begins_at_its_key_frame() {
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
    /// For any input and leg rate, sent frames can be decoded, all others are reported, and memory is bounded.
    #[test]
    fn every_sent_frame_can_be_decoded(
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
                NextItem::Frame(frame) => {
                    assert!(chains.accept(frame.frame.track, frame.frame.class), "{}", frame.sequence);
                    assert!(frame.age(at(now)) <= Duration::from_millis(970));
                    seen.push(frame.sequence);
                }
                NextItem::Lost(lost) => for lost in lost {
                    chains.record_loss(lost.track, FrameClass::from_number(lost.class).unwrap());
                    seen.push(lost.sequence);
                },
            }
            true
        };
        for (sequence, (class, track, bytes, passed, action)) in steps.into_iter().enumerate() {
            now += passed;
            let class = FrameClass::from_number(class).unwrap();
            queue.push(tracked(sequence as u64, track, class, bytes, now), at(now));
            next = sequence as u64 + 1;
            prop_assert!(queue.bytes() <= most.max(9000) && queue.held_bytes <= most + 9000);
            match action {
                0..6 => drop(take(&mut queue, now)),
                6 => queue.set_quality(Quality { level: Level::Keys, ..queue.quality() }),
                7 => queue.set_quality(Quality { level: Level::All, ..queue.quality() }),
                8 => queue.set_quality(Quality { track: Some(track), ..queue.quality() }),
                _ => {}
            }
        }
        queue.release(None, at(now));
        while take(&mut queue, now) {}
        prop_assert_eq!(seen, (0..next).collect::<Vec<_>>(), "each once, in order");
        prop_assert_eq!(queue.bytes(), 0);
    }
}

#[test]
fn a_track_that_is_wanted_again_resumes_at_its_next_key_frame() {
    let mut queue = queue(1 << 20);
    let mut sequence = 0;
    let mut push = |queue: &mut LegQueue, track, class| {
        queue.push(tracked(sequence, track, class, 10, 0), at(0));
        sequence += 1;
    };
    for track in [0, 1] {
        push(&mut queue, track, Key);
    }
    queue.set_quality(Quality { track: Some(0), level: Level::All });
    push(&mut queue, 1, Reference);
    queue.set_quality(Quality::default());
    for class in [Reference, Key, Reference] {
        push(&mut queue, 1, class);
    }
    push(&mut queue, 0, Reference);
    let (sent, lost) = drain(&mut queue, 1);
    assert_eq!(sent, [0, 1, 4, 5, 6]);
    assert_eq!(lost, [(2, DropReason::Level), (3, DropReason::Chain)]);
}

/// A queue from which frames are drained long after they came.
fn patient() -> LegQueue {
    let latency = Duration::from_secs(60);
    LegQueue::new(Bounds { latency, bytes: 1 << 20 }, Quality::default())
}

/// Frames of two renditions with aligned key frames every five pictures, this one first.
fn ladder(queue: &mut LegQueue, first: u8, pictures: std::ops::Range<u64>) {
    for n in pictures {
        let class = if n % 5 == 0 { Key } else { Reference };
        for (place, track) in [(0, first), (1, 1 - first)] {
            queue.push(tracked(2 * n + place, track, class, 100, n * 40), at(n * 40));
        }
    }
}

#[test]
fn a_leg_switches_between_renditions_at_aligned_key_frames() {
    for first in [0, 1] {
        let mut queue = patient();
        let wants = |track| Quality { track: Some(track), level: Level::All };
        queue.set_quality(wants(0));
        ladder(&mut queue, first, 0..8);
        queue.set_quality(wants(1));
        ladder(&mut queue, first, 8..20);
        queue.set_quality(wants(0));
        ladder(&mut queue, first, 20..30);
        let (mut sent, mut next) = (Vec::new(), 0);
        while let Some(item) = queue.pop(at(1)) {
            match item {
                NextItem::Frame(frame) => {
                    assert_eq!(frame.sequence, next, "no number is missing without a notice");
                    next = frame.sequence + 1;
                    sent.push((frame.frame.track, frame.sequence / 2));
                }
                NextItem::Lost(lost) => {
                    assert!(lost.iter().all(|lost| lost.why == DropReason::Level), "{lost:?}");
                    next = lost.last().unwrap().sequence + 1;
                }
            }
        }
        let expected: Vec<_> = (0..30).map(|n| (u8::from((10..20).contains(&n)), n)).collect();
        assert_eq!(sent, expected, "{first} first");
    }
}

#[test]
fn a_rendition_that_does_not_come_is_not_waited_for() {
    let mut queue = patient();
    queue.set_quality(Quality { track: Some(0), level: Level::All });
    ladder(&mut queue, 0, 0..7);
    queue.set_quality(Quality { track: Some(1), level: Level::All });
    queue.push(tracked(14, 1, Reference, 100, 280), at(280));
    // A key frame of the other rendition is expected, and does not come.
    for n in 15..40 {
        let class = if n == 15 { Key } else { Reference };
        queue.push(tracked(n, 0, class, 100, n * 40), at(n * 40));
        assert!(queue.held.len() <= 10);
    }
    let sent = drain(&mut queue, 1).0;
    assert_eq!(sent[7..], (15..40).collect::<Vec<_>>());
}

#[test]
fn other_renditions_than_the_allowed_are_not_sent() {
    let mut queue = patient();
    queue.set_tracks(&[1, 99]);
    ladder(&mut queue, 0, 0..5);
    assert_eq!(drain(&mut queue, 1).0, [1, 3, 5, 7, 9]);
}
