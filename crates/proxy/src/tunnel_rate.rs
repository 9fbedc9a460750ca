//! Computes a tunnel's rate from byte counts that are sampled regularly. Pure: times are arguments. A run is a sequence
//! of samples between which the tunnel was busy.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// The interval between samples.
pub const LOOK: Duration = Duration::from_millis(250);

/// Fewer bytes than this between two samples are background traffic of a program: they end a run.
const BUSY: u64 = 8 << 10;

/// The beginning of a run that is left out: slow start, and bytes that were buffered while the program did not read,
/// which arrive faster than any path.
const FIRST: Duration = Duration::from_secs(1);

/// The shortest time to average over: the bytes of one sample depend on when the task was scheduled.
const LEAST: Duration = Duration::from_secs(1);

/// A run of fewer bytes than this does not count.
const MIN_BYTES: u64 = 256 << 10;

/// The mean rate over the longest busy run.
///
/// It is never a peak: buffered bytes, and those of two delayed samples, arrive faster than the network delivers.
#[derive(Debug, Default)]
pub struct TunnelRate {
    /// The last look: its time, and the bytes that had come by then.
    last: (Duration, u64),
    /// The current run: when it began, and the look from which on it counts.
    run: Option<(Duration, Option<(Duration, u64)>)>,
    /// Of the longest run, the bytes that count and how long they took.
    best: (u64, Duration),
}

impl TunnelRate {
    /// Takes a sample: at time `at`, `bytes` had arrived in total. Both may count from any start, and never decrease.
    pub fn observe(&mut self, at: Duration, bytes: u64) {
        let (before, had) = std::mem::replace(&mut self.last, (at, bytes));
        if bytes - had < BUSY {
            self.run = None;
            return;
        }
        let (began, counted) = self.run.get_or_insert((before, None));
        if at - *began < FIRST {
            return;
        }
        let (from, already) = *counted.get_or_insert((at, bytes));
        if bytes - already > self.best.0 {
            self.best = (bytes - already, at - from);
        }
    }

    /// The rate of a tunnel that lasted `whole` and carried `bytes`; `None` if that was too little to measure.
    ///
    /// If no run was long enough, the rate is that of the whole tunnel, over at least a second; this underestimates the
    /// path.
    pub fn rate(&self, whole: Duration, bytes: u64) -> Option<Rate> {
        let (bytes, took) = match self.best {
            best if best.1 >= LEAST => best,
            _ if whole <= FIRST + LEAST => (bytes, whole.max(LEAST)),
            _ => return None,
        };
        (bytes >= MIN_BYTES).then(|| Rate::over(ByteSize::from_bytes(bytes), took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate after these looks, each given as milliseconds since the last one and kB that came in between.
    fn rate(looks: &[(u64, u64)]) -> Option<u64> {
        let (mut pace, mut at, mut bytes) = (TunnelRate::default(), Duration::ZERO, 0);
        for (ms, kb) in looks {
            at += Duration::from_millis(*ms);
            bytes += kb * 1000;
            pace.observe(at, bytes);
        }
        pace.rate(at, bytes).map(|rate| rate.as_bps() / 1000)
    }

    /// `n` looks at 5 Mbit/s.
    fn steady(n: usize) -> Vec<(u64, u64)> {
        vec![(250, 156); n]
    }

    #[test]
    fn the_rate_is_never_above_that_of_the_link() {
        let link = 5_000;
        assert_eq!(rate(&steady(20)), Some(4_992));
        // A megabyte lay in a buffer until the program read.
        let burst = [vec![(250, 0); 8], vec![(250, 1_000)], steady(12)].concat();
        assert_eq!(rate(&burst), Some(4_992));
        // The task had its turns late, and then two at once.
        let late: Vec<_> = (0..10).flat_map(|_| [(470, 290), (30, 20)]).collect();
        assert!(rate(&late).is_some_and(|rate| rate <= link), "{:?}", rate(&late));
    }

    #[test]
    fn short_or_small_transfers_tell_no_rate() {
        assert_eq!(rate(&steady(1)), None);
        assert_eq!(rate(&steady(2)), Some(2_496), "half a second's, over one");
        assert_eq!(rate(&vec![(250, 3); 40]), None);
        let pauses: Vec<_> = (0..10).flat_map(|_| [(250, 156), (250, 156), (250, 0)]).collect();
        assert_eq!(rate(&pauses), None);
        assert!(rate(&vec![(250, 16); 60]).is_some(), "a slow path is one, too");
    }
}
