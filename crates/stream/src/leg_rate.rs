//! The rate that a leg achieves. Pure.

use std::time::Duration;
use thalweg_units::{Rate, Time};

/// The busy share of a sampling period from which its sample counts.
const BUSY_SHARE: f64 = 0.6;

/// A rate this old is forgotten, so that the leg may try a higher one.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The weight of the newest sample.
const NEW_WEIGHT: f64 = 0.3;

/// The rate that a leg achieves while busy.
#[derive(Clone, Debug, Default)]
pub struct LegRate {
    bytes: u64,
    busy: Duration,
    rate: Option<(Time, f64)>,
}

impl LegRate {
    /// Counts sent bytes.
    pub fn add_sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Counts time during which the leg had something to send.
    pub fn add_busy(&mut self, time: Duration) {
        self.busy += time;
    }

    /// Ends a sampling period of length `passed`.
    pub fn tick(&mut self, now: Time, passed: Duration) {
        let share = self.busy.as_secs_f64() / passed.as_secs_f64().max(1e-3);
        if share >= BUSY_SHARE {
            let sample = self.bytes as f64 * 8.0 / passed.as_secs_f64().max(1e-3);
            let old = self.rate.map_or(sample, |(_, rate)| rate);
            self.rate = Some((now, old + (sample - old) * NEW_WEIGHT));
        }
        if self.rate.is_some_and(|(at, _)| now.since(at) > MAX_AGE) {
            self.rate = None;
        }
        (self.bytes, self.busy) = (0, Duration::ZERO);
    }

    /// The rate; `None` if the leg has not been the bottleneck recently.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.map(|(_, bps)| Rate::from_bps(bps as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_legs_rate_is_its_rate_while_busy() {
        let (mut leg, tick) = (LegRate::default(), Duration::from_millis(250));
        leg.add_sent(1000);
        leg.add_busy(tick / 10);
        leg.tick(at(250), tick);
        assert_eq!(leg.rate(), None, "it had nothing to send");
        for n in 2..30 {
            leg.add_sent(31_250);
            leg.add_busy(tick);
            leg.tick(at(250 * n), tick);
        }
        assert_eq!(leg.rate(), Some(Rate::from_bps(1_000_000)));
        leg.tick(at(30_000), tick);
        assert_eq!(leg.rate(), None, "long ago");
    }
}
