//! The data still to fetch, handed out in pieces.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};
use thalweg_files::inventory::{FileNo, Inventory, Piece};

/// Pieces by source: taken, given back, done. Each byte is handed out at most once at a time.
///
/// Pure. The executors share it behind a lock that they never hold across an await.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Pieces to fetch, by source.
    waiting: BTreeMap<u32, VecDeque<Piece>>,
    /// Bytes waiting and bytes handed out, by source.
    counts: BTreeMap<u32, SourceCount>,
    source: BTreeMap<FileNo, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceCount {
    waiting: u64,
    out: u64,
}

impl Work {
    /// Creates the work for all missing ranges, in the order of the inventory.
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

    /// Takes up to `most` bytes of a source's data, at least one byte if any waits: several small files, or a part of a
    /// large one. Empty if nothing waits.
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

    /// Takes the waiting parts of these pieces, of any source. Returns for each piece the ranges taken, in no
    /// particular order. If pieces overlap, the first gets the common bytes.
    pub fn claim(&mut self, pieces: &[Piece]) -> Vec<Vec<Piece>> {
        let mut claims: BTreeMap<FileNo, Vec<(Range<u64>, usize)>> = BTreeMap::new();
        for (index, piece) in pieces.iter().enumerate() {
            claims.entry(piece.file).or_default().push((piece.range.clone(), index));
        }
        claims
            .values_mut()
            .for_each(|of_file| of_file.sort_by_key(|(range, at)| (range.start, *at)));
        let mut taken = vec![Vec::new(); pieces.len()];
        for (source, waiting) in &mut self.waiting {
            let count = self.counts.entry(*source).or_default();
            let mut rest = VecDeque::with_capacity(waiting.len());
            for piece in waiting.drain(..) {
                let of_file = claims.get(&piece.file).map_or(&[][..], Vec::as_slice);
                let mut at = piece.range.start;
                let mut keep = |range: Range<u64>| {
                    if !range.is_empty() {
                        rest.push_back(Piece { file: piece.file, range });
                    }
                };
                for (range, index) in of_file {
                    let range = range.start.max(at)..range.end.min(piece.range.end);
                    if range.is_empty() {
                        continue;
                    }
                    keep(at..range.start);
                    at = range.end;
                    (count.waiting, count.out) = (
                        count.waiting - (range.end - range.start),
                        count.out + (range.end - range.start),
                    );
                    taken[*index].push(Piece { file: piece.file, range });
                }
                keep(at..piece.range.end);
            }
            *waiting = rest;
        }
        taken
    }

    /// Returns a taken piece, or the rest of one, that did not arrive. It waits again, at the front.
    pub fn give_back(&mut self, piece: Piece) {
        let Some(source) = self.source.get(&piece.file).copied() else { return };
        if !piece.range.is_empty() {
            self.counts.entry(source).or_default().out -= piece.bytes();
            self.put_back(source, piece, true);
        }
    }

    /// Marks a taken piece as arrived.
    pub fn done(&mut self, piece: &Piece) {
        if let Some(source) = self.source.get(&piece.file) {
            self.counts.entry(*source).or_default().out -= piece.bytes();
        }
    }

    /// Gives up a file: forgets its waiting pieces. Whoever holds a piece that is out must still report it as
    /// [`done`](Self::done).
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

    /// Bytes of a source that have not arrived.
    pub fn remaining(&self, source: u32) -> u64 {
        self.counts.get(&source).map_or(0, |count| count.waiting + count.out)
    }

    /// Whether nothing waits and nothing is out.
    pub fn is_finished(&self) -> bool {
        self.counts.values().all(|count| *count == SourceCount::default())
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
    use proptest::prelude::*;
    use thalweg_files::inventory::MissingFile;
    use thalweg_wire::object::{FilePath, FileRef, Snapshot};

    fn wanted(source: u32, size: u64) -> MissingFile {
        let snapshot = Snapshot { device: 1, inode: 1, size, modified_ns: 0, changed_ns: 0 };
        let path = FilePath::new(b"a".to_vec()).unwrap();
        let file = FileRef { root: b"/data".to_vec(), path, snapshot };
        MissingFile { source, file, missing: std::iter::once(0..size).collect() }
    }

    proptest! {
        #[test]
        fn each_byte_is_handed_out_once_at_a_time_and_all_arrive(
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

    proptest! {
        #[test]
        fn claimed_bytes_are_out_once_and_the_rest_waits_in_order(
            sizes in prop::collection::vec((0_u32..3, 1_u64..50), 1..6),
            claims in prop::collection::vec((0_usize..7, 0_u64..60, 0_u64..30), 0..20),
        ) {
            let inventory =
                Inventory { files: sizes.iter().map(|(s, b)| wanted(*s, *b)).collect() };
            let mut work = Work::new(&inventory);
            let piece = |(file, from, bytes): &(usize, u64, u64)| {
                Piece { file: FileNo(*file as u32), range: *from..from + bytes }
            };
            let claims: Vec<Piece> = claims.iter().map(piece).collect();
            let taken = work.claim(&claims);
            let mut left: Vec<std::collections::BTreeSet<u64>> =
                sizes.iter().map(|(_, size)| (0..*size).collect()).collect();
            prop_assert_eq!(taken.len(), claims.len());
            for (claim, taken) in claims.iter().zip(&taken) {
                for piece in taken {
                    prop_assert_eq!(piece.file, claim.file);
                    for at in piece.range.clone() {
                        prop_assert!(claim.range.contains(&at));
                        prop_assert!(left[piece.file.0 as usize].remove(&at), "twice");
                    }
                }
            }
            for claim in claims.iter().filter(|claim| (claim.file.0 as usize) < sizes.len()) {
                let left = &left[claim.file.0 as usize];
                prop_assert!(claim.range.clone().all(|at| !left.contains(&at)), "not all of it");
            }
            for source in 0..3 {
                let mut last = None;
                let waits: u64 = (0_u32..).zip(&sizes).filter(|(_, size)| size.0 == source)
                    .map(|(file, _)| left[file as usize].len() as u64).sum();
                prop_assert_eq!(work.waiting(source), waits);
                for piece in work.take(source, u64::MAX) {
                    let begin = (piece.file, piece.range.start);
                    prop_assert!(last.is_none_or(|last| last < begin));
                    last = Some(begin);
                    work.done(&piece);
                }
            }
            taken.iter().flatten().for_each(|piece| work.done(piece));
            prop_assert!(work.is_finished());
        }
    }

    #[test]
    fn pieces_of_a_forgotten_file_are_not_handed_out() {
        let inventory = Inventory { files: vec![wanted(0, 10), wanted(0, 5)] };
        let mut work = Work::new(&inventory);
        let first = work.take(0, 4).remove(0);
        work.forget(FileNo(0));
        work.done(&first);
        assert_eq!(work.take(0, 100), [Piece { file: FileNo(1), range: 0..5 }]);
        assert_eq!(work.remaining(0), 5);
    }
}
