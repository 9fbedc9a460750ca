//! The limit of `--limit-rate`: bytes per second over all paths and downloads together.

use parking_lot::Mutex;
use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// The time whose bytes may arrive at once after a pause.
const BURST: Duration = Duration::from_millis(100);

const NANOS: i128 = 1_000_000_000;

/// A limit that any number of downloads share.
///
/// It is a bucket that time fills and arriving bytes empty. Bytes are charged after they have arrived, because the size
/// of a read is not known in advance. So each path may overdraw the bucket by one read, which the waits compensate
/// exactly.
#[derive(Debug)]
pub struct RateLimit {
    bucket: Mutex<DebtBucket>,
    epoch: Instant,
}

impl RateLimit {
    /// Creates a limit of this many bytes per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bucket: Mutex::new(DebtBucket::new(bytes_per_second)), epoch: Instant::now() }
    }

    /// The limit.
    pub fn rate(&self) -> Rate {
        let bytes = u64::try_from(self.bucket.lock().rate).unwrap_or(u64::MAX);
        Rate::from_bps(bytes.saturating_mul(8))
    }

    /// Charges `n` bytes that have arrived. Returns how long to wait before the next read.
    ///
    /// Whoever charges first waits least, so the waits of several readers are in order.
    pub fn charge(&self, n: u64) -> Duration {
        let mut bucket = self.bucket.lock();
        bucket.charge(n, self.epoch.elapsed())
    }
}

/// The bucket without a clock: times are relative to some start and never decrease.
#[derive(Debug)]
struct DebtBucket {
    /// Bytes per second.
    rate: i128,
    /// Bytes that arrived too early, in bytes · 10⁻⁹; negative: bytes that may arrive at once. Integers keep the sum of
    /// single bytes over days exact.
    debt: i128,
    at: Duration,
}

impl DebtBucket {
    fn new(rate: NonZeroU64) -> Self {
        let rate = i128::from(rate.get());
        Self { rate, debt: Self::full(rate), at: Duration::ZERO }
    }

    fn full(rate: i128) -> i128 {
        -rate * BURST.as_nanos() as i128
    }

    fn charge(&mut self, n: u64, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_nanos() as i128;
        self.at = self.at.max(now);
        let earned = self.rate.saturating_mul(passed);
        self.debt = self.debt.saturating_sub(earned).max(Self::full(self.rate));
        self.debt = self.debt.saturating_add(i128::from(n) * NANOS);
        let wait = (self.debt.max(0) + self.rate - 1) / self.rate;
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(rate: u64) -> DebtBucket {
        DebtBucket::new(NonZeroU64::new(rate).unwrap())
    }

    #[test]
    fn a_pause_earns_a_tenth_of_a_second_and_no_more() {
        let mut bucket = bucket(1000);
        assert_eq!(bucket.charge(100, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.charge(500, Duration::ZERO), Duration::from_millis(500));
        assert_eq!(bucket.charge(100, Duration::from_secs(3600)), Duration::ZERO);
        assert_eq!(bucket.charge(1, Duration::from_secs(3600)), Duration::from_millis(1));
    }

    #[test]
    fn the_largest_numbers_are_no_trouble() {
        let mut fast = bucket(u64::MAX);
        assert_eq!(fast.charge(u64::MAX / 20, Duration::MAX), Duration::ZERO);
        let mut bucket = bucket(1);
        let mut wait = Duration::ZERO;
        for _ in 0..100 {
            wait = bucket.charge(u64::MAX, Duration::from_secs(u64::MAX));
        }
        assert_eq!(wait, Duration::from_nanos(u64::MAX));
        let limit = super::RateLimit::new(NonZeroU64::MAX);
        assert_eq!((limit.charge(1000), limit.rate()), (Duration::ZERO, Rate::from_bps(u64::MAX)));
    }

    proptest! {
        /// Readers that wait as told get the rate over any length of time, and never more, whatever their number and
        /// the size of their reads.
        #[test]
        fn the_rate_is_kept_exactly(
            rate in 1u64..10_000_000_000,
            reads in proptest::collection::vec(1u64..500_000, 50..300),
            readers in 1usize..6,
        ) {
            let mut bucket = bucket(rate);
            let mut due = vec![Duration::ZERO; readers];
            let (mut came, mut last) = (0u64, 0u64);
            for n in reads {
                let now = *due.iter().min().unwrap();
                let earned = rate as f64 * (now + BURST).as_secs_f64();
                // Bytes charged before this time are paid for, except one read of each reader.
                prop_assert!(came as f64 <= earned + readers as f64 * 500_000.0 + 1.0);
                let reader = due.iter().position(|t| *t == now).unwrap();
                due[reader] = now + bucket.charge(n, now);
                (came, last) = (came + n, n);
            }
            let end = *due.iter().max().unwrap();
            let ideal = came as f64 / rate as f64;
            let slack = BURST.as_secs_f64() + last as f64 / rate as f64 + 1e-6;
            prop_assert!((end.as_secs_f64() - ideal).abs() <= slack, "{end:?} for {ideal}");
        }
    }
}
