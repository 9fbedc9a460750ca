//! A token bucket that gives credit. Pure: the time is an argument.

use std::time::{Duration, Instant};
use thalweg_units::Rate;

/// The time whose bytes may be taken at once beyond the rate; at least `least_burst` bytes.
const BURST: Duration = Duration::from_millis(100);

/// Bytes at a rate, with a burst. Bytes taken too early are owed, and the taker waits.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Bytes per second.
    rate: f64,
    /// The bytes that may be taken at once; negative: owed.
    level: f64,
    /// The least number of bytes that may be taken at once.
    least_burst: f64,
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket. A rate of zero lets one byte per second through, so that no wait is endless.
    ///
    /// `least_burst` is the number of bytes that may be taken at once however low the rate is: the size of one read.
    pub fn new(rate: Rate, least_burst: usize, now: Instant) -> Self {
        let least_burst = least_burst as f64;
        let mut bucket = Self { rate: bytes_a_second(rate), level: 0.0, least_burst, at: now };
        bucket.level = bucket.burst();
        bucket
    }

    /// Changes the rate from now on. Owed bytes stay owed.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.fill(now);
        self.rate = bytes_a_second(rate);
    }

    /// Takes `bytes`, on credit if necessary. Returns how long to wait until nothing is owed.
    ///
    /// `now` never decreases.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Duration {
        self.fill(now);
        self.level -= bytes as f64;
        Duration::try_from_secs_f64(-self.level.min(0.0) / self.rate).unwrap_or(Duration::MAX)
    }

    fn burst(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(self.least_burst)
    }

    fn fill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + since * self.rate).min(self.burst());
        self.at = now;
    }
}

fn bytes_a_second(rate: Rate) -> f64 {
    (rate.as_bps() as f64 / 8.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAST: usize = 64 * 1024;

    proptest! {
        /// Takers that wait as told never get more than the rate and the burst, and, if they take continuously, never
        /// less than the rate.
        #[test]
        fn takers_that_wait_get_the_rate(
            bps in 80_000..10_000_000_000_u64,
            takes in prop::collection::vec(1..65_536_u64, 1..200),
        ) {
            let start = Instant::now();
            let mut bucket = Bucket::new(Rate::from_bps(bps), LEAST, start);
            let (mut now, mut moved) = (start, 0.0);
            for bytes in takes {
                now += bucket.take(bytes, now);
                moved += bytes as f64;
            }
            let given = (now - start).as_secs_f64() * bps as f64 / 8.0;
            let burst = (bps as f64 / 80.0).max(LEAST as f64);
            // Each wait is rounded by up to a nanosecond.
            let rounding = 200.0 * bps as f64 / 8e9 + 1.0;
            prop_assert!(moved <= given + burst + rounding, "{moved} of {given} + {burst}");
            prop_assert!(moved >= given - rounding, "{moved} of {given}");
        }
    }

    #[test]
    fn a_pause_allows_no_more_than_a_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate::from_bps(8_000_000), LEAST, start);
        let later = start + Duration::from_secs(3600);
        assert_eq!(bucket.take(100_000, later), Duration::ZERO);
        assert_eq!(bucket.take(1_000_000, later), Duration::from_secs(1));
        bucket.set_rate(Rate::from_bps(16_000_000), later);
        assert_eq!(bucket.take(0, later), Duration::from_millis(500));
    }
}
