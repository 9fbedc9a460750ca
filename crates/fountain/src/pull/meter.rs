//! Measures the rate of one parent while it owes symbols.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate, Time};

/// The minimum duration of a sample: shorter ones measure bursts of the socket.
const MIN_SAMPLE: Duration = Duration::from_millis(100);

/// The weight of a new sample, in eighths.
const WEIGHT: u64 = 3;

/// The smoothed rate of a parent. Time in which it owed nothing does not count: an idle parent is not a slow one.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// The beginning of this sample, shifted by the time the parent was idle.
    since: Time,
    bytes: u64,
    /// Since when the parent owes nothing.
    idle: Option<Time>,
    smoothed: Option<Rate>,
    last: Rate,
}

impl Meter {
    /// Creates the meter of a parent that owes nothing yet.
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, bytes: 0, idle: Some(now), smoothed: None, last: Rate::ZERO }
    }

    /// Records that the parent owes nothing from now on.
    pub(super) fn pause(&mut self, now: Time) {
        self.idle.get_or_insert(now);
    }

    /// Records that the parent owes something from now on.
    pub(super) fn resume(&mut self, now: Time) {
        if let Some(idle) = self.idle.take() {
            self.since += now.since(idle);
        }
    }

    /// Records requested bytes that arrived; `span` is the parent's round trip.
    pub(super) fn add(&mut self, bytes: u64, span: Duration, now: Time) {
        self.bytes += bytes;
        let took = now.since(self.since);
        if took < span.max(MIN_SAMPLE) {
            return;
        }
        let sample = Rate::over(ByteSize::from_bytes(self.bytes), took);
        self.last = sample;
        self.smoothed = Some(match self.smoothed {
            Some(old) => mean(old, sample),
            None => sample,
        });
        (self.since, self.bytes) = (now, 0);
    }

    /// The smoothed rate; `None` before the first sample.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.smoothed
    }

    /// The rate for sizing a window: the last sample if it is above the smoothed rate, so that a parent whose rate
    /// grows gets more requests at once.
    pub(super) fn peak(&self) -> Option<Rate> {
        self.smoothed.map(|rate| rate.max(self.last))
    }
}

fn mean(old: Rate, new: Rate) -> Rate {
    let weighted = u128::from(old.as_bps()) * u128::from(8 - WEIGHT)
        + u128::from(new.as_bps()) * u128::from(WEIGHT);
    Rate::from_bps(u64::try_from(weighted / 8).unwrap_or(u64::MAX))
}
