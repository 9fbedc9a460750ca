//! The host's date, as an argument.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use thalweg_units::WallTime;

/// Tells the date; cheap to clone. The system's by default, another in tests.
///
/// It may jump either way; whoever waits for a date asks again and again.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl WallClock {
    /// The clock that asks `now`.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The date.
    pub fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The system's clock; a date before 1970 counts as 1970.
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({:?})", self.now())
    }
}
