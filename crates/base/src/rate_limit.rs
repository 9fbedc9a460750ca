//! The limit of `--bwlimit` and `--limit-rate`: bytes per second over all paths and files together, by the time of the
//! week if there is a timetable.

use crate::rate_timetable::RateTimetable;
use jiff::{Timestamp, tz::TimeZone};
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
    bucket: Mutex<ScheduledBucket>,
    epoch: Instant,
}

impl RateLimit {
    /// Creates a limit of this many bytes per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self::scheduled(RateTimetable::constant(bytes_per_second))
    }

    /// Creates a limit that follows a timetable, by the local time of this host.
    pub fn scheduled(timetable: RateTimetable) -> Self {
        let bucket = ScheduledBucket::new(timetable, &mut local_second_of_week);
        Self { bucket: Mutex::new(bucket), epoch: Instant::now() }
    }

    /// The present limit; the highest rate if there is none now.
    pub fn rate(&self) -> Rate {
        let mut bucket = self.bucket.lock();
        bucket.follow(self.epoch.elapsed(), &mut local_second_of_week);
        let rate = bucket.now.as_ref().map_or(i128::MAX, |bucket| bucket.rate);
        Rate::from_bps(u64::try_from(rate).unwrap_or(u64::MAX).saturating_mul(8))
    }

    /// The bytes that should be sent at once at the present rate, so that no pause is longer than a tenth of a second; at
    /// least 1 KiB.
    pub fn piece(&self) -> usize {
        let tenth = self.rate().as_bps() / 80;
        usize::try_from(tenth).unwrap_or(usize::MAX).max(1024)
    }

    /// Charges `n` bytes that have arrived. Returns how long to wait before the next read.
    ///
    /// Whoever charges first waits least, so the waits of several readers are in order.
    pub fn charge(&self, n: u64) -> Duration {
        self.bucket.lock().charge(n, self.epoch.elapsed(), &mut local_second_of_week)
    }
}

/// The seconds since Monday 0:00, local time.
fn local_second_of_week() -> u32 {
    let now = TimeZone::system().to_datetime(Timestamp::now());
    let days = u32::try_from(now.weekday().to_monday_zero_offset()).unwrap_or_default();
    let [hour, minute, second] = [now.hour(), now.minute(), now.second()].map(|n| n.max(0) as u32);
    days * 86_400 + hour * 3600 + minute * 60 + second
}

/// How often the clock is looked at, which may be set at any time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// The bucket of the present rate. `second` tells the second of the week; times are relative to some start.
#[derive(Debug)]
struct ScheduledBucket {
    timetable: RateTimetable,
    /// `None`: there is no limit now.
    now: Option<DebtBucket>,
    /// When the timetable is looked at again.
    until: Duration,
    /// When its next entry begins, by the clock that was last seen.
    next: Duration,
}

impl ScheduledBucket {
    fn new(timetable: RateTimetable, second: &mut dyn FnMut() -> u32) -> Self {
        let zero = Duration::ZERO;
        let mut bucket = Self { timetable, now: None, until: zero, next: zero };
        bucket.follow(zero, second);
        bucket
    }

    /// Takes the rate of the timetable at this time.
    fn follow(&mut self, now: Duration, second: &mut dyn FnMut() -> u32) {
        if now < self.until {
            return;
        }
        if self.timetable.is_constant() {
            (self.until, self.next) = (Duration::MAX, Duration::MAX);
            self.now = self.timetable.at(0).0.map(|rate| DebtBucket::new(rate, now));
            return;
        }
        let (rate, left) = self.timetable.at(second());
        let left = Duration::from_secs(left.into());
        self.next = now.saturating_add(left);
        self.until = now.saturating_add(left.min(CLOCK_INTERVAL));
        match (&mut self.now, rate) {
            (Some(bucket), Some(rate)) => bucket.set_rate(rate, now),
            (bucket, rate) => *bucket = rate.map(|rate| DebtBucket::new(rate, now)),
        }
    }

    /// As [`RateLimit::charge`]. No wait is longer than until the next entry, which may allow more.
    fn charge(&mut self, n: u64, now: Duration, second: &mut dyn FnMut() -> u32) -> Duration {
        self.follow(now, second);
        let next = self.next;
        let Some(bucket) = &mut self.now else { return Duration::ZERO };
        bucket.charge(n, now).min(next.saturating_sub(now))
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
    fn new(rate: NonZeroU64, now: Duration) -> Self {
        let rate = i128::from(rate.get());
        Self { rate, debt: Self::full(rate), at: now }
    }

    /// Changes the rate from now on. Bytes that are owed stay owed.
    fn set_rate(&mut self, rate: NonZeroU64, now: Duration) {
        self.charge(0, now);
        self.rate = i128::from(rate.get());
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
        DebtBucket::new(NonZeroU64::new(rate).unwrap(), Duration::ZERO)
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
    fn the_rate_follows_the_clock() {
        let table = "08:00,1000B 08:01,off 08:02,2000B".parse().unwrap();
        let clock = std::cell::Cell::new(8 * 3600);
        let mut second = || clock.get();
        let mut bucket = ScheduledBucket::new(table, &mut second);
        let at = Duration::from_secs;
        // A tenth of a second is free after a pause; then each byte takes a millisecond.
        assert_eq!(bucket.charge(1100, at(0), &mut second), at(1));
        // Nobody waits beyond the minute after which there is no limit.
        clock.set(clock.get() + 31);
        assert_eq!(bucket.charge(1_000_000, at(31), &mut second), at(29));
        clock.set(8 * 3600 + 60);
        assert_eq!(bucket.charge(1_000_000, at(60), &mut second), Duration::ZERO);
        // A clock that is set is noticed within half a minute.
        clock.set(8 * 3600 + 120);
        assert_eq!(bucket.charge(0, at(89), &mut second), Duration::ZERO);
        assert_eq!(bucket.charge(2200, at(90), &mut second), at(1));
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
