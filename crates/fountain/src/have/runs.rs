//! A set read as runs of what is held and what is not.

use super::HaveSet;
use std::ops::Range;

impl HaveSet {
    /// What is held, as runs in order that do not touch.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs_from(0)
    }

    /// As [`Self::runs`], of what lies from `from` on.
    pub fn runs_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        merged(Steps { at: from, end: self.symbols, step: move |at| self.run_at(at) })
    }

    /// What is not held, as runs in order that do not touch.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        self.missing_from(0)
    }

    /// As [`Self::missing`], of what lies from `from` on.
    pub fn missing_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        let step = |at| {
            let (held, end) = self.run_at(at);
            (!held, end)
        };
        merged(Steps { at: from, end: self.symbols, step })
    }

    /// What this set holds and `other` does not, from `from` on, as runs in order.
    pub fn beyond<'a>(
        &'a self,
        other: &'a Self,
        from: u64,
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        let step = move |at| {
            let (held, end) = self.run_at(at);
            let (known, until) = if held { other.run_at(at) } else { (false, end) };
            (held && !known, end.min(until))
        };
        merged(Steps { at: from, end: self.symbols, step })
    }

    /// How many of a range are held.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        let mut count = 0;
        for run in self.runs_from(range.start).take_while(|run| run.start < range.end) {
            count += run.end.min(range.end) - run.start;
        }
        count
    }

    /// Whether `at` is held, and up to where that stays so at least; past the end it is not.
    pub(super) fn run_at(&self, at: u64) -> (bool, u64) {
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

    /// The first block after this empty one of which anything is held.
    fn next_stocked(&self, block: u32) -> u32 {
        let partial = self.partial.range(block..).next().map_or(u32::MAX, |(block, _)| *block);
        partial.min(self.next_block(block, true))
    }

    /// The first block from this one on whose being full is as told; past the last if none.
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

/// Walks a set by steps of one state each.
struct Steps<F> {
    at: u64,
    end: u64,
    step: F,
}

impl<F: Fn(u64) -> (bool, u64)> Iterator for Steps<F> {
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
