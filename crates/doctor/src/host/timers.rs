//! Sleeps a few times, and notes how late each wake-up is.

use crate::checks::timers::TimerFacts;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The length of one sleep.
const SLEEP: Duration = Duration::from_millis(1);

/// The number of sleeps.
const SLEEPS: usize = 40;

/// Blocks this thread for some 50 ms.
pub fn try_timers() -> TimerFacts {
    let once = |_| {
        let begun = Instant::now();
        thread::sleep(SLEEP);
        begun.elapsed().saturating_sub(SLEEP)
    };
    TimerFacts { overshoots: (0..SLEEPS).map(once).collect() }
}
