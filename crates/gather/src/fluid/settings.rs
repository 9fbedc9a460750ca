//! Settings of the fluid executor.

use std::time::Duration;
use thalweg_plan::collection::steering;

/// Limits and times of the fluid executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Settings of the steering; its interval is overridden by [`interval`](Self::interval) if that is set.
    pub steering: steering::Settings,
    /// How often rates are observed; `None`: a hundredth of the expected duration, within 0.5 s and 2 s.
    pub interval: Option<Duration>,
    /// A source is given up if no path has brought a byte for this long while its paths broke.
    pub patience: Duration,
}

/// The minimum interval: rates over a shorter one mostly show the effect of buffers.
pub const SHORTEST: Duration = Duration::from_millis(500);
/// The maximum interval, which is also the steering's default.
pub const LONGEST: Duration = Duration::from_secs(2);

impl Default for Settings {
    fn default() -> Self {
        let steering = steering::Settings::default();
        Self { steering, interval: None, patience: Duration::from_secs(20) }
    }
}

impl Settings {
    /// Returns the interval for a collection of this expected duration.
    pub(super) fn interval_for(&self, expected: Option<Duration>) -> Duration {
        let chosen = expected.map_or(LONGEST / 2, |all| all / 100);
        self.interval.unwrap_or_else(|| chosen.clamp(SHORTEST, LONGEST))
    }
}
