//! Detects long polls in debug builds: work that a peer can request must not run on a thread of the runtime.
//!
//! Only the processor time of the polling thread counts, so a busy machine causes no false alarms. If
//! `THALWEG_POLL_LIMIT` is set to a number of milliseconds, a poll that takes longer ends the process. Release builds
//! measure nothing.

use std::future::Future;

/// Watches the polls of this future; `what` names it in the message about a long poll.
#[cfg(not(debug_assertions))]
pub fn watched<F: Future>(_: &'static str, work: F) -> F {
    work
}

#[cfg(debug_assertions)]
pub use timed::watched;

#[cfg(debug_assertions)]
mod timed {
    use super::Future;
    use rustix::time::{ClockId, clock_gettime};
    use std::{
        pin::Pin,
        process::abort,
        sync::LazyLock,
        task::{Context, Poll},
        time::Duration,
    };

    /// The configured limit; `None`: nothing is measured.
    static LIMIT: LazyLock<Option<Duration>> = LazyLock::new(|| {
        let text = std::env::var("THALWEG_POLL_LIMIT").ok()?;
        text.parse().ok().map(Duration::from_millis)
    });

    /// A future whose polls are watched.
    #[derive(Debug)]
    pub struct Watched<F> {
        what: &'static str,
        work: Pin<Box<F>>,
    }

    /// Watches the polls of this future; `what` names it in the message about a long poll.
    pub fn watched<F: Future>(what: &'static str, work: F) -> Watched<F> {
        Watched { what, work: Box::pin(work) }
    }

    impl<F: Future> Future for Watched<F> {
        type Output = F::Output;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
            let Some(limit) = *LIMIT else { return self.work.as_mut().poll(cx) };
            let (polled, took) = measured(|| self.work.as_mut().poll(cx));
            if took > limit {
                tell(self.what, took, limit);
                abort();
            }
            polled
        }
    }

    #[expect(clippy::print_stderr, reason = "the process ends here, without a log")]
    fn tell(what: &'static str, took: Duration, limit: Duration) {
        eprintln!("a poll of task `{what}` used its thread for {took:?}, longer than {limit:?}");
    }

    /// The result, and the processor time that this thread spent on it.
    fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
        let began = now();
        let done = work();
        (done, now().saturating_sub(began))
    }

    fn now() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let whole = Duration::from_secs(time.tv_sec.unsigned_abs());
        whole + Duration::from_nanos(time.tv_nsec.unsigned_abs())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_the_time_of_this_thread_on_a_processor_counts() {
            let (_, slept) = measured(|| std::thread::sleep(Duration::from_millis(200)));
            assert!(slept < Duration::from_millis(100), "{slept:?}");
            let began = now();
            let working = || while now().saturating_sub(began) < Duration::from_millis(60) {};
            let ((), worked) = measured(working);
            assert!(worked > Duration::from_millis(50), "{worked:?}");
        }
    }
}
