//! What costs waits until a time cannot be met without it: DBAS's deadline mode, as a machine that is told what came.

use crate::{Offer, begins};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_units::{ByteSize, Rate, Time};

/// What is in use is measured over so long; before, nothing is decided.
const SPAN: Duration = Duration::from_secs(2);

/// Interfaces, or paths by them, that are not used yet.
#[derive(Clone, Debug)]
pub struct Thrift<K> {
    dear: BTreeMap<K, Offer>,
    /// When all is to be there.
    until: Time,
    /// When how many bytes had come, over the last [`SPAN`].
    looks: VecDeque<(Time, u64)>,
}

impl<K: Ord> Thrift<K> {
    /// These cost, and wait; a rate of zero is not known.
    pub fn new(dear: BTreeMap<K, Offer>, until: Time) -> Self {
        Self { dear, until, looks: VecDeque::new() }
    }

    /// Whether it is not to be used yet.
    pub fn holds<Q: Ord + ?Sized>(&self, which: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.dear.contains_key(which)
    }

    /// So many bytes have come by now, and so many are missing: whether one must begin ([`begins`]), which waits no more.
    pub fn came(&mut self, done: u64, missing: u64, now: Time) -> bool {
        if self.dear.is_empty() {
            return false;
        }
        // What is told more often says nothing new, and 100 of them are enough.
        if self.looks.back().is_none_or(|(at, _)| now.since(*at) >= SPAN / 100) {
            self.looks.push_back((now, done));
        }
        while self.looks.get(1).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.looks.pop_front();
        }
        let Some((since, before)) = self.looks.front().copied() else { return false };
        let (took, left) = (now.since(since), self.until.since(now));
        if took < SPAN && left > 2 * SPAN {
            return false;
        }
        let free = Rate::over(ByteSize::from_bytes(done.saturating_sub(before)), took);
        let offers: Vec<Offer> = self.dear.values().copied().collect();
        let mut begin = begins(free, &offers, missing, left).into_iter();
        let waiting = self.dear.len();
        self.dear.retain(|_, _| !begin.next().unwrap_or(true));
        if self.dear.len() < waiting {
            // Their rates count from now on.
            self.looks.clear();
        }
        self.dear.len() < waiting
    }

    /// Nothing else works any more: none waits. Whether any did.
    pub fn spend(&mut self) -> bool {
        !std::mem::take(&mut self.dear).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dear(mbps: f64) -> BTreeMap<&'static str, Offer> {
        [("lte0", Offer { rate: Rate::from_mbps(mbps), price: 5.0, left: None })].into()
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    /// Told each second, with a free megabyte a second, until it begins; when that was.
    fn begins_at(mut thrift: Thrift<&'static str>, bytes: u64) -> Option<u64> {
        (0..100).find(|s| thrift.came(s * 1_000_000, bytes - s * 1_000_000, at(*s)))
    }

    #[test]
    fn nothing_is_paid_where_the_time_is_met() {
        assert_eq!(begins_at(Thrift::new(dear(8.0), at(1000)), 100_000_000), None);
    }

    #[test]
    fn what_is_not_known_begins_as_soon_as_it_is_clear_that_it_must() {
        let thrift = Thrift::new(dear(0.0), at(60));
        assert!(thrift.holds("lte0") && !thrift.holds("eth0"));
        assert_eq!(begins_at(thrift, 100_000_000), Some(2));
    }

    #[test]
    fn what_is_fast_begins_late() {
        // 10 MB/s: of 100 MB at 1 MB/s in 60 s some 46 are lacking, which take 5 s.
        let begins = begins_at(Thrift::new(dear(80.0), at(60)), 100_000_000);
        assert!(begins > Some(30) && begins < Some(58), "{begins:?}");
    }

    #[test]
    fn all_are_used_where_nothing_else_works() {
        let mut thrift = Thrift::new(dear(8.0), at(60));
        assert!(thrift.spend() && !thrift.holds("lte0") && !thrift.spend());
    }
}
