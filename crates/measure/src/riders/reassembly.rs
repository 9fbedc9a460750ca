//! Riders put together again, each delivered once.

use super::{Fragment, LONGEST_RIDER};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_units::Time;
use thiserror::Error;

/// What is kept of riders that are not whole yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Bytes that are kept of them, marks included; the oldest goes when there are more.
    pub bytes: usize,
    /// Riders.
    pub riders: usize,
    /// How long after its first fragment one is given up: longer than any train that cuts it.
    pub expiry: Duration,
    /// Of the longest rider that is taken, bytes: room for all of one is made when the first piece comes.
    pub longest: usize,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        let (expiry, longest) = (Duration::from_secs(2), LONGEST_RIDER);
        Self { bytes: 1 << 20, riders: 1024, expiry, longest }
    }
}

/// Riders of which it is remembered that they were delivered: more than can be under way.
const REMEMBERED: u32 = 1 << 16;

/// Marks of riders in a word, and words of them: what is ahead of the newest in its word is clear, and a power of two
/// so that numbers begin anew with a word.
const MARKS: u32 = u64::BITS;
const WORDS: u32 = 2 * REMEMBERED / MARKS;

/// Why a fragment was not taken. None of these is told to anybody: it is a bad peer's, or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It reaches beyond its rider's end, or is empty.
    #[error("a fragment does not lie within its rider")]
    Beyond,
    /// Its rider is longer than is taken.
    #[error("the rider is longer than is taken")]
    Long,
    /// Another one said another length of the rider.
    #[error("two fragments give their rider different lengths")]
    Lengths,
    /// Its rider was delivered, or is too old to tell.
    #[error("the rider was delivered already, or is too old to tell")]
    Delivered,
}

#[derive(Clone, Debug)]
struct Partial {
    bytes: Vec<u8>,
    /// Which of them are there, a bit each.
    has: Vec<u64>,
    missing: usize,
    since: Time,
}

impl Partial {
    /// Of so many bytes, none of which is there.
    fn new(total: usize, since: Time) -> Self {
        let has = vec![0; total.div_ceil(64)];
        Self { bytes: vec![0; total], has, missing: total, since }
    }

    /// What it takes.
    fn kept(&self) -> usize {
        self.bytes.len() + size_of_val(self.has.as_slice())
    }

    /// Takes bytes from there on. The first word counts: a forged second one changes nothing.
    fn take(&mut self, start: usize, bytes: &[u8]) {
        for (at, byte) in (start..).zip(bytes) {
            let (word, bit) = (&mut self.has[at / 64], 1 << (at % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.bytes[at] = *byte;
                self.missing -= 1;
            }
        }
    }
}

/// Riders that are not whole yet, and which ones were.
#[derive(Clone, Debug)]
pub struct Reassembly {
    limits: ReassemblyLimits,
    partial: BTreeMap<u32, Partial>,
    /// In the order in which they began.
    order: VecDeque<u32>,
    bytes: usize,
    delivered: Delivered,
    lost: u64,
}

impl Reassembly {
    /// Nothing came yet.
    pub fn new(limits: ReassemblyLimits) -> Self {
        let (partial, order, delivered) = Default::default();
        Self { limits, partial, order, bytes: 0, delivered, lost: 0 }
    }

    /// Takes a fragment; the rider, if that makes it whole.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn take(&mut self, fragment: &Fragment, now: Time) -> Result<Option<Vec<u8>>, Refused> {
        let (start, total) = (usize::from(fragment.offset), usize::from(fragment.total));
        let end = start + fragment.bytes.len();
        if fragment.bytes.is_empty() || end > total {
            return Err(Refused::Beyond);
        }
        if total > self.limits.longest {
            return Err(Refused::Long);
        }
        if self.delivered.has(fragment.rider) {
            return Err(Refused::Delivered);
        }
        self.expire(now);
        if self.partial.get(&fragment.rider).is_some_and(|known| known.bytes.len() != total) {
            return Err(Refused::Lengths);
        }
        if fragment.bytes.len() == total {
            self.drop_partial(fragment.rider);
            self.delivered.note(fragment.rider);
            return Ok(Some(fragment.bytes.clone()));
        }
        let partial = self.partial_of(fragment.rider, total, now);
        partial.take(start, &fragment.bytes);
        let is_whole = partial.missing == 0;
        let whole = if is_whole { self.drop_partial(fragment.rider) } else { None };
        if is_whole {
            self.delivered.note(fragment.rider);
        }
        self.shrink();
        Ok(whole)
    }

    fn partial_of(&mut self, rider: u32, total: usize, now: Time) -> &mut Partial {
        self.partial.entry(rider).or_insert_with(|| {
            let partial = Partial::new(total, now);
            self.order.push_back(rider);
            self.bytes += partial.kept();
            partial
        })
    }

    fn drop_partial(&mut self, rider: u32) -> Option<Vec<u8>> {
        let partial = self.partial.remove(&rider)?;
        self.bytes -= partial.kept();
        if let Some(at) = self.order.iter().position(|other| *other == rider) {
            self.order.remove(at);
        }
        Some(partial.bytes)
    }

    /// Gives up what is too old; [`Self::take`] does so as well.
    pub fn expire(&mut self, now: Time) {
        let expiry = self.limits.expiry;
        while let Some(oldest) = self.order.front().copied() {
            let since = self.partial.get(&oldest).map_or(Time::ZERO, |partial| partial.since);
            if now.since(since) < expiry {
                break;
            }
            self.give_up(oldest);
        }
    }

    fn shrink(&mut self) {
        let is_over =
            |this: &Self| this.bytes > this.limits.bytes || this.partial.len() > this.limits.riders;
        while is_over(self)
            && let Some(oldest) = self.order.front().copied()
        {
            self.give_up(oldest);
        }
    }

    fn give_up(&mut self, rider: u32) {
        self.drop_partial(rider);
        self.lost += 1;
    }

    /// Bytes that are kept, and the marks of which are there.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Riders that were given up.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Which of the last riders were delivered, as a window that slides with the newest (RFC 6479's).
#[derive(Clone, Debug, Default)]
struct Delivered {
    newest: Option<u32>,
    words: Vec<u64>,
}

impl Delivered {
    fn has(&self, rider: u32) -> bool {
        let Some(newest) = self.newest else { return false };
        let ahead = rider.wrapping_sub(newest);
        if ahead != 0 && ahead < 1 << 31 {
            return false;
        }
        newest.wrapping_sub(rider) >= REMEMBERED || self.bit(rider)
    }

    fn note(&mut self, rider: u32) {
        if self.words.is_empty() {
            self.words = vec![0; WORDS as usize];
        }
        let newest = *self.newest.get_or_insert(rider);
        if rider.wrapping_sub(newest) < 1 << 31 {
            self.clear(newest / MARKS, rider / MARKS);
            self.newest = Some(rider);
        }
        let (word, bit) = place(rider);
        self.words[word] |= bit;
    }

    /// What the window leaves behind is free for what comes: the words after the one up to the other. By the word, since
    /// whoever sends riders says how far their numbers leap.
    fn clear(&mut self, from: u32, to: u32) {
        let count = (to.wrapping_sub(from) % (u32::MAX / MARKS + 1)).min(WORDS) as usize;
        let first = (from + 1) as usize % self.words.len();
        let end = first + count;
        let around = end.saturating_sub(self.words.len());
        self.words[first..end - around].fill(0);
        self.words[..around].fill(0);
    }

    fn bit(&self, rider: u32) -> bool {
        let (word, bit) = place(rider);
        self.words[word] & bit != 0
    }
}

/// Where a rider's mark is: a word, and which of its bits.
fn place(rider: u32) -> (usize, u64) {
    ((rider / MARKS % WORDS) as usize, 1 << (rider % MARKS))
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
