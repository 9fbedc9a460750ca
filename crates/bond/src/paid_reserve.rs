//! Paid interfaces wait until a deadline cannot be met without them: DBAS's deadline mode as a state machine.

use crate::{Offer, must_begin};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_units::{ByteSize, Rate, Time};

/// The rate of the interfaces in use is measured over this time; before, nothing is decided.
const SPAN: Duration = Duration::from_secs(2);

/// Paid interfaces, or paths over them, that are not used yet.
#[derive(Clone, Debug)]
pub struct PaidReserve<K> {
    paid: BTreeMap<K, Offer>,
    /// The deadline.
    until: Time,
    /// Times and total bytes received, over the last [`SPAN`].
    samples: VecDeque<(Time, u64)>,
}

impl<K: Ord> PaidReserve<K> {
    /// The interfaces in `paid` cost money, and wait; a rate of zero means unknown.
    pub fn new(paid: BTreeMap<K, Offer>, until: Time) -> Self {
        Self { paid, until, samples: VecDeque::new() }
    }

    /// Whether this interface is not to be used yet.
    pub fn holds<Q: Ord + ?Sized>(&self, which: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.paid.contains_key(which)
    }

    /// Records that `done` bytes have arrived and `missing` are left. Returns whether an interface must begin now
    /// ([`must_begin`]); it no longer waits.
    pub fn record_progress(&mut self, done: u64, missing: u64, now: Time) -> bool {
        if self.paid.is_empty() {
            return false;
        }
        // More frequent reports tell nothing new; 100 of them suffice.
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= SPAN / 100) {
            self.samples.push_back((now, done));
        }
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.samples.pop_front();
        }
        let Some((since, before)) = self.samples.front().copied() else { return false };
        let (took, left) = (now.since(since), self.until.since(now));
        if took < SPAN && left > 2 * SPAN {
            return false;
        }
        let free = Rate::over(ByteSize::from_bytes(done.saturating_sub(before)), took);
        let offers: Vec<Offer> = self.paid.values().copied().collect();
        let mut begin = must_begin(free, &offers, missing, left).into_iter();
        let waiting = self.paid.len();
        self.paid.retain(|_, _| !begin.next().unwrap_or(true));
        if self.paid.len() < waiting {
            // The measured rate has to include the interfaces that begin now.
            self.samples.clear();
        }
        self.paid.len() < waiting
    }

    /// Releases all, because nothing else works any more. Returns whether any waited.
    pub fn release_all(&mut self) -> bool {
        !std::mem::take(&mut self.paid).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(mbps: f64) -> BTreeMap<&'static str, Offer> {
        [("lte0", Offer { rate: Rate::from_mbps(mbps), price: 5.0, left: None })].into()
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    /// Reports a megabyte a second that is free, until an interface begins; returns when that was, s.
    fn begins_at(mut reserve: PaidReserve<&'static str>, bytes: u64) -> Option<u64> {
        (0..100).find(|s| reserve.record_progress(s * 1_000_000, bytes - s * 1_000_000, at(*s)))
    }

    #[test]
    fn nothing_is_paid_if_the_deadline_is_met_without() {
        assert_eq!(begins_at(PaidReserve::new(paid(8.0), at(1000)), 100_000_000), None);
    }

    #[test]
    fn an_interface_of_unknown_rate_begins_as_soon_as_it_is_needed() {
        let reserve = PaidReserve::new(paid(0.0), at(60));
        assert!(reserve.holds("lte0") && !reserve.holds("eth0"));
        assert_eq!(begins_at(reserve, 100_000_000), Some(2));
    }

    #[test]
    fn a_fast_interface_begins_late() {
        // At 1 MB/s some 46 of 100 MB are missing after 90 % of 60 s; they take 5 s at 10 MB/s.
        let begins = begins_at(PaidReserve::new(paid(80.0), at(60)), 100_000_000);
        assert!(begins > Some(30) && begins < Some(58), "{begins:?}");
    }

    #[test]
    fn all_are_used_if_nothing_else_works() {
        let mut reserve = PaidReserve::new(paid(8.0), at(60));
        assert!(reserve.release_all() && !reserve.holds("lte0") && !reserve.release_all());
    }
}
