//! Whether programs of ordinary priority got a processor when they wanted one. The emulator has a higher priority: its
//! lateness does not tell of nodes that wait.

use std::{
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A sleep, after which a program wants a processor.
const SLEEP: Duration = Duration::from_millis(10);

/// Waiting is judged by spans of this length.
const WINDOW: Duration = Duration::from_secs(5);

/// A thread that sleeps and sees how long it has to wait then.
pub struct Starved {
    stop: SyncSender<()>,
    thread: JoinHandle<f64>,
}

impl Starved {
    /// From now on.
    pub fn watch() -> Self {
        let (stop, stopped) = sync_channel(1);
        let sleep = move || match stopped.recv_timeout(SLEEP) {
            Err(RecvTimeoutError::Timeout) => true,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
        };
        Self { stop, thread: thread::spawn(move || worst(sleep, Instant::now)) }
    }

    /// Of the worst five seconds the share in which it waited, %: beside 10 ms of sleep.
    pub fn end(self) -> f64 {
        drop(self.stop);
        self.thread.join().unwrap_or(100.0)
    }
}

/// Until `sleep` says that it is over.
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
            // 30 ms of waiting at each sleep of thirteen seconds, in which one span lies whole.
            let waits = if (400..725).contains(&left) { 30 } else { 0 };
            at.set(at.get() + SLEEP + Duration::from_millis(waits));
            left > 0
        };
        let worst = worst(sleep, || at.get());
        assert!((worst - 75.0).abs() < 1.0, "{worst}");
    }
}
