//! What the executor goes by.

use std::time::Duration;
use thalweg_plan::collection::steering;

/// Limits and times of the fluid executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What the steering goes by; its interval counts if [`interval`](Self::interval) is set.
    pub steering: steering::Settings,
    /// How often rates are looked at; `None`: a hundredth of the expected time, within
    /// half a second and two.
    pub interval: Option<Duration>,
    /// A source that no way has brought a byte from for so long, while its ways broke, is given up.
    pub patience: Duration,
}

/// Rates of less than this are mostly what buffers did.
pub const SHORTEST: Duration = Duration::from_millis(500);
/// The default of the steering, and what is usual where nothing is known.
pub const LONGEST: Duration = Duration::from_secs(2);

impl Default for Settings {
    fn default() -> Self {
        let steering = steering::Settings::default();
        Self { steering, interval: None, patience: Duration::from_secs(20) }
    }
}

impl Settings {
    /// The interval, if everything takes so long by the estimates.
    pub(super) fn interval_for(&self, expected: Option<Duration>) -> Duration {
        let chosen = expected.map_or(LONGEST / 2, |all| all / 100);
        self.interval.unwrap_or_else(|| chosen.clamp(SHORTEST, LONGEST))
    }
}
