//! Estimates the transit time of frames over a leg. Pure.

use std::time::Duration;
use thalweg_units::Time;

/// The minimum is taken over one to two windows. Clocks drift apart by at most 1 ms in half a minute, by NTP's worst
/// tolerance.
const WINDOW: Duration = Duration::from_secs(30);

/// An estimator of one-way delay between hosts with unsynchronised clocks.
///
/// The recent minimum counts as half a round trip; the excess over it is queueing delay.
#[derive(Clone, Debug, Default)]
pub struct Transit {
    /// The minimum difference of the clocks in this window and in the last one, microseconds.
    least: [Option<i64>; 2],
    window: Time,
    last: Option<(u32, i64)>,
}

impl Transit {
    /// Returns the transit time of a frame that arrives now and was sent at `sent_us` by the peer's clock, which wraps.
    pub fn measure(&mut self, now: Time, sent_us: u32, half_rtt: Duration) -> Duration {
        let here = (now.as_nanos() / 1000) as i64;
        let sent = self.unwrap(sent_us);
        if now.since(self.window) >= WINDOW {
            self.least = [None, self.least[0]];
            self.window = now;
        }
        let delay = here - sent;
        let least = self.least[0].map_or(delay, |least| least.min(delay));
        self.least[0] = Some(least);
        let least = self.least[1].map_or(least, |last| least.min(last));
        half_rtt + Duration::from_micros((delay - least).max(0).unsigned_abs())
    }

    /// Unwraps the peer's clock, starting at its first value.
    fn unwrap(&mut self, sent_us: u32) -> i64 {
        let at = match self.last {
            None => i64::from(sent_us),
            // Frames of one leg arrive in order, so steps of less than half a wrap are unambiguous.
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
    fn the_excess_over_the_minimum_is_queueing_delay() {
        let mut transit = Transit::default();
        // The other clock is 5 s ahead.
        assert_eq!(transit.measure(at(120), 5_100_000, HALF), HALF);
        assert_eq!(transit.measure(at(250), 5_200_000, HALF), HALF + Duration::from_millis(30));
        assert_eq!(transit.measure(at(310), 5_300_000, HALF), HALF);
    }

    #[test]
    fn the_other_clock_wraps_and_old_minima_are_forgotten() {
        let mut transit = Transit::default();
        transit.measure(at(10), u32::MAX - 999, HALF);
        assert_eq!(transit.measure(at(12), 1000, HALF), HALF);
        let late = |ms: u64| (at(100 + ms), (ms * 1000 + 1000) as u32);
        let mut last = Duration::ZERO;
        for ms in (0..100_000).step_by(1000) {
            let (now, sent) = late(ms);
            last = transit.measure(now, sent, HALF);
        }
        assert_eq!(last, HALF, "the new minimum is 88 ms longer");
    }
}
