//! Reassembles riders and delivers each once.

use super::{Fragment, LONGEST_RIDER};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_units::Time;
use thiserror::Error;

/// Limits on incomplete riders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Bytes kept, including marks; beyond it the oldest rider is given up.
    pub bytes: usize,
    /// The number of riders.
    pub riders: usize,
    /// How long after its first fragment a rider is given up: longer than any train that cuts it.
    pub expiry: Duration,
    /// The length of the longest rider that is accepted, bytes: its first fragment allocates memory for all of it.
    pub longest: usize,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        let (expiry, longest) = (Duration::from_secs(2), LONGEST_RIDER);
        Self { bytes: 1 << 20, riders: 1024, expiry, longest }
    }
}

/// How many riders are remembered as delivered: more than can be in flight.
const REMEMBERED: u32 = 1 << 16;

/// Marks of riders per word, and number of words. The marks in the newest rider's word that are ahead of it are clear.
/// The number of words is a power of two, so that rider numbers wrap at a word.
const MARKS: u32 = u64::BITS;
const WORDS: u32 = 2 * REMEMBERED / MARKS;

/// Why a fragment was refused. Nobody is told: the peer is faulty or hostile, or the fragment is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FragmentError {
    /// The fragment reaches beyond its rider's end, or is empty.
    #[error("a fragment lies outside its rider")]
    Beyond,
    /// The rider is longer than the limit.
    #[error("the rider is longer than allowed")]
    Long,
    /// Another fragment gave a different length of the rider.
    #[error("two fragments give their rider different lengths")]
    Lengths,
    /// The rider was delivered already, or is too old to tell.
    #[error("the rider was already delivered, or is too old to check")]
    Delivered,
}

#[derive(Clone, Debug)]
struct PartialPacket {
    bytes: Vec<u8>,
    /// Which bytes have arrived, one bit each.
    has: Vec<u64>,
    missing: usize,
    since: Time,
}

impl PartialPacket {
    /// A rider of `total` bytes, none of which has arrived.
    fn new(total: usize, since: Time) -> Self {
        let has = vec![0; total.div_ceil(64)];
        Self { bytes: vec![0; total], has, missing: total, since }
    }

    /// The memory that it uses, bytes.
    fn kept(&self) -> usize {
        self.bytes.len() + size_of_val(self.has.as_slice())
    }

    /// Stores bytes from `start` on. The first copy of a byte counts: a forged second one changes nothing.
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

/// Incomplete riders, and which riders were delivered.
#[derive(Clone, Debug)]
pub struct Reassembly {
    limits: ReassemblyLimits,
    partial: BTreeMap<u32, PartialPacket>,
    /// In the order of their first fragments.
    order: VecDeque<u32>,
    bytes: usize,
    delivered: DeliveredRiders,
    lost: u64,
}

impl Reassembly {
    /// Creates an empty reassembly.
    pub fn new(limits: ReassemblyLimits) -> Self {
        let (partial, order, delivered) = Default::default();
        Self { limits, partial, order, bytes: 0, delivered, lost: 0 }
    }

    /// Takes a fragment. Returns the rider if it is complete now.
    ///
    /// # Errors
    /// [`FragmentError`]; nothing of the fragment is kept.
    pub fn take(
        &mut self,
        fragment: &Fragment,
        now: Time,
    ) -> Result<Option<Vec<u8>>, FragmentError> {
        let (start, total) = (usize::from(fragment.offset), usize::from(fragment.total));
        let end = start + fragment.bytes.len();
        if fragment.bytes.is_empty() || end > total {
            return Err(FragmentError::Beyond);
        }
        if total > self.limits.longest {
            return Err(FragmentError::Long);
        }
        if self.delivered.has(fragment.rider) {
            return Err(FragmentError::Delivered);
        }
        self.expire(now);
        if self.partial.get(&fragment.rider).is_some_and(|known| known.bytes.len() != total) {
            return Err(FragmentError::Lengths);
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

    fn partial_of(&mut self, rider: u32, total: usize, now: Time) -> &mut PartialPacket {
        self.partial.entry(rider).or_insert_with(|| {
            let partial = PartialPacket::new(total, now);
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

    /// Gives up riders that are too old; [`Self::take`] does so as well.
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

    /// Bytes that are kept, including marks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of riders that were given up.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Which of the last riders were delivered: a window that slides with the newest (as in RFC 6479).
#[derive(Clone, Debug, Default)]
struct DeliveredRiders {
    newest: Option<u32>,
    words: Vec<u64>,
}

impl DeliveredRiders {
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

    /// Clears the words after `from` up to `to`, which the window frees for new riders. It works by the word, because
    /// the sender decides how far rider numbers jump.
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

/// The word that holds a rider's mark, and the bit in it.
fn place(rider: u32) -> (usize, u64) {
    ((rider / MARKS % WORDS) as usize, 1 << (rider % MARKS))
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
