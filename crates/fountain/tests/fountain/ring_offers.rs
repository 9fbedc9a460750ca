//! Rings: several frames offered to a socket at once, and frames that arrive before it takes them.

use crate::ring::{cut, empty, frame, numbers, take};
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_fountain::{ChildId, Ring, SharedBytes, SymbolId};

/// Bytes of a frame in these tests.
const FRAME: usize = 1036;

/// A child whose socket has an offer and has not reported yet what it took.
struct Socket {
    id: ChildId,
    offered: Vec<(SharedBytes, usize)>,
    got: Vec<u8>,
}

impl Socket {
    fn new(id: u64) -> Self {
        Self { id: ChildId(id), offered: Vec::new(), got: Vec::new() }
    }

    fn offer(&mut self, ring: &mut Ring, most: usize) {
        self.offered = ring.offer(self.id, most);
    }

    /// Takes up to `n` bytes of the offer. Returns how many symbols no longer count as missed.
    fn take(&mut self, ring: &mut Ring, n: usize) -> usize {
        let mut left = n;
        for (bytes, at) in std::mem::take(&mut self.offered) {
            let now = left.min(bytes.len() - at);
            self.got.extend_from_slice(&bytes[at..at + now]);
            left -= now;
        }
        ring.record_taken(self.id, n - left)
    }

    /// Takes everything. Returns the numbers of the symbols that it got.
    fn take_all(&mut self, ring: &mut Ring) -> Vec<u32> {
        take(ring, self.id, usize::MAX, &mut self.got);
        let numbers = numbers(&self.got);
        assert_eq!(numbers.len() * FRAME, self.got.len(), "the last one is torn");
        numbers
    }
}

fn push(ring: &mut Ring, block: u32, n: u32) -> usize {
    let id = SymbolId { block, esi: n };
    ring.push(id, Arc::new(frame(n, FRAME)), &empty()).expect("fits").0
}

#[derive(Clone, Debug)]
enum Step {
    Push { block: u32 },
    Offer { child: usize, most: usize },
    Take { child: usize, bytes: usize },
    Done { child: usize, block: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let child = 0..3_usize;
    let step = prop_oneof![
        6 => (0..8_u32).prop_map(|block| Step::Push { block }),
        2 => (child.clone(), 0..6000_usize).prop_map(|(child, most)| Step::Offer { child, most }),
        2 => (child.clone(), 0..6000_usize).prop_map(|(child, bytes)| Step::Take { child, bytes }),
        1 => (child, 0..8_u32).prop_map(|(child, block)| Step::Done { child, block }),
    ];
    prop::collection::vec(step, 0..250)
}

proptest! {
    #[test]
    fn several_sockets_take_offered_frames_at_any_time(steps in steps()) {
        // Room for twelve frames. Besides the first, at most three are offered to one socket, and six to all.
        let mut ring = Ring::new(&cut(), 12 * FRAME, 12).expect("room");
        let mut sockets = [Socket::new(0), Socket::new(4), Socket::new(7)];
        sockets.iter().for_each(|socket| ring.join(socket.id));
        let mut pushed = Vec::new();
        let mut done = [vec![], vec![], vec![]];
        let (mut missed, mut saved) = (0, 0);
        for step in steps {
            match step {
                Step::Push { block } => {
                    missed += push(&mut ring, block, pushed.len() as u32);
                    pushed.push(block);
                }
                Step::Offer { child, most } => sockets[child].offer(&mut ring, most),
                Step::Take { child, bytes } => saved += sockets[child].take(&mut ring, bytes),
                Step::Done { child, block } => {
                    ring.finish(sockets[child].id, block);
                    done[child].push(block);
                }
            }
            prop_assert!(ring.peak_bytes() <= (12 + 3) * FRAME, "{} bytes", ring.peak_bytes());
        }
        let mut counted = 0;
        for (socket, done) in sockets.iter_mut().zip(&done) {
            saved += socket.take(&mut ring, 0);
            let sent = socket.take_all(&mut ring);
            prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", sent);
            let status = ring.status(socket.id).expect("a child");
            prop_assert_eq!(status.sent_symbols, sent.len() as u64);
            let absent = (0..pushed.len() as u32).filter(|n| !sent.contains(n));
            let (skipped, lost): (Vec<u32>, Vec<u32>) =
                absent.partition(|n| done.contains(&pushed[*n as usize]));
            prop_assert!(lost.len() as u64 <= status.missed_symbols);
            prop_assert!(status.missed_symbols <= (lost.len() + skipped.len()) as u64);
            counted += status.missed_symbols;
        }
        prop_assert_eq!(counted, (missed - saved) as u64);
    }

    #[test]
    fn a_child_that_rejoins_gets_whole_symbols(
        turns in prop::collection::vec((0..6_u32, 0..5000_usize, 0..6_u32, 0..9000_usize), 1..60),
        anew in prop::collection::btree_set(0..60_usize, 0..4),
    ) {
        let mut ring = Ring::new(&cut(), 16 * FRAME, 12).expect("room");
        let (mut socket, mut pushed) = (Socket::new(1), 0..);
        ring.join(socket.id);
        for (turn, (before, most, between, taken)) in turns.into_iter().enumerate() {
            pushed.by_ref().take(before as usize).for_each(|n| _ = push(&mut ring, 0, n));
            socket.offer(&mut ring, most);
            pushed.by_ref().take(between as usize).for_each(|n| _ = push(&mut ring, 0, n));
            if anew.contains(&turn) {
                ring.join(socket.id);
            }
            socket.take(&mut ring, taken);
            prop_assert!(ring.peak_bytes() <= 17 * FRAME, "{} bytes", ring.peak_bytes());
        }
        socket.take_all(&mut ring);
    }
}

#[test]
fn a_child_that_rejoins_within_a_symbol_gets_its_rest_first() {
    let mut ring = Ring::new(&cut(), 8 * FRAME, 12).expect("room");
    let (child, mut got) = (ChildId(0), Vec::new());
    ring.join(child);
    (0..3).for_each(|n| _ = push(&mut ring, 0, n));
    take(&mut ring, child, FRAME + 300, &mut got);
    ring.join(child);
    take(&mut ring, child, usize::MAX, &mut got);
    // From the oldest frame on, after the begun one. `numbers` checks that no frame is torn.
    assert_eq!((numbers(&got), got.len()), (vec![0, 1, 0, 1, 2], 5 * FRAME));
    // The child counts as new: earlier symbols are not counted.
    assert_eq!(ring.status(child).expect("a child").sent_symbols, 3);
}

#[test]
fn frames_taken_from_an_offer_before_a_rejoin_are_sent_again() {
    let mut ring = Ring::new(&cut(), 16 * FRAME, 12).expect("room");
    let mut socket = Socket::new(0);
    ring.join(socket.id);
    (0..4).for_each(|n| _ = push(&mut ring, 0, n));
    socket.offer(&mut ring, 4 * FRAME);
    assert_eq!(socket.offered.len(), 4);
    ring.join(socket.id);
    // The socket has begun the second frame when it reports.
    socket.take(&mut ring, FRAME + 500);
    assert_eq!(socket.take_all(&mut ring), [0, 1, 0, 1, 2, 3]);
}

#[test]
fn offered_frames_are_not_begun_until_taken() {
    let mut ring = Ring::new(&cut(), 8 * FRAME, 12).expect("room");
    let mut socket = Socket::new(0);
    ring.join(socket.id);
    (0..8).for_each(|n| _ = push(&mut ring, 0, n));
    socket.offer(&mut ring, 9 * FRAME);
    assert_eq!(socket.offered.len(), 2, "a quarter of the ring");
    assert_eq!(socket.take(&mut ring, 0), 0);
    // The socket was full and took nothing: offered frames may be missed like any others.
    assert_eq!(push(&mut ring, 0, 8), 1);
    socket.offer(&mut ring, 0);
    assert_eq!(socket.take(&mut ring, 10), 0);
    assert_eq!(socket.take_all(&mut ring), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ring.status(socket.id).expect("a child").missed_symbols, 1);
}

#[test]
fn overwritten_frames_in_offers_take_room_and_count_as_missed_where_wanted() {
    let mut ring = Ring::new(&cut(), 8 * FRAME, 12).expect("room");
    let (mut socket, other) = (Socket::new(0), ChildId(1));
    ring.join(socket.id);
    (0..8).for_each(|n| _ = push(&mut ring, n % 2, n));
    // Within the first frame: the next two are offered behind its rest.
    socket.offer(&mut ring, 0);
    socket.take(&mut ring, 10);
    socket.offer(&mut ring, 9 * FRAME);
    assert_eq!(socket.offered.len(), 3);
    ring.join(other);
    ring.finish(other, 1);
    // The ninth frame overwrites the first, which only the other child still wants. The tenth overwrites the second,
    // third and fourth, because two of these are still offered; the other child wants only one of them.
    assert_eq!(push(&mut ring, 0, 8), 1);
    assert_eq!(push(&mut ring, 0, 9), 3 + 1);
    assert_eq!(ring.status(other).expect("a child").missed_symbols, 2);
    // The socket took two of the three frames that counted as missed meanwhile.
    assert_eq!(socket.take(&mut ring, 3 * FRAME), 2);
    assert_eq!(ring.status(socket.id).expect("a child").missed_symbols, 1);
    assert_eq!(socket.take_all(&mut ring), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    assert_eq!(ring.peak_bytes(), 9 * FRAME, "the ring, and one begun");
}

#[test]
fn a_sent_symbol_that_is_not_missing_does_not_reduce_the_need() {
    let mut ring = Ring::new(&cut(), 8 * FRAME, 12).expect("room");
    let mut socket = Socket::new(0);
    ring.join(socket.id);
    (0..2).for_each(|n| _ = push(&mut ring, 0, n));
    socket.offer(&mut ring, 2 * FRAME);
    // It has got both otherwise, and needs two more symbols.
    ring.lacks(socket.id, 0, 2, [5, 6].into_iter(), false);
    socket.take(&mut ring, 2 * FRAME);
    let repair = cut().source_symbols_of(0);
    (0..3).for_each(|n| _ = push(&mut ring, 0, repair + n));
    assert_eq!(socket.take_all(&mut ring), [0, 1, repair, repair + 1]);
}
