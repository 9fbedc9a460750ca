//! Measures whether programs of normal priority got a CPU when they wanted one. The emulator has a higher priority, so
//! its lateness does not show that nodes wait.

use std::{
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The sleep after which a program wants a CPU.
const SLEEP: Duration = Duration::from_millis(10);

/// The length of the spans over which waiting is averaged.
const WINDOW: Duration = Duration::from_secs(5);

/// A thread that sleeps repeatedly and measures how long it waits for a CPU afterwards.
pub struct Starved {
    stop: SyncSender<()>,
    thread: JoinHandle<f64>,
}

impl Starved {
    /// Starts the thread.
    pub fn watch() -> Self {
        let (stop, stopped) = sync_channel(1);
        let sleep = move || match stopped.recv_timeout(SLEEP) {
            Err(RecvTimeoutError::Timeout) => true,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
        };
        Self { stop, thread: thread::spawn(move || worst(sleep, Instant::now)) }
    }

    /// Ends the thread and returns the share of the worst five seconds, in %, in which it waited besides its sleeps of
    /// 10 ms.
    pub fn end(self) -> f64 {
        drop(self.stop);
        self.thread.join().unwrap_or(100.0)
    }
}

/// Measures until `sleep` returns false.
fn worst(mut sleep: impl FnMut() -> bool, mut now: impl FnMut() -> Instant) -> f64 {
    let (mut worst, mut began, mut slept) = (0.0_f64, now(), Duration::ZERO);
    loop {
        let goes_on = sleep();
        slept += SLEEP;
        let passed = now().duration_since(began);
        if passed >= WINDOW {
            let waited = passed.saturating_sub(slept);
            worst = worst.max(100.0 * waited.as_secs_f64() / passed.as_secs_f64());
            (began, slept) = (began + passed, Duration::ZERO);
        }
        if !goes_on {
            return worst;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_worst_span_counts() {
        let at = Cell::new(Instant::now());
        let mut left = 2000;
        let sleep = || {
            left -= 1;
            // 30 ms of waiting after each sleep for thirteen seconds, which contain one whole span.
            let waits = if (400..725).contains(&left) { 30 } else { 0 };
            at.set(at.get() + SLEEP + Duration::from_millis(waits));
            left > 0
        };
        let worst = worst(sleep, || at.get());
        assert!((worst - 75.0).abs() < 1.0, "{worst}");
    }
}
