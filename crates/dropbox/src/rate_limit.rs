//! Limits the rate of requests per address. `thalweg_node` limits the number of open channels where it accepts them.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};
use thalweg_base::peer_source::source_of;
use thalweg_wire::bistro::Refusal;
use tokio::time::Instant;

/// The maximum number of tracked addresses; beyond it the one whose bucket is nearest to full is forgotten.
const ADDRESSES: usize = 65_536;

/// The size of a bucket: the requests of this many seconds at the sustained rate.
const BURST: f64 = 10.0;

/// A token bucket for each address.
#[derive(Debug)]
pub(super) struct AddressLimits {
    per_second: f64,
    buckets: Mutex<Buckets>,
}

/// The buckets that are not full, and when each will be. A full bucket is not stored, because it is the state of an
/// unknown address.
#[derive(Debug, Default)]
struct Buckets {
    levels: BTreeMap<IpAddr, (f64, Instant)>,
    full_at: BTreeSet<(Instant, IpAddr)>,
}

impl AddressLimits {
    /// Creates buckets with this sustained rate of requests/s, and a burst of ten times as many.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), buckets: Mutex::default() }
    }

    /// Takes `count` requests from the address's bucket.
    ///
    /// # Errors
    /// Returns [`Refusal::Slower`] if the bucket holds fewer.
    pub fn take(&self, from: IpAddr, count: usize) -> Result<(), Refusal> {
        let (source, now, most) = (source_of(from), Instant::now(), self.per_second * BURST);
        let mut buckets = self.buckets.lock();
        let (before, since) = buckets.levels.get(&source).copied().unwrap_or((most, now));
        let passed = now.saturating_duration_since(since).as_secs_f64();
        let left = (before + passed * self.per_second).min(most);
        // A request larger than the bucket passes if the bucket is full, since it could never pass otherwise.
        let wanted = (count as f64).min(most);
        if left < wanted {
            let wait = (wanted - left) / self.per_second;
            return Err(Refusal::Slower((wait * 1e3).ceil() as u32));
        }
        let was_full = self.full_at(before, since);
        buckets.set(source, (left - wanted, now), was_full, self.full_at(left - wanted, now));
        Ok(())
    }

    /// The time at which a bucket with this level will be full.
    fn full_at(&self, left: f64, since: Instant) -> Instant {
        let lacking = (self.per_second * BURST - left).max(0.0);
        since + Duration::from_secs_f64(lacking / self.per_second)
    }
}

impl Buckets {
    /// Stores a bucket. Beyond [`ADDRESSES`] the one that will be full first is forgotten, because that loses the
    /// least.
    fn set(&mut self, source: IpAddr, level: (f64, Instant), was: Instant, full: Instant) {
        self.full_at.remove(&(was, source));
        self.levels.insert(source, level);
        self.full_at.insert((full, source));
        if self.levels.len() > ADDRESSES
            && let Some((_, first)) = self.full_at.pop_first()
        {
            self.levels.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_rate_limit() {
        let pace = AddressLimits::new(2);
        assert!((0..20).all(|_| pace.take(ip(1), 1).is_ok()));
        assert_eq!(pace.take(ip(1), 1), Err(Refusal::Slower(500)));
        assert_eq!(pace.take(ip(2), 20), Ok(()));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!((pace.take(ip(1), 1), pace.take(ip(1), 1)), (Ok(()), Err(Refusal::Slower(500))));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(pace.take(ip(1), 500), Ok(()), "more than ever fits takes all that there is");
        assert!(pace.take(ip(1), 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_maximum_the_least_active_addresses_are_forgotten() {
        let pace = AddressLimits::new(1);
        let busy = ip(1);
        assert!((0..10).all(|_| pace.take(busy, 1).is_ok()));
        let address = |n: u32| IpAddr::from((0x0b00_0000 + n).to_be_bytes());
        // Twice as many as fit; with a linear scan for each this would take minutes.
        for n in 0..2 * ADDRESSES as u32 {
            pace.take(address(n), 1).unwrap();
        }
        assert!(pace.take(busy, 1).is_err(), "who asked most is still known");
        let buckets = pace.buckets.lock();
        assert_eq!((buckets.levels.len(), buckets.full_at.len()), (ADDRESSES, ADDRESSES));
    }
}
