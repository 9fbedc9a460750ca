//! The monotonic clock that all streams of a node share.

use thalweg_units::Time;
use tokio::time::Instant;

/// Time since the service began; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// From now on.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time in microseconds, as it goes with frames: it wraps after 71 minutes.
    pub fn micros(&self) -> u32 {
        (self.now().as_nanos() / 1000) as u32
    }
}
