//! The wall clock, which can be replaced in tests.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_units::WallTime;

/// A wall clock. Cheap to clone. The default is the system's.
///
/// It may jump in either direction; code that waits for a date must ask repeatedly.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl WallClock {
    /// Creates a clock that calls `now`.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The date by this clock.
    pub fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The system's clock. A date before 1970 counts as 1970.
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }
}

/// The processor time of the calling thread; `None` if the kernel does not tell.
pub fn thread_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).ok()
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({:?})", self.now())
    }
}
