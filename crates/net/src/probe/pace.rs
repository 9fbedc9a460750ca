//! Sends trains with exact gaps: a thread sleeps until shortly before each probe and then polls the clock.
//!
//! No queueing discipline that paces (fq, etf) is assumed. The price is one system call per probe, because segmentation
//! offload sends its segments as one burst.

use rustix::thread::set_current_timer_slack;
use std::{
    io,
    num::NonZeroU64,
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};
use thalweg_units::Time;

/// How long before its time a probe is prepared; from then on the clock is polled.
const AHEAD: Duration = Duration::from_micros(100);

/// The zero of [`now`].
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time by this process's monotonic clock.
pub fn now() -> Time {
    Time::ZERO + ZERO.elapsed()
}

/// A thread that sends with exact gaps.
#[derive(Debug)]
pub struct Pacer(());

impl Pacer {
    /// Makes timers of the calling thread as exact as the kernel can, for the thread's life.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn of_this_thread() -> io::Result<Self> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        Ok(Self(()))
    }

    /// Waits until `until`; returns at once if it has passed.
    pub fn wait(&self, until: Time) {
        sleep(until.since(now()).saturating_sub(AHEAD));
        while now() < until {
            std::hint::spin_loop();
        }
    }

    /// Sends probes, each after its gap from the previous one. Returns when each left, or `None` if sending it failed.
    ///
    /// `ready` prepares the probe with the given index shortly before its time, so that late riders still get a place.
    /// It also gets the departure time; the actual one is later only if the thread is delayed. `send` is called at that
    /// time.
    ///
    /// A probe that is a little late does not delay the following ones, because each has its own time. After a delay of
    /// a whole gap or more the schedule restarts: catching up would send an unintended burst, while estimators handle a
    /// pause.
    pub fn send<P>(
        &self,
        gaps: &[Duration],
        mut ready: impl FnMut(usize, Time) -> P,
        mut send: impl FnMut(P) -> io::Result<()>,
    ) -> Vec<Option<Time>> {
        let mut due = now();
        let mut left = Vec::with_capacity(gaps.len());
        for (place, gap) in gaps.iter().enumerate() {
            due += *gap;
            // Sleeping usually ends a little late.
            sleep(due.since(now()).saturating_sub(AHEAD));
            let probe = ready(place, due.max(now()));
            while now() < due {
                std::hint::spin_loop();
            }
            let at = now();
            left.push(send(probe).is_ok().then_some(at));
            if at.since(due) >= *gap {
                due = at;
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks only the order, and that no gap is too short; the calibration measures how exact gaps are.
    #[test]
    fn no_probe_is_sent_before_its_time() {
        let pacer = Pacer::of_this_thread().unwrap();
        let gaps = [0, 300, 1000, 100, 0, 0, 500].map(Duration::from_micros);
        let (mut made, mut told, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        let began = now();
        let ready = |place, leaves| {
            made.push(place);
            told.push(leaves);
            place
        };
        let left = pacer.send(&gaps, ready, |place| {
            sent.push(place);
            if place == 3 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        assert_eq!((made, sent), ((0..7).collect(), (0..7).collect()));
        assert_eq!(left.iter().filter(|at| at.is_none()).count(), 1);
        let mut due = began;
        for ((gap, at), leaves) in gaps.iter().zip(&left).zip(told) {
            due += *gap;
            assert!(at.is_none_or(|at| at >= leaves) && leaves >= due, "{left:?}");
        }
    }
}
