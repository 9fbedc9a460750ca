//! How long frames are on their way over a leg. Pure.

use std::time::Duration;
use thalweg_units::Time;

/// The least transit is that of so long, up to twice as long: clocks of two hosts drift apart by a millisecond in half a
/// minute at the worst that NTP allows.
const WINDOW: Duration = Duration::from_secs(30);

/// One-way delays over a leg, of which the two ends have clocks of their own.
///
/// The shortest of late counts as half a round trip; what others take longer is queueing.
#[derive(Clone, Debug, Default)]
pub struct Transit {
    /// The least difference of the clocks in this window and in the last one, microseconds.
    least: [Option<i64>; 2],
    window: Time,
    last: Option<(u32, i64)>,
}

impl Transit {
    /// A frame that was sent at `sent_us` of the other end's clock, which wraps, has come; how long it was on its way.
    pub fn came(&mut self, now: Time, sent_us: u32, half_rtt: Duration) -> Duration {
        let here = (now.as_nanos() / 1000) as i64;
        let sent = self.unwrap(sent_us);
        if now.since(self.window) >= WINDOW {
            self.least = [None, self.least[0]];
            self.window = now;
        }
        let took = here - sent;
        let least = self.least[0].map_or(took, |least| least.min(took));
        self.least[0] = Some(least);
        let least = self.least[1].map_or(least, |last| least.min(last));
        half_rtt + Duration::from_micros((took - least).max(0).unsigned_abs())
    }

    /// The other end's clock without wraps, counted from its first word.
    fn unwrap(&mut self, sent_us: u32) -> i64 {
        let at = match self.last {
            None => i64::from(sent_us),
            // Frames of one leg come in the order in which they were sent; half a wrap either way is read right.
            Some((last, at)) => at + i64::from(sent_us.wrapping_sub(last) as i32),
        };
        self.last = Some((sent_us, at));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    const HALF: Duration = Duration::from_millis(20);

    #[test]
    fn what_takes_longer_than_the_least_is_queueing() {
        let mut transit = Transit::default();
        // The other clock is 5 s ahead.
        assert_eq!(transit.came(at(120), 5_100_000, HALF), HALF);
        assert_eq!(transit.came(at(250), 5_200_000, HALF), HALF + Duration::from_millis(30));
        assert_eq!(transit.came(at(310), 5_300_000, HALF), HALF);
    }

    #[test]
    fn the_other_clock_wraps_and_old_minima_are_forgotten() {
        let mut transit = Transit::default();
        transit.came(at(10), u32::MAX - 999, HALF);
        assert_eq!(transit.came(at(12), 1000, HALF), HALF);
        let late = |ms: u64| (at(100 + ms), (ms * 1000 + 1000) as u32);
        let mut last = Duration::ZERO;
        for ms in (0..100_000).step_by(1000) {
            let (now, sent) = late(ms);
            last = transit.came(now, sent, HALF);
        }
        assert_eq!(last, HALF, "88 ms more have been the least for long");
    }
}
