//! One path's sample: bytes over time.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate, Time};

/// Bytes since the first request of a path's share was sent. See [`super::Reason`].
#[derive(Clone, Copy, Default)]
pub(super) struct Sample {
    start: Option<Time>,
    end: Option<Time>,
    bytes: u64,
}

impl Sample {
    /// The first request starts the clock; later ones of the same share do not.
    pub(super) fn open(&mut self, now: Time) {
        self.start.get_or_insert(now);
    }

    pub(super) fn add(&mut self, bytes: u64) {
        if self.end.is_none() {
            self.bytes += bytes;
        }
    }

    /// Stops the clock; the first call counts.
    pub(super) fn close(&mut self, now: Time) {
        self.end.get_or_insert(now);
    }

    pub(super) fn paused(&mut self, d: Duration) {
        if let (Some(start), None) = (&mut self.start, self.end) {
            *start += d;
        }
    }

    /// `None` before the first request.
    pub(super) fn rate(&self, now: Time) -> Option<Rate> {
        let took = self.end.unwrap_or(now).since(self.start?);
        // A clock that has not moved would make any rate infinite.
        let took = took.max(Duration::from_nanos(1));
        Some(Rate::over(ByteSize::from_bytes(self.bytes), took))
    }
}
