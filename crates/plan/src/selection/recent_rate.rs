//! The rate of the last moments, over a sliding window.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// The window moves on by an eighth of its length.
const SLOTS: usize = 8;

/// Bytes per second over the latest window.
#[derive(Clone, Default)]
pub(super) struct RecentRate {
    slot: Duration,
    open: Option<Time>,
    filling: u64,
    slots: VecDeque<u64>,
}

impl RecentRate {
    /// Starts at the next byte, with a window of max(1 s, 8 RTT).
    pub(super) fn new(rtt: Duration) -> Self {
        Self { slot: window(rtt) / SLOTS as u32, ..Self::default() }
    }

    pub(super) fn add(&mut self, n: u64, now: Time) {
        if self.slot.is_zero() {
            return;
        }
        let mut open = *self.open.get_or_insert(now);
        // A long silence empties all slots; further iterations would change nothing.
        for _ in 0..=SLOTS {
            if now.since(open) < self.slot {
                break;
            }
            open += self.slot;
            self.slots.push_back(std::mem::take(&mut self.filling));
            if self.slots.len() > SLOTS {
                self.slots.pop_front();
            }
        }
        self.open = Some(if now.since(open) < self.slot { open } else { now });
        self.filling += n;
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.open.iter_mut().for_each(|t| *t += d);
    }

    /// The rate; `None` until a whole window is over.
    pub(super) fn rate(&self) -> Option<f64> {
        let full = self.slots.len() == SLOTS;
        let secs = self.slot.as_secs_f64() * SLOTS as f64;
        full.then(|| self.slots.iter().sum::<u64>() as f64 / secs)
    }

    pub(super) fn window(&self) -> Duration {
        self.slot * SLOTS as u32
    }
}

/// max(1 s, 8 RTT): a shorter change may be one loss and its recovery.
pub(super) fn window(rtt: Duration) -> Duration {
    Duration::from_secs(1).max(8 * rtt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_older_bytes() {
        let mut recent = RecentRate::new(Duration::from_millis(10));
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        (0..=10).for_each(|i| recent.add(1000, at(i * 100)));
        assert!((recent.rate().unwrap() - 10_000.0).abs() < 1500.0);
        recent.add(0, at(60_000));
        assert_eq!(recent.rate(), Some(0.0));
    }
}
