//! Trains sent with their gaps: a thread that sleeps until shortly before each probe, and then looks at the clock.
//!
//! There is no queue discipline here that would pace for us (fq, etf), and one send per probe is the price: segmentation
//! offload leaves as one burst.

use rustix::thread::set_current_timer_slack;
use std::{
    io,
    num::NonZeroU64,
    sync::LazyLock,
    thread::sleep,
    time::{Duration, Instant},
};
use thalweg_units::Time;

/// Before its time by so much a probe is made ready, and the clock is looked at from then on.
const AHEAD: Duration = Duration::from_micros(100);

/// The zero of [`now`].
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// This process's monotonic clock.
pub fn now() -> Time {
    Time::ZERO + ZERO.elapsed()
}

/// A thread that keeps gaps.
#[derive(Debug)]
pub struct Pacer(());

impl Pacer {
    /// For the thread that calls it, and for its life: timers are as exact as the kernel has them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of_this_thread() -> io::Result<Self> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        Ok(Self(()))
    }

    /// Waits until then; not at all where it has passed.
    pub fn wait(&self, until: Time) {
        sleep(until.since(now()).saturating_sub(AHEAD));
        while now() < until {
            std::hint::spin_loop();
        }
    }

    /// Sends probes with these gaps, the first after its own; when each left, or `None` where that failed.
    ///
    /// `ready` makes the probe at its place shortly before its time, so late that what rides in it can still come, and is
    /// told when it leaves: then, or, where the thread is held up, later. `send` is called at its time. A probe that is a little late does not make those after it late: each has its own
    /// time. After a pause of a gap or more the times begin anew: whoever hurried then would send a burst that nobody
    /// asked for, where estimators take a pause for what it is.
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
            // It wakes a little late as a rule.
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

    /// How exact gaps are is the calibration's to say: here, that none is too short, and order.
    #[test]
    fn no_probe_goes_before_its_time() {
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
