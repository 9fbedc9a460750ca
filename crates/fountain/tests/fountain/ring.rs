//! Rings: what each child's socket gets, whatever it takes and when.

use proptest::prelude::*;
use std::sync::Arc;
use thalweg_fountain::{ChildId, Geometry, RING_BYTES, Ring, RingError, SharedBytes, SymbolId};

/// Symbols of 1 KiB, blocks of 1024.
pub fn cut() -> Geometry {
    Geometry::new(8 << 20, 1 << 10, 1024, 8).expect("a cut")
}

/// A frame that contains its length and number; `n` bytes in all, at least 8.
pub fn frame(number: u32, n: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; n];
    frame[..4].copy_from_slice(&(n as u32).to_be_bytes());
    frame[4..8].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The numbers of the complete frames that a socket got. Remaining bytes must be the beginning of a frame.
pub fn numbers(mut bytes: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while bytes.len() >= 8 {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (n, number) = (word(0) as usize, word(4));
        if n > bytes.len() {
            break;
        }
        assert_eq!(bytes[..n], frame(number, n), "frame {number} is torn");
        numbers.push(number);
        bytes = &bytes[n..];
    }
    numbers
}

/// Lets a child's socket take up to `n` bytes.
pub fn take(ring: &mut Ring, child: ChildId, n: usize, got: &mut Vec<u8>) -> usize {
    let mut taken = 0;
    while taken < n {
        let Some((bytes, at)) = ring.offer(child, 0).into_iter().next() else { break };
        let now = (bytes.len() - at).min(n - taken);
        got.extend_from_slice(&bytes[at..at + now]);
        ring.record_taken(child, now);
        taken += now;
    }
    taken
}

/// An empty page: none is needed.
pub fn empty() -> SharedBytes {
    SharedBytes::default()
}

#[derive(Clone, Debug)]
enum Step {
    Push { block: u32, bytes: usize },
    Take { child: usize, bytes: usize },
    Done { child: usize, block: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..8_u32, 8..=1036_usize).prop_map(|(block, bytes)| Step::Push { block, bytes }),
        3 => (0..2_usize, 0..5000_usize).prop_map(|(child, bytes)| Step::Take { child, bytes }),
        1 => (0..2_usize, 0..8_u32).prop_map(|(child, block)| Step::Done { child, block }),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn every_child_gets_whole_symbols_in_order_or_misses_them(steps in steps()) {
        // Room for seven frames.
        let mut ring = Ring::new(&cut(), 7 * 1036 + 1000, 12).expect("room");
        let ids = [ChildId(3), ChildId(9)];
        ids.into_iter().for_each(|id| ring.join(id));
        let mut pushed = Vec::new();
        let mut got = [Vec::new(), Vec::new()];
        let mut done = [vec![], vec![]];
        let (mut missed, mut peak) = (0, 0);
        for step in steps {
            match step {
                Step::Push { block, bytes } => {
                    let id = SymbolId { block, esi: pushed.len() as u32 };
                    let frame = Arc::new(frame(id.esi, bytes));
                    missed += ring.push(id, frame, &empty()).expect("fits").0 as u64;
                    pushed.push(block);
                }
                Step::Take { child, bytes } => {
                    take(&mut ring, ids[child], bytes, &mut got[child]);
                }
                Step::Done { child, block } => {
                    let all = ring.finish(ids[child], block);
                    done[child].push(block);
                    prop_assert_eq!(all, done.iter().all(|done| done.contains(&block)));
                }
            }
            // The peak is updated with each step.
            peak = peak.max(ring.peak_bytes());
            prop_assert_eq!(ring.peak_bytes(), peak, "it never falls");
            prop_assert!(peak <= 9 * 1036, "{} bytes", peak);
            for id in ids {
                let waiting = ring.status(id).expect("a child").waiting_symbols;
                prop_assert!(waiting <= 7);
                prop_assert!(ring.least_backlog().is_some_and(|least| least <= 8));
            }
        }
        let mut counted = 0;
        for (at, id) in ids.into_iter().enumerate() {
            let status = ring.status(id).expect("a child");
            take(&mut ring, id, usize::MAX, &mut got[at]);
            let sent = numbers(&got[at]);
            prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", sent);
            prop_assert_eq!(ring.status(id).expect("a child").sent_symbols, sent.len() as u64);
            let absent = (0..pushed.len() as u32).filter(|n| !sent.contains(n));
            let (skipped, lost): (Vec<u32>, Vec<u32>) =
                absent.partition(|n| done[at].contains(&pushed[*n as usize]));
            prop_assert!(lost.len() as u64 <= status.missed_symbols);
            prop_assert!(status.missed_symbols <= (lost.len() + skipped.len()) as u64);
            counted += status.missed_symbols;
        }
        prop_assert_eq!(counted, missed);
    }
}

#[test]
fn a_begun_symbol_is_finished_after_it_was_overwritten() {
    let mut ring = Ring::new(&cut(), 2 * 1036, 12).expect("room");
    let (child, mut got) = (ChildId(0), Vec::new());
    ring.join(child);
    let push = |ring: &mut Ring, n: u32| {
        let frame = Arc::new(frame(n, 1000));
        ring.push(SymbolId { block: 0, esi: n }, frame, &empty()).expect("fits").0
    };
    push(&mut ring, 0);
    assert_eq!(take(&mut ring, child, 300, &mut got), 300);
    assert_eq!((1..=5).map(|n| push(&mut ring, n)).sum::<usize>(), 3);
    // Its block is done meanwhile: the rest of the frame is sent nevertheless, and nothing else.
    assert!(!ring.feasible(1, 0));
    assert!(ring.finish(child, 0) && ring.done_by_all(0));
    assert_eq!(take(&mut ring, child, usize::MAX, &mut got), 700);
    assert_eq!(numbers(&got), [0]);
    assert!(ring.feasible(1, 0) && !ring.feasible(0, 0));
    let status = ring.leave(child).expect("a child");
    assert_eq!((status.sent_symbols, status.missed_symbols, status.done_blocks), (1, 3, 1));
    assert!(ring.status(child).is_none() && ring.offer(child, 0).is_empty());
    ring.record_taken(child, 10);
    assert!(ring.done_by_all(7), "nobody is left");
}

#[test]
fn the_peak_includes_buffers_that_sockets_have_begun() {
    let mut ring = Ring::new(&cut(), 2 * 1036, 12).expect("room");
    let (slow, fast, mut got) = (ChildId(0), ChildId(1), Vec::new());
    [slow, fast].into_iter().for_each(|id| ring.join(id));
    let push = |ring: &mut Ring, n: u32, bytes: usize| {
        let frame = Arc::new(frame(n, bytes));
        ring.push(SymbolId { block: 0, esi: n }, frame, &empty()).expect("fits");
    };
    push(&mut ring, 0, 1000);
    assert_eq!(ring.peak_bytes(), 1000);
    take(&mut ring, slow, 1, &mut got);
    assert_eq!(ring.peak_bytes(), 2000, "in the ring, and begun");
    take(&mut ring, fast, usize::MAX, &mut Vec::new());
    assert_eq!(ring.peak_bytes(), 3000);
    (1..4).for_each(|n| push(&mut ring, n, 1036));
    assert_eq!(ring.peak_bytes(), 2 * 1036 + 1000, "the first lies in the overflow alone");
    take(&mut ring, slow, usize::MAX, &mut got);
    assert_eq!(ring.peak_bytes(), 2 * 1036 + 1036);
    take(&mut ring, fast, 1, &mut Vec::new());
    ring.leave(fast);
    ring.join(slow);
    take(&mut ring, slow, 1, &mut got);
    assert_eq!(ring.peak_bytes(), 3 * 1036, "who is gone holds nothing");
}

#[test]
fn a_ring_has_the_requested_size() {
    let cut = Geometry::for_length(1 << 30).expect("a cut");
    let ring = Ring::new(&cut, RING_BYTES, 12).expect("room");
    assert_eq!(ring.capacity(), RING_BYTES / (16_384 + 12));
    let none = RingError::TooSmall { bytes: 16_384, frame: 16_396 };
    assert_eq!(Ring::new(&cut, 16_384, 12).err(), Some(none));
    let mut ring = ring;
    let id = SymbolId { block: 0, esi: 0 };
    let long = RingError::Frame { got: 16_397, frame: 16_396 };
    let mut push = |frame: Vec<u8>| ring.push(id, Arc::new(frame), &empty());
    assert_eq!(push(vec![0; 16_397]), Err(long));
    assert!(push(Vec::new()).is_err());
    assert_eq!(push(vec![1; 5]), Ok((0, 0)), "nobody misses anything without children");
}

#[test]
fn pages_precede_their_first_symbol_and_messages_follow_the_rings_frames() {
    let mut ring = Ring::new(&cut(), 4 * 1036, 12).expect("room");
    let (child, other, mut got) = (ChildId(0), ChildId(1), Vec::new());
    ring.join(child);
    let page = |block: u32| Arc::new(vec![0xf0 | block as u8]);
    let push = |ring: &mut Ring, block: u32, esi: u32| {
        let id = SymbolId { block, esi };
        ring.push(id, Arc::new(vec![block as u8 * 16 + esi as u8]), &page(block)).expect("fits").0
    };
    push(&mut ring, 0, 1);
    push(&mut ring, 1, 1);
    ring.say(child, Arc::new(vec![0xee]));
    push(&mut ring, 0, 2);
    take(&mut ring, child, usize::MAX, &mut got);
    assert_eq!(got, [0xf0, 0x01, 0xf1, 0x11, 0xee, 0x02]);
    // A child that joins later gets the page as well.
    ring.join(other);
    got.clear();
    take(&mut ring, other, usize::MAX, &mut got);
    assert_eq!(got, [0xf0, 0x01, 0xf1, 0x11, 0x02]);
    // Source symbols that it did not report as missing are not sent, and do not count as missed.
    ring.lacks(child, 0, 2, [1, 7].into_iter(), false);
    ring.lacks(child, 0, 1, [7].into_iter(), false);
    ring.lacks(child, 0, 1, [9].into_iter(), true);
    got.clear();
    ring.leave(other);
    let missed: usize = [3, 7, 8, 9, 6].map(|esi| push(&mut ring, 0, esi)).iter().sum();
    take(&mut ring, child, usize::MAX, &mut got);
    assert_eq!((missed, got.as_slice()), (0, &[0x07, 0x09][..]));
    got.clear();
    push(&mut ring, 0, 7);
    take(&mut ring, child, usize::MAX, &mut got);
    assert!(got.is_empty(), "sent already: {got:?}");
}

#[test]
fn an_asked_child_gets_no_source_symbols_of_the_block_until_it_answers() {
    let mut ring = Ring::new(&cut(), 64 << 10, 12).expect("room");
    let (asked, other) = (ChildId(0), ChildId(1));
    [asked, other].into_iter().for_each(|id| ring.join(id));
    let push = |ring: &mut Ring, esi: u32| {
        let frame = Arc::new(frame(esi, 1036));
        ring.push(SymbolId { block: 0, esi }, frame, &empty()).expect("fits");
    };
    let got = |ring: &mut Ring, id: ChildId| {
        let mut got = Vec::new();
        take(ring, id, usize::MAX, &mut got);
        got
    };
    // Frames before the question are sent nevertheless.
    push(&mut ring, 0);
    ring.ask(asked, 0, Arc::new(frame(99, 1036)));
    assert_eq!(numbers(&got(&mut ring, asked)), [0, 99]);
    push(&mut ring, 1);
    assert!(got(&mut ring, asked).is_empty(), "it may have it");
    assert_eq!(numbers(&got(&mut ring, other)), [0, 1]);
    ring.lacks(asked, 0, 1, [2].into_iter(), false);
    [1, 2].into_iter().for_each(|esi| push(&mut ring, esi));
    assert_eq!(numbers(&got(&mut ring, asked)), [2]);
}
