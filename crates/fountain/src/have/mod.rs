//! The set of symbols that a node holds.

mod partial;

use crate::geometry::Geometry;
use partial::PartialBlock;
use std::{collections::BTreeMap, ops::Range};
use thiserror::Error;

/// A range outside the set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("symbols {}..{} are out of range: the object has {symbols}", range.start, range.end)]
pub struct RangeError {
    pub range: Range<u64>,
    /// The number of symbols of the object.
    pub symbols: u64,
}

/// A set of source symbols by their index in the object, kept block by block.
///
/// Blocks that are full or empty take one bit, others one bit per symbol. At 4 TiB that is at most 32 MiB of bits with
/// symbols of 16 KiB (8 MiB with the default geometry) and some 100 bytes per block, so never more than 100 MiB,
/// whatever arrives in which order; typically a few kilobytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaveSet {
    symbols: u64,
    per_block: u32,
    held: u64,
    /// One bit per block: whether it is full. Partly held blocks are in `partial`; all others are empty.
    full: Vec<u64>,
    partial: BTreeMap<u32, PartialBlock>,
}

impl HaveSet {
    /// Creates an empty set.
    pub fn empty(geometry: &Geometry) -> Self {
        Self::with_block_size(geometry.symbols(), geometry.block_symbols())
    }

    /// Creates the set of all symbols.
    pub fn all(geometry: &Geometry) -> Self {
        let mut set = Self::empty(geometry);
        set.fill(0..geometry.symbols());
        set
    }

    /// Creates an empty set of numbers below `symbols`, kept in blocks of `per_block`.
    pub(crate) fn with_block_size(symbols: u64, per_block: u32) -> Self {
        let per_block = per_block.max(1);
        let blocks = symbols.div_ceil(u64::from(per_block));
        let full = vec![0; blocks.div_ceil(64) as usize];
        Self { symbols, per_block, held: 0, full, partial: BTreeMap::new() }
    }

    /// Creates the set of these ranges, which come from a peer or a journal.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn from_ranges(
        geometry: &Geometry,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<Self, RangeError> {
        let mut set = Self::empty(geometry);
        for range in ranges {
            set.insert_range(range)?;
        }
        Ok(set)
    }

    /// The number of symbols of the object, the maximum size of the set.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// The number of symbols in the set.
    pub fn count(&self) -> u64 {
        self.held
    }

    /// Whether the set contains all symbols; true for an empty object.
    pub fn is_complete(&self) -> bool {
        self.held == self.symbols
    }

    /// Whether the set contains a symbol.
    pub fn contains(&self, index: u64) -> bool {
        let (block, bit) = self.place(index);
        index < self.symbols
            && (self.is_full(block) || self.partial.get(&block).is_some_and(|p| p.contains(bit)))
    }

    /// The number of symbols of a block in the set.
    pub fn count_of(&self, block: u32) -> u32 {
        match self.partial.get(&block) {
            Some(partial) => partial.count(),
            None if self.is_full(block) => self.size_of(block),
            None => 0,
        }
    }

    /// Whether the set contains all symbols of a block.
    pub fn holds_block(&self, block: u32) -> bool {
        self.is_full(block)
    }

    /// The number of blocks that are full.
    pub fn full_blocks(&self) -> u32 {
        self.full.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds a symbol, if it exists. Returns whether it was missing.
    pub fn insert(&mut self, index: u64) -> bool {
        index < self.symbols && self.fill(index..index + 1) == 1
    }

    /// Adds a range. Returns how many of its symbols were missing.
    ///
    /// # Errors
    /// [`RangeError`]; then nothing is added.
    pub fn insert_range(&mut self, range: Range<u64>) -> Result<u64, RangeError> {
        if range.end > self.symbols || range.start > range.end {
            return Err(RangeError { range, symbols: self.symbols });
        }
        Ok(self.fill(range))
    }

    /// Removes a range. Returns how many of its symbols were in the set. Symbols that do not exist are ignored.
    pub fn remove_range(&mut self, range: Range<u64>) -> u64 {
        let before = self.held;
        for (block, bits) in self.by_block(range) {
            let (size, full) = (self.size_of(block), self.is_full(block));
            if full {
                self.set_full(block, false);
                self.partial.insert(block, PartialBlock::full(size));
            }
            let Some(partial) = self.partial.get_mut(&block) else { continue };
            self.held -= u64::from(partial.clear(bits));
            if partial.count() == 0 {
                self.partial.remove(&block);
            }
        }
        before - self.held
    }

    /// Adds a range that exists.
    fn fill(&mut self, range: Range<u64>) -> u64 {
        let before = self.held;
        for (block, bits) in self.by_block(range) {
            if self.is_full(block) {
                continue;
            }
            let size = self.size_of(block);
            let partial = self.partial.entry(block).or_insert_with(|| PartialBlock::empty(size));
            self.held += u64::from(partial.set(bits));
            if partial.count() == size {
                self.partial.remove(&block);
                self.set_full(block, true);
            }
        }
        self.held - before
    }

    /// The parts of a range in each block, as ranges of bits.
    fn by_block(&self, range: Range<u64>) -> impl Iterator<Item = (u32, Range<u32>)> + use<> {
        let per = u64::from(self.per_block);
        let mut at = range.start;
        let end = range.end.min(self.symbols);
        std::iter::from_fn(move || {
            let (block, bit) = (at / per, at % per);
            let part = (end.checked_sub(at).filter(|left| *left > 0)?).min(per - bit);
            at += part;
            Some((block as u32, bit as u32..(bit + part) as u32))
        })
    }

    fn place(&self, index: u64) -> (u32, u32) {
        let per = u64::from(self.per_block);
        ((index / per) as u32, (index % per) as u32)
    }

    fn size_of(&self, block: u32) -> u32 {
        let start = u64::from(block) * u64::from(self.per_block);
        self.symbols.saturating_sub(start).min(u64::from(self.per_block)) as u32
    }

    fn is_full(&self, block: u32) -> bool {
        self.full.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    fn set_full(&mut self, block: u32, full: bool) {
        let word = &mut self.full[block as usize / 64];
        let bit = 1u64 << (block % 64);
        *word = if full { *word | bit } else { *word & !bit };
    }
}

/// Iteration over runs of symbols that are in the set or not.
impl HaveSet {
    /// The symbols in the set, as ascending runs that do not touch.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs_from(0)
    }

    /// Like [`Self::runs`], from `from` on.
    pub fn runs_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        merged(MatchingRuns { at: from, end: self.symbols, step: move |at| self.run_at(at) })
    }

    /// The symbols that are not in the set, as ascending runs that do not touch.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        self.missing_from(0)
    }

    /// Like [`Self::missing`], from `from` on.
    pub fn missing_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        let step = |at| {
            let (held, end) = self.run_at(at);
            (!held, end)
        };
        merged(MatchingRuns { at: from, end: self.symbols, step })
    }

    /// The symbols in this set and not in `other`, from `from` on, as ascending runs.
    pub fn difference<'a>(
        &'a self,
        other: &'a Self,
        from: u64,
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        let step = move |at| {
            let (held, end) = self.run_at(at);
            let (known, until) = if held { other.run_at(at) } else { (false, end) };
            (held && !known, end.min(until))
        };
        merged(MatchingRuns { at: from, end: self.symbols, step })
    }

    /// The number of symbols of a range in the set.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        let mut count = 0;
        for run in self.runs_from(range.start).take_while(|run| run.start < range.end) {
            count += run.end.min(range.end) - run.start;
        }
        count
    }

    /// Whether `at` is in the set, and an end up to which the answer stays the same. Beyond the object it is false.
    fn run_at(&self, at: u64) -> (bool, u64) {
        if at >= self.symbols {
            return (false, u64::MAX);
        }
        let (block, bit) = self.place(at);
        let start = u64::from(block) * u64::from(self.per_block);
        if let Some(partial) = self.partial.get(&block) {
            let held = partial.contains(bit);
            return (held, start + u64::from(partial.next(bit, self.size_of(block), !held)));
        }
        let held = self.is_full(block);
        let end = if held { self.next_block(block, false) } else { self.next_stocked(block) };
        (held, (u64::from(end) * u64::from(self.per_block)).min(self.symbols))
    }

    /// The first block after this empty one that is not empty.
    fn next_stocked(&self, block: u32) -> u32 {
        let partial = self.partial.range(block..).next().map_or(u32::MAX, |(block, _)| *block);
        partial.min(self.next_block(block, true))
    }

    /// The first block from this one on that is full (or not, if `full` is false); past the last if there is none.
    fn next_block(&self, block: u32, full: bool) -> u32 {
        let mut word = block as usize / 64;
        let mut mask = u64::MAX << (block % 64);
        while let Some(bits) = self.full.get(word) {
            let bits = if full { *bits } else { !*bits } & mask;
            if bits != 0 {
                return word as u32 * 64 + bits.trailing_zeros();
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        word as u32 * 64
    }
}

/// Walks a set in steps; `step` returns whether a position is wanted, and up to where.
struct MatchingRuns<F> {
    at: u64,
    end: u64,
    step: F,
}

impl<F: Fn(u64) -> (bool, u64)> Iterator for MatchingRuns<F> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        while self.at < self.end {
            let (wanted, end) = (self.step)(self.at);
            let run = self.at..end.min(self.end);
            self.at = run.end;
            if wanted {
                return Some(run);
            }
        }
        None
    }
}

/// Joins runs that touch.
fn merged(steps: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut steps = steps.peekable();
    std::iter::from_fn(move || {
        let mut run = steps.next()?;
        while let Some(next) = steps.next_if(|next| next.start == run.end) {
            run.end = next.end;
        }
        Some(run)
    })
}
