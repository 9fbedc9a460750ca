//! Limits log lines that strangers can cause, and counts the others.

use parking_lot::Mutex;
use std::{
    mem,
    time::{Duration, Instant},
};

/// The shortest time between two lines about one kind of trouble. The lines held back are counted in the next one.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one log line pass per second, and counts the others.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// Returns the number of lines held back since the last one if a line may pass now.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_passes_and_counts_the_others() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let throttle = Throttle::default();
        assert_eq!(throttle.pass(at(0)), Some(0));
        assert_eq!((throttle.pass(at(1)), throttle.pass(at(999))), (None, None));
        assert_eq!(throttle.pass(at(1000)), Some(2));
    }
}
