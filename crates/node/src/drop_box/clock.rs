//! A clock that never goes back, whatever the host's does.

use crate::mesh::WallClock;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use thalweg_units::WallTime;

/// Dates for stamps: the host's, but always later than those given before; cheap to clone.
///
/// If the host's clock jumps back, the dates stand still, a nanosecond for each stamp, until it
/// has caught up: so nobody gets a stamp before a deadline that was over already.
#[derive(Clone, Debug)]
pub(super) struct StampClock {
    clock: WallClock,
    last: Arc<AtomicU64>,
}

impl StampClock {
    /// By this clock of the host.
    pub fn new(clock: WallClock) -> Self {
        Self { clock, last: Arc::default() }
    }

    /// Dates up to this one have been given before, e.g. by an earlier process.
    pub fn passed(&self, date: WallTime) {
        self.last.fetch_max(date.as_unix_nanos(), Ordering::SeqCst);
    }

    /// So many dates, a nanosecond apart, of which this is the first.
    pub fn take(&self, count: u64) -> WallTime {
        let now = self.clock.now().as_unix_nanos();
        let first = |last: u64| now.max(last.saturating_add(1));
        let next = |last: u64| Some(first(last).saturating_add(count.saturating_sub(1)));
        let (Ok(last) | Err(last)) =
            self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        WallTime::from_unix_nanos(first(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_only_grow_when_the_host_s_clock_goes_back() {
        let host = Arc::new(AtomicU64::new(1000));
        let clock = StampClock::new(WallClock::new({
            let host = host.clone();
            move || WallTime::from_unix_nanos(host.load(Ordering::SeqCst))
        }));
        let nanos = |count| clock.take(count).as_unix_nanos();
        assert_eq!((nanos(3), nanos(1)), (1000, 1003));
        host.store(5, Ordering::SeqCst);
        assert_eq!((nanos(1), nanos(2), nanos(1)), (1004, 1005, 1007));
        clock.passed(WallTime::from_unix_nanos(5000));
        assert_eq!(nanos(1), 5001);
        host.store(9000, Ordering::SeqCst);
        assert_eq!(nanos(1), 9000);
    }
}
