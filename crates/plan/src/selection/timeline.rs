//! The bytes that a path delivered over time, in the first sampling.

use std::time::Duration;
use thalweg_units::Time;

/// The length of a slot: over four of them, bursts of deliveries and gaps of lost packets even out.
pub(super) const SLOT: Duration = Duration::from_millis(50);
/// The most slots, 6.4 s: more than the window of a sampling.
const MOST: usize = 128;

/// Bytes by slot, from a start that is the same for all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    since: Time,
    slots: Vec<u64>,
}

impl Timeline {
    pub(super) fn new(since: Time) -> Self {
        Self { since, slots: Vec::new() }
    }

    pub(super) fn add(&mut self, n: u64, now: Time) {
        let at = self.slot(now);
        if at < MOST && n > 0 {
            self.slots.resize(self.slots.len().max(at + 1), 0);
            self.slots[at] += n;
        }
    }

    /// The slot that contains `now`; earlier ones are over.
    pub(super) fn slot(&self, now: Time) -> usize {
        (now.since(self.since).as_nanos() / SLOT.as_nanos()) as usize
    }

    /// The slot of the first byte.
    pub(super) fn first(&self) -> Option<usize> {
        self.slots.iter().position(|n| *n > 0)
    }

    /// Bytes per second in the `count` slots from `from` on.
    pub(super) fn rate(&self, from: usize, count: usize) -> f64 {
        let sum: u64 = self.slots.iter().skip(from).take(count).sum();
        sum as f64 / (SLOT.as_secs_f64() * count.max(1) as f64)
    }

    /// The highest rate over `count` consecutive slots.
    pub(super) fn peak(&self, count: usize) -> f64 {
        let starts = 0..=self.slots.len().saturating_sub(count);
        starts.map(|from| self.rate(from, count)).fold(0.0, f64::max)
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.since += d;
    }
}
