//! The data still to send, in pieces. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::Duration,
};

/// The maximum number of whole items in one request.
pub(super) const MOST_WHOLE: usize = 4096;

/// The maximum number of bytes in a request that describe whole items, so that it is not too long.
const MOST_SAID: u64 = 900 << 10;

/// A range of a file, or a whole small item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SendPiece {
    /// The index of the item.
    pub file: usize,
    /// The range; empty for empty files and links.
    pub range: Range<u64>,
    /// The bytes of a request that describe this item, if it is sent whole beside others. `None`: a part.
    pub whole: Option<u32>,
}

impl SendPiece {
    /// The length of the piece in its file.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn key(&self) -> (usize, u64) {
        (self.file, self.range.start)
    }
}

/// The contents of one request.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSize {
    things: usize,
    weight: u64,
    said: u64,
}

impl RequestSize {
    /// Adds one more piece if it fits; the first one always does.
    fn add(&mut self, piece: &SendPiece, most: u64) -> bool {
        self.things += 1;
        self.said += u64::from(piece.whole.unwrap_or(0));
        self.weight += piece.bytes() + u64::from(piece.whole.unwrap_or(0));
        let fits = self.weight <= most && self.said <= MOST_SAID && self.things <= MOST_WHOLE;
        fits || self.things == 1
    }
}

/// A piece that is out; a late one is sent again, so that two paths may have it.
#[derive(Clone, Debug)]
struct OutstandingPiece {
    piece: SendPiece,
    since: Duration,
    copies: u32,
}

/// Pieces that wait, and pieces that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct SendQueue {
    /// Small items that are sent whole; they are sent first.
    whole: VecDeque<SendPiece>,
    waiting: VecDeque<SendPiece>,
    /// By file and offset.
    out: BTreeMap<(usize, u64), OutstandingPiece>,
    left: u64,
    /// Files that have not arrived completely, with the number of their pieces that wait or are out.
    open: BTreeMap<usize, usize>,
    /// Files that failed, and why.
    failed: BTreeMap<usize, String>,
    given_up: u64,
    /// Bytes that arrived a second time.
    twice: u64,
}

impl SendQueue {
    /// Adds a missing range of a file.
    pub fn add(&mut self, file: usize, range: Range<u64>) {
        self.put(SendPiece { file, range, whole: None });
    }

    /// Adds an item of `bytes` bytes that is sent whole, and that takes `cost` further bytes of a request.
    pub fn add_whole(&mut self, file: usize, bytes: u64, cost: u32) {
        self.put(SendPiece { file, range: 0..bytes, whole: Some(cost) });
    }

    fn put(&mut self, piece: SendPiece) {
        self.left += piece.bytes();
        *self.open.entry(piece.file).or_default() += 1;
        match piece.whole {
            Some(_) => self.whole.push_back(piece),
            None => self.waiting.push_back(piece),
        }
    }

    /// Takes the next pieces, of at most `most` bytes: many whole items, or one part. If nothing waits, takes pieces
    /// that have been out for longer than `patience` and were sent only once. Empty if there is nothing to send now.
    pub fn take(&mut self, most: u64, now: Duration, patience: Duration) -> Vec<SendPiece> {
        if !self.whole.is_empty() {
            return self.take_whole(most, now);
        }
        let Some(mut piece) = self.waiting.pop_front() else {
            return self.take_again(most, now, patience);
        };
        let end = piece.range.start.saturating_add(most.max(1));
        if end < piece.range.end {
            let rest = SendPiece { file: piece.file, range: end..piece.range.end, whole: None };
            *self.open.entry(piece.file).or_default() += 1;
            self.waiting.push_front(rest);
            piece.range.end = end;
        }
        self.out
            .insert(piece.key(), OutstandingPiece { piece: piece.clone(), since: now, copies: 1 });
        vec![piece]
    }

    fn take_whole(&mut self, most: u64, now: Duration) -> Vec<SendPiece> {
        let (mut taken, mut load) = (Vec::new(), RequestSize::default());
        while let Some(next) = self.whole.front() {
            if !load.add(next, most) {
                break;
            }
            let Some(next) = self.whole.pop_front() else { break };
            self.out.insert(
                next.key(),
                OutstandingPiece { piece: next.clone(), since: now, copies: 1 },
            );
            taken.push(next);
        }
        taken
    }

    fn take_again(&mut self, most: u64, now: Duration, patience: Duration) -> Vec<SendPiece> {
        let is_late =
            |out: &OutstandingPiece| out.copies == 1 && now.saturating_sub(out.since) > patience;
        let late = self.out.iter().filter(|(_, out)| is_late(out));
        let Some(key) = late.min_by_key(|(_, out)| out.since).map(|(key, _)| *key) else {
            return Vec::new();
        };
        let first = self.out.get_mut(&key).map(|out| {
            out.copies += 1;
            out.piece.clone()
        });
        let mut taken: Vec<SendPiece> = first.into_iter().collect();
        let mut load = RequestSize::default();
        if taken.iter().all(|piece| load.add(piece, most) && piece.whole.is_some()) {
            for out in self.out.values_mut().filter(|out| is_late(out)) {
                if out.piece.whole.is_none() || !load.add(&out.piece, most) {
                    break;
                }
                out.copies += 1;
                taken.push(out.piece.clone());
            }
        }
        taken
    }

    /// Marks a piece as arrived. A copy that arrives later counts as a duplicate.
    pub fn done(&mut self, piece: &SendPiece) {
        let Some(out) = self.out.remove(&piece.key()) else {
            self.twice += piece.bytes();
            return;
        };
        self.left -= out.piece.bytes();
        if let Some(pieces) = self.open.get_mut(&piece.file) {
            *pieces -= 1;
            if *pieces == 0 {
                self.open.remove(&piece.file);
            }
        }
    }

    /// Returns a piece that did not arrive: it waits again, unless another path still has it.
    pub fn give_back(&mut self, piece: SendPiece) {
        let Some(out) = self.out.get_mut(&piece.key()) else { return };
        out.copies -= 1;
        if out.copies == 0 {
            self.out.remove(&piece.key());
            match piece.whole {
                Some(_) => self.whole.push_front(piece),
                None => self.waiting.push_front(piece),
            }
        }
    }

    /// Gives up a file; only the first reason is kept.
    pub fn fail(&mut self, file: usize, why: String) {
        if self.failed.contains_key(&file) {
            return;
        }
        self.failed.insert(file, why);
        if self.open.remove(&file).is_none() {
            return;
        }
        let before = self.left;
        let of = |piece: &SendPiece| piece.file == file;
        let out: Vec<(usize, u64)> =
            self.out.range((file, 0)..=(file, u64::MAX)).map(|(key, _)| *key).collect();
        let out = out.iter().filter_map(|key| self.out.remove(key));
        let bytes: u64 = out.map(|out| out.piece.bytes()).sum();
        self.left -= bytes;
        for waiting in [&mut self.whole, &mut self.waiting] {
            self.left -= waiting.iter().filter(|p| of(p)).map(SendPiece::bytes).sum::<u64>();
            waiting.retain(|piece| !of(piece));
        }
        self.given_up += before - self.left;
    }

    /// Whether this file was given up.
    pub fn has_failed(&self, file: usize) -> bool {
        self.failed.contains_key(&file)
    }

    /// The numbers of files that have not arrived completely, without failed ones.
    pub fn unfinished_files(&self) -> impl Iterator<Item = usize> + '_ {
        self.open.keys().copied()
    }

    /// Bytes that have not arrived.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing waits and nothing is out, including empty files.
    pub fn is_finished(&self) -> bool {
        self.whole.is_empty() && self.waiting.is_empty() && self.out.is_empty()
    }

    /// The number of files that have not arrived completely, without failed ones.
    pub fn unfinished(&self) -> usize {
        self.open.len()
    }

    /// Files that failed, and why.
    pub fn failed(&self) -> &BTreeMap<usize, String> {
        &self.failed
    }

    /// Bytes that arrived a second time, because slow pieces were sent again.
    pub fn duplicate_bytes(&self) -> u64 {
        self.twice
    }

    /// Bytes of failed files that were not sent.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEVER: Duration = Duration::MAX;

    proptest! {
        #[test]
        fn all_bytes_arrive_despite_failures(
            sizes in prop::collection::vec((0_u64..40, any::<bool>()), 1..6),
            steps in prop::collection::vec((1_u64..20, any::<bool>()), 0..60),
        ) {
            let mut queue = SendQueue::default();
            for (file, (size, whole)) in sizes.iter().enumerate() {
                match whole {
                    true => queue.add_whole(file, *size, 2),
                    false => queue.add(file, 0..*size),
                }
            }
            let mut there = vec![std::collections::BTreeSet::new(); sizes.len()];
            for (most, arrives) in steps.into_iter().chain((0..300).map(|_| (7, true))) {
                let taken = queue.take(most, Duration::ZERO, NEVER);
                let bytes: u64 = taken.iter().map(SendPiece::bytes).sum();
                prop_assert!(bytes <= most || taken.len() == 1);
                for piece in taken {
                    if arrives {
                        there[piece.file].extend(piece.range.clone());
                        queue.done(&piece);
                    } else {
                        queue.give_back(piece);
                    }
                }
            }
            prop_assert!(queue.is_finished());
            prop_assert_eq!((queue.left(), queue.unfinished()), (0, 0));
            for (there, (size, _)) in there.iter().zip(&sizes) {
                prop_assert_eq!(there.len() as u64, *size);
            }
        }
    }

    #[test]
    fn a_late_piece_is_sent_again_once() {
        let mut queue = SendQueue::default();
        queue.add(0, 0..10);
        let second = Duration::from_secs(1);
        let piece = queue.take(10, Duration::ZERO, second).remove(0);
        assert_eq!(queue.take(10, second, second), []);
        assert_eq!(queue.take(10, 2 * second, second), std::slice::from_ref(&piece));
        assert_eq!(queue.take(10, 9 * second, second), [], "twice is enough");
        // One of the two connections breaks: the other still has the piece.
        queue.give_back(piece.clone());
        assert_eq!(queue.left(), 10);
        queue.done(&piece);
        assert!(queue.is_finished());
        // The copy changes nothing.
        queue.done(&piece);
        queue.give_back(piece);
        assert_eq!((queue.left(), queue.is_finished(), queue.duplicate_bytes()), (0, true, 10));
    }

    #[test]
    fn a_failed_file_is_left_out() {
        let mut queue = SendQueue::default();
        queue.add(0, 0..10);
        queue.add(1, 0..5);
        let piece = queue.take(4, Duration::ZERO, NEVER).remove(0);
        queue.fail(0, "gone".into());
        queue.fail(0, "again".into());
        queue.done(&piece);
        assert_eq!((queue.left(), queue.unfinished(), queue.given_up()), (5, 1, 10));
        assert_eq!(queue.failed().iter().collect::<Vec<_>>(), [(&0, &"gone".to_owned())]);
    }

    #[test]
    fn small_items_are_sent_together_within_the_limits() {
        let mut queue = SendQueue::default();
        queue.add(0, 0..100);
        (1..=5000).for_each(|file| queue.add_whole(file, 1, 9));
        queue.add_whole(5001, 1000, 9);
        let second = Duration::from_secs(1);
        let files = |taken: &[SendPiece]| taken.iter().map(|piece| piece.file).collect::<Vec<_>>();
        let first = queue.take(35, Duration::ZERO, second);
        assert_eq!(files(&first), [1, 2, 3]);
        let many = queue.take(u64::MAX, Duration::ZERO, second);
        assert_eq!(many.len(), MOST_WHOLE);
        queue.give_back(many[0].clone());
        assert_eq!(queue.take(1, Duration::ZERO, second)[0].file, 4, "one goes whatever it weighs");
        let rest = queue.take(u64::MAX, Duration::ZERO, second);
        assert_eq!(rest.len(), 5001 - 3 - MOST_WHOLE);
        assert_eq!(files(&queue.take(60, Duration::ZERO, second)), [0]);
        assert_eq!(files(&queue.take(60, Duration::ZERO, second)), [0]);
        // All late whole items are sent together, but a part goes alone.
        for piece in &many {
            queue.done(piece);
        }
        queue.done(&rest[0]);
        assert_eq!(queue.take(60, 3 * second, second).len(), 1, "a part goes alone");
    }
}
