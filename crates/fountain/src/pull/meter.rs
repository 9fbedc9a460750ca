//! The rate of one parent while it owes symbols.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate, Time};

/// The least time a sample takes: shorter ones measure bursts of the socket.
const MIN_SAMPLE: Duration = Duration::from_millis(100);

/// Weight of a new sample, as a share of 8.
const WEIGHT: u64 = 3;

/// Samples of a parent's rate, smoothed. Time in which it owed nothing is left out: an
/// idle parent is not a slow one.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// When this sample began, later by the time it was idle.
    since: Time,
    bytes: u64,
    /// Since when it owes nothing.
    idle: Option<Time>,
    smoothed: Option<Rate>,
    last: Rate,
}

impl Meter {
    /// Of a parent that owes nothing yet.
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, bytes: 0, idle: Some(now), smoothed: None, last: Rate::ZERO }
    }

    /// The parent owes nothing from now on.
    pub(super) fn pause(&mut self, now: Time) {
        self.idle.get_or_insert(now);
    }

    /// The parent owes something from now on.
    pub(super) fn resume(&mut self, now: Time) {
        if let Some(idle) = self.idle.take() {
            self.since += now.since(idle);
        }
    }

    /// Bytes came that it owed; `span` is the parent's round trip.
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

    /// The rate to size a window by: the last sample if it is above the smoothed rate, so
    /// that a parent that grows is asked for more at once.
    pub(super) fn peak(&self) -> Option<Rate> {
        self.smoothed.map(|rate| rate.max(self.last))
    }
}

fn mean(old: Rate, new: Rate) -> Rate {
    let weighted = u128::from(old.as_bps()) * u128::from(8 - WEIGHT)
        + u128::from(new.as_bps()) * u128::from(WEIGHT);
    Rate::from_bps(u64::try_from(weighted / 8).unwrap_or(u64::MAX))
}
