//! What is still to be fetched, handed out in pieces.

use super::{FileNo, Inventory, Piece};
use std::collections::{BTreeMap, VecDeque};

/// Pieces by source: taken, given back, done. Each byte is out at most once.
///
/// Pure; the executors share it behind a lock that they never hold across a wait.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// By source: what waits.
    waiting: BTreeMap<u32, VecDeque<Piece>>,
    /// By source: bytes that wait, and bytes that are out.
    counts: BTreeMap<u32, Count>,
    source: BTreeMap<FileNo, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    waiting: u64,
    out: u64,
}

impl Work {
    /// All that is missing, in the order of the inventory.
    pub fn new(inventory: &Inventory) -> Self {
        let mut work = Self::default();
        for (number, wanted) in (0..).zip(&inventory.files) {
            let file = FileNo(number);
            work.source.insert(file, wanted.source);
            for range in wanted.missing.iter().filter(|range| !range.is_empty()) {
                work.put_back(wanted.source, Piece { file, range: range.clone() }, false);
            }
        }
        work
    }

    /// Takes up to `most` bytes of a source's data, at least a byte if any waits: several small
    /// files, or a part of a large one. Empty: nothing waits.
    pub fn take(&mut self, source: u32, most: u64) -> Vec<Piece> {
        let mut taken = Vec::new();
        let mut room = most.max(1);
        let waiting = self.waiting.entry(source).or_default();
        while room > 0 {
            let Some(mut piece) = waiting.pop_front() else { break };
            if piece.bytes() > room {
                let rest = piece.range.start + room..piece.range.end;
                waiting.push_front(Piece { file: piece.file, range: rest });
                piece.range.end = piece.range.start + room;
            }
            room -= piece.bytes();
            taken.push(piece);
        }
        let bytes: u64 = taken.iter().map(Piece::bytes).sum();
        let count = self.counts.entry(source).or_default();
        count.waiting -= bytes;
        count.out += bytes;
        taken
    }

    /// What was taken did not come, in whole or from here on: it waits again, at the front.
    pub fn give_back(&mut self, piece: Piece) {
        let Some(source) = self.source.get(&piece.file).copied() else { return };
        if !piece.range.is_empty() {
            self.counts.entry(source).or_default().out -= piece.bytes();
            self.put_back(source, piece, true);
        }
    }

    /// What was taken is there.
    pub fn done(&mut self, piece: &Piece) {
        if let Some(source) = self.source.get(&piece.file) {
            self.counts.entry(*source).or_default().out -= piece.bytes();
        }
    }

    /// A file is given up: what waits of it is forgotten; what is out is to be said
    /// [`done`](Self::done) by who has it.
    pub fn forget(&mut self, file: FileNo) {
        let Some(source) = self.source.get(&file) else { return };
        let Some(waiting) = self.waiting.get_mut(source) else { return };
        let bytes: u64 = waiting.iter().filter(|p| p.file == file).map(Piece::bytes).sum();
        waiting.retain(|piece| piece.file != file);
        self.counts.entry(*source).or_default().waiting -= bytes;
    }

    /// Bytes of a source that wait.
    pub fn waiting(&self, source: u32) -> u64 {
        self.counts.get(&source).map_or(0, |count| count.waiting)
    }

    /// Bytes of a source that are not done.
    pub fn remaining(&self, source: u32) -> u64 {
        self.counts.get(&source).map_or(0, |count| count.waiting + count.out)
    }

    /// Nothing waits, and nothing is out.
    pub fn is_finished(&self) -> bool {
        self.counts.values().all(|count| *count == Count::default())
    }

    fn put_back(&mut self, source: u32, piece: Piece, first: bool) {
        self.counts.entry(source).or_default().waiting += piece.bytes();
        let waiting = self.waiting.entry(source).or_default();
        if first { waiting.push_front(piece) } else { waiting.push_back(piece) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Wanted;
    use proptest::prelude::*;
    use thalweg_wire::object::{FilePath, FileRef, Snapshot};

    fn wanted(source: u32, size: u64) -> Wanted {
        let snapshot = Snapshot { device: 1, inode: 1, size, modified_ns: 0, changed_ns: 0 };
        let path = FilePath::new(b"a".to_vec()).unwrap();
        let file = FileRef { root: b"/data".to_vec(), path, snapshot };
        Wanted { source, file, missing: std::iter::once(0..size).collect() }
    }

    proptest! {
        #[test]
        fn each_byte_is_out_at_most_once_and_all_come(
            sizes in prop::collection::vec((0_u32..3, 0_u64..50), 1..12),
            steps in prop::collection::vec((0_u32..3, 1_u64..40, any::<bool>()), 0..80),
        ) {
            let inventory =
                Inventory { files: sizes.iter().map(|(s, b)| wanted(*s, *b)).collect() };
            let amounts = inventory.amounts(3);
            let mut work = Work::new(&inventory);
            let mut came = vec![std::collections::BTreeSet::new(); sizes.len()];
            let ends = (0..3).flat_map(|s| (0..200).map(move |_| (s, 7, true)));
            for (source, most, arrives) in steps.into_iter().chain(ends) {
                for piece in work.take(source, most) {
                    prop_assert_eq!(sizes[piece.file.0 as usize].0, source);
                    if arrives {
                        for at in piece.range.clone() {
                            prop_assert!(came[piece.file.0 as usize].insert(at));
                        }
                        work.done(&piece);
                    } else {
                        work.give_back(piece);
                    }
                }
            }
            prop_assert!(work.is_finished());
            for (source, amount) in (0..).zip(amounts) {
                let all: usize = came.iter().zip(&sizes)
                    .filter(|(_, s)| s.0 == source).map(|(c, _)| c.len()).sum();
                prop_assert_eq!(all as u64, amount);
            }
        }
    }

    #[test]
    fn what_is_forgotten_is_not_handed_out() {
        let inventory = Inventory { files: vec![wanted(0, 10), wanted(0, 5)] };
        let mut work = Work::new(&inventory);
        let first = work.take(0, 4).remove(0);
        work.forget(FileNo(0));
        work.done(&first);
        assert_eq!(work.take(0, 100), [Piece { file: FileNo(1), range: 0..5 }]);
        assert_eq!(work.remaining(0), 5);
    }
}
