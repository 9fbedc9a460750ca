//! What is still to be sent, in pieces; pure.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::Duration,
};

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its index.
    pub file: usize,
    /// Which; empty for empty files.
    pub range: Range<u64>,
}

impl Piece {
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A piece that a way has; sent again when that takes too long, so that several may have it.
#[derive(Clone, Debug)]
struct Out {
    piece: Piece,
    since: Duration,
    copies: u32,
}

/// Pieces that wait, and pieces that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Piece>,
    out: Vec<Out>,
    left: u64,
    /// Files that are not all there, and their pieces that wait or are out.
    open: BTreeMap<usize, usize>,
    /// Files that failed, and why.
    failed: BTreeMap<usize, String>,
    given_up: u64,
    /// Bytes that got there a second time.
    twice: u64,
}

impl Queue {
    /// Adds what is missing of a file.
    pub fn add(&mut self, file: usize, range: Range<u64>) {
        self.left += range.end - range.start;
        *self.open.entry(file).or_default() += 1;
        self.waiting.push_back(Piece { file, range });
    }

    /// The next piece, of `most` bytes at the most; when nothing waits, one that is out for
    /// longer than `patience` and was not sent twice.
    pub fn take(&mut self, most: u64, now: Duration, patience: Duration) -> Option<Piece> {
        let Some(mut piece) = self.waiting.pop_front() else {
            return self.take_again(now, patience);
        };
        let end = piece.range.start.saturating_add(most.max(1));
        if end < piece.range.end {
            let rest = Piece { file: piece.file, range: end..piece.range.end };
            *self.open.entry(piece.file).or_default() += 1;
            self.waiting.push_front(rest);
            piece.range.end = end;
        }
        self.out.push(Out { piece: piece.clone(), since: now, copies: 1 });
        Some(piece)
    }

    fn take_again(&mut self, now: Duration, patience: Duration) -> Option<Piece> {
        let late = |out: &&mut Out| out.copies == 1 && now.saturating_sub(out.since) > patience;
        let oldest = self.out.iter_mut().filter(late).min_by_key(|out| out.since)?;
        oldest.copies += 1;
        Some(oldest.piece.clone())
    }

    /// It is there. Who sends a copy of it sends for nothing.
    pub fn done(&mut self, piece: &Piece) {
        let Some(at) = self.out.iter().position(|out| out.piece == *piece) else {
            self.twice += piece.bytes();
            return;
        };
        self.left -= self.out.swap_remove(at).piece.bytes();
        if let Some(pieces) = self.open.get_mut(&piece.file) {
            *pieces -= 1;
            if *pieces == 0 {
                self.open.remove(&piece.file);
            }
        }
    }

    /// It did not get there: it waits again, unless another way still has it.
    pub fn give_back(&mut self, piece: Piece) {
        let Some(at) = self.out.iter().position(|out| out.piece == piece) else { return };
        self.out[at].copies -= 1;
        if self.out[at].copies == 0 {
            self.out.swap_remove(at);
            self.waiting.push_front(piece);
        }
    }

    /// A file cannot be sent: the first reason counts.
    pub fn fail(&mut self, file: usize, why: String) {
        if self.failed.contains_key(&file) {
            return;
        }
        self.failed.insert(file, why);
        self.open.remove(&file);
        let before = self.left;
        let of = |piece: &Piece| piece.file == file;
        self.left -= self.waiting.iter().filter(|p| of(p)).map(Piece::bytes).sum::<u64>();
        self.left -= self.out.iter().filter(|o| of(&o.piece)).map(|o| o.piece.bytes()).sum::<u64>();
        self.waiting.retain(|piece| !of(piece));
        self.out.retain(|out| !of(&out.piece));
        self.given_up += before - self.left;
    }

    /// Bytes that are not there.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing waits and nothing is out, empty files among it.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.out.is_empty()
    }

    /// Files that are not all there, but for those that failed.
    pub fn unfinished(&self) -> usize {
        self.open.len()
    }

    /// Files that failed, and why.
    pub fn failed(&self) -> &BTreeMap<usize, String> {
        &self.failed
    }

    /// Bytes that got there a second time, as copies of what was slow.
    pub fn twice(&self) -> u64 {
        self.twice
    }

    /// Bytes of them that were not sent.
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
        fn all_bytes_get_there_whatever_breaks(
            sizes in prop::collection::vec(0_u64..40, 1..6),
            steps in prop::collection::vec((1_u64..20, any::<bool>()), 0..60),
        ) {
            let mut queue = Queue::default();
            sizes.iter().enumerate().for_each(|(file, size)| queue.add(file, 0..*size));
            let mut there = vec![std::collections::BTreeSet::new(); sizes.len()];
            for (most, arrives) in steps.into_iter().chain((0..300).map(|_| (7, true))) {
                let Some(piece) = queue.take(most, Duration::ZERO, NEVER) else { break };
                if arrives {
                    there[piece.file].extend(piece.range.clone());
                    queue.done(&piece);
                } else {
                    queue.give_back(piece);
                }
            }
            prop_assert!(queue.is_finished());
            prop_assert_eq!((queue.left(), queue.unfinished()), (0, 0));
            for (there, size) in there.iter().zip(&sizes) {
                prop_assert_eq!(there.len() as u64, *size);
            }
        }
    }

    #[test]
    fn what_is_out_for_long_is_sent_again_once() {
        let mut queue = Queue::default();
        queue.add(0, 0..10);
        let second = Duration::from_secs(1);
        let piece = queue.take(10, Duration::ZERO, second).unwrap();
        assert_eq!(queue.take(10, second, second), None);
        assert_eq!(queue.take(10, 2 * second, second), Some(piece.clone()));
        assert_eq!(queue.take(10, 9 * second, second), None, "twice is enough");
        // One of the two breaks: the other still has it.
        queue.give_back(piece.clone());
        assert_eq!(queue.left(), 10);
        queue.done(&piece);
        assert!(queue.is_finished());
        // The copy of it changes nothing.
        queue.done(&piece);
        queue.give_back(piece);
        assert_eq!((queue.left(), queue.is_finished(), queue.twice()), (0, true, 10));
    }

    #[test]
    fn a_failed_file_is_left_out() {
        let mut queue = Queue::default();
        queue.add(0, 0..10);
        queue.add(1, 0..5);
        let piece = queue.take(4, Duration::ZERO, NEVER).unwrap();
        queue.fail(0, "gone".into());
        queue.fail(0, "again".into());
        queue.done(&piece);
        assert_eq!((queue.left(), queue.unfinished(), queue.given_up()), (5, 1, 10));
        assert_eq!(queue.failed().iter().collect::<Vec<_>>(), [(&0, &"gone".to_owned())]);
    }
}
