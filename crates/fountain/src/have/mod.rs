//! The set of symbols that a node holds.

mod partial;
mod runs;

use crate::geometry::Geometry;
use partial::Partial;
use std::{collections::BTreeMap, ops::Range};
use thiserror::Error;

/// A range that lies outside the set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("symbols {}..{} of an object that has {symbols}", range.start, range.end)]
pub struct RangeError {
    /// The range.
    pub range: Range<u64>,
    /// How many there are.
    pub symbols: u64,
}

/// A set of source symbols by their index in the object, kept block by block.
///
/// Blocks held whole or not at all cost one bit, others a bit a symbol: at 4 TiB at most
/// 32 MiB of bits with 16 KiB symbols (8 MiB in the default cut) and some 100 bytes a block,
/// so never above 100 MiB whatever arrives in which order; typically a few kilobytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaveSet {
    symbols: u64,
    per_block: u32,
    held: u64,
    /// A bit a block: all of it is held. Partial blocks are in `partial`, others are empty.
    full: Vec<u64>,
    partial: BTreeMap<u32, Partial>,
}

impl HaveSet {
    /// Nothing of the object.
    pub fn empty(geometry: &Geometry) -> Self {
        Self::over(geometry.symbols(), geometry.block_symbols())
    }

    /// All of the object.
    pub fn all(geometry: &Geometry) -> Self {
        let mut set = Self::empty(geometry);
        set.fill(0..geometry.symbols());
        set
    }

    /// An empty set of numbers below `symbols`, kept in blocks of `per_block`.
    pub(crate) fn over(symbols: u64, per_block: u32) -> Self {
        let per_block = per_block.max(1);
        let blocks = symbols.div_ceil(u64::from(per_block));
        let full = vec![0; blocks.div_ceil(64) as usize];
        Self { symbols, per_block, held: 0, full, partial: BTreeMap::new() }
    }

    /// The symbols of these ranges, as a neighbour or a journal names them.
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

    /// How many numbers the set can hold.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// How many it holds.
    pub fn count(&self) -> u64 {
        self.held
    }

    /// Whether it holds all; the set of an empty object does.
    pub fn is_complete(&self) -> bool {
        self.held == self.symbols
    }

    /// Whether it holds this one.
    pub fn contains(&self, index: u64) -> bool {
        let (block, bit) = self.place(index);
        index < self.symbols
            && (self.is_full(block) || self.partial.get(&block).is_some_and(|p| p.contains(bit)))
    }

    /// How many of a block it holds.
    pub fn count_of(&self, block: u32) -> u32 {
        match self.partial.get(&block) {
            Some(partial) => partial.count(),
            None if self.is_full(block) => self.size_of(block),
            None => 0,
        }
    }

    /// Whether it holds all of a block.
    pub fn holds_block(&self, block: u32) -> bool {
        self.is_full(block)
    }

    /// How many blocks it holds whole.
    pub fn full_blocks(&self) -> u32 {
        self.full.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds one; whether it was missing. One that does not exist is not added.
    pub fn insert(&mut self, index: u64) -> bool {
        index < self.symbols && self.fill(index..index + 1) == 1
    }

    /// Adds a range; how many of it were missing.
    ///
    /// # Errors
    /// [`RangeError`]: nothing was added.
    pub fn insert_range(&mut self, range: Range<u64>) -> Result<u64, RangeError> {
        if range.end > self.symbols || range.start > range.end {
            return Err(RangeError { range, symbols: self.symbols });
        }
        Ok(self.fill(range))
    }

    /// Takes a range out; how many of it were held. What does not exist is passed over.
    pub fn remove_range(&mut self, range: Range<u64>) -> u64 {
        let before = self.held;
        for (block, bits) in self.by_block(range) {
            let (size, full) = (self.size_of(block), self.is_full(block));
            if full {
                self.set_full(block, false);
                self.partial.insert(block, Partial::full(size));
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
            let partial = self.partial.entry(block).or_insert_with(|| Partial::empty(size));
            self.held += u64::from(partial.set(bits));
            if partial.count() == size {
                self.partial.remove(&block);
                self.set_full(block, true);
            }
        }
        self.held - before
    }

    /// The parts of a range, block by block, as bits of these.
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
