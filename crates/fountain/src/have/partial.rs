//! The bits of a block of which some are set.

use std::ops::Range;

/// The bits of a block, and the number of set ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialBlock {
    words: Box<[u64]>,
    count: u32,
}

impl PartialBlock {
    /// Creates `size` clear bits.
    pub(super) fn empty(size: u32) -> Self {
        Self { words: vec![0; size.div_ceil(64) as usize].into_boxed_slice(), count: 0 }
    }

    /// Creates `size` set bits.
    pub(super) fn full(size: u32) -> Self {
        let mut all = Self::empty(size);
        all.set(0..size);
        all
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn contains(&self, bit: u32) -> bool {
        self.words[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    /// Sets a range of bits. Returns how many were clear.
    pub(super) fn set(&mut self, bits: Range<u32>) -> u32 {
        let mut fresh = 0;
        for (word, mask) in masks(bits) {
            fresh += (mask & !self.words[word]).count_ones();
            self.words[word] |= mask;
        }
        self.count += fresh;
        fresh
    }

    /// Clears a range of bits. Returns how many were set.
    pub(super) fn clear(&mut self, bits: Range<u32>) -> u32 {
        let mut gone = 0;
        for (word, mask) in masks(bits) {
            gone += (mask & self.words[word]).count_ones();
            self.words[word] &= !mask;
        }
        self.count -= gone;
        gone
    }

    /// The first bit in `from..size` that is set (or clear, if `set` is false); `size` if there is none.
    pub(super) fn next(&self, from: u32, size: u32, set: bool) -> u32 {
        for (word, mask) in masks(from..size) {
            let bits = if set { self.words[word] } else { !self.words[word] } & mask;
            if bits != 0 {
                return word as u32 * 64 + bits.trailing_zeros();
            }
        }
        size
    }
}

/// The words of a range of bits, each with its mask.
fn masks(bits: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let words = if bits.is_empty() { 0..0 } else { bits.start / 64..bits.end.div_ceil(64) };
    words.map(move |word| {
        let from = bits.start.saturating_sub(word * 64);
        let to = (bits.end - word * 64).min(64);
        let below = u64::MAX >> (64 - to);
        (word as usize, below & (u64::MAX << from))
    })
}
