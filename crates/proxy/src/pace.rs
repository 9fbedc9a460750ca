//! How fast a tunnel was, from counts that are looked at now and then.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// How often the counts are looked at.
pub const LOOK: Duration = Duration::from_millis(250);

/// Fewer bytes between two looks are a program's chatting: they end a run.
const BUSY: u64 = 8 << 10;

/// So much of a run's beginning counts for nothing: slow start, and what lay in buffers while
/// the program did not read, which comes faster than any path.
const FIRST: Duration = Duration::from_secs(1);

/// A mean over less tells nothing: one look's bytes depend on when the task had its turn.
const LEAST: Duration = Duration::from_secs(1);

/// So many bytes of a run say something of the path.
const TELLING: u64 = 256 << 10;

/// The mean rate over the longest run in which bytes came all the time.
///
/// Never a peak: what comes out of buffers, or in two turns at once, is faster than the link.
#[derive(Debug, Default)]
pub struct Pace {
    /// The last look: when, and how many bytes had come.
    last: (Duration, u64),
    /// The run under way: when it began, and the look from which on it counts.
    run: Option<(Duration, Option<(Duration, u64)>)>,
    /// The bytes that count of the longest run, and how long they took.
    best: (u64, Duration),
}

impl Pace {
    /// `bytes` had come in all at `at`, counted from any beginning; neither ever decreases.
    pub fn look(&mut self, at: Duration, bytes: u64) {
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

    /// The rate, after `whole` in which `bytes` came; `None` if that tells nothing.
    ///
    /// What is over before a run counts is taken whole, over a second at least: less than the path
    /// gave.
    pub fn rate(&self, whole: Duration, bytes: u64) -> Option<Rate> {
        let (bytes, took) = match self.best {
            best if best.1 >= LEAST => best,
            _ if whole <= FIRST + LEAST => (bytes, whole.max(LEAST)),
            _ => return None,
        };
        (bytes >= TELLING).then(|| Rate::over(ByteSize::from_bytes(bytes), took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate after these looks: milliseconds since the last one, and kB that came meanwhile.
    fn rate(looks: &[(u64, u64)]) -> Option<u64> {
        let (mut pace, mut at, mut bytes) = (Pace::default(), Duration::ZERO, 0);
        for (ms, kb) in looks {
            at += Duration::from_millis(*ms);
            bytes += kb * 1000;
            pace.look(at, bytes);
        }
        pace.rate(at, bytes).map(|rate| rate.as_bps() / 1000)
    }

    /// 5 Mbit/s for so many looks.
    fn steady(n: usize) -> Vec<(u64, u64)> {
        vec![(250, 156); n]
    }

    #[test]
    fn a_link_is_never_faster_than_it_is() {
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
    fn what_is_short_or_little_tells_nothing() {
        assert_eq!(rate(&steady(1)), None);
        assert_eq!(rate(&steady(2)), Some(2_496), "half a second's, over one");
        assert_eq!(rate(&vec![(250, 3); 40]), None);
        let pauses: Vec<_> = (0..10).flat_map(|_| [(250, 156), (250, 156), (250, 0)]).collect();
        assert_eq!(rate(&pauses), None);
        assert!(rate(&vec![(250, 16); 60]).is_some(), "a slow path is one, too");
    }
}
