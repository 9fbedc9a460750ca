//! Maps 33-bit decoding time stamps to one timeline that continues when clocks wrap or restart.

use std::time::Duration;

/// The ticks of PTS and DTS per second (ISO/IEC 13818-1, 2.4.3.7).
pub(crate) const CLOCK: i64 = 90_000;

/// The range of PTS and DTS.
pub(crate) const WRAP: i64 = 1 << 33;

/// A larger step forward counts as a restart of the clock, ticks.
const JUMP: i64 = 10 * CLOCK;

/// A larger step back counts as a restart of the clock, ticks.
const BACK: i64 = CLOCK;

/// The time between the frames before and after a restart, ticks.
const STEP: i64 = CLOCK / 25;

/// A clock reading and its time on the timeline, ticks.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    read: i64,
    at: i64,
    /// The number of restarts before this reading.
    epoch: u64,
}

impl Anchor {
    /// Maps another reading of this clock; `None` if the clock was restarted in between.
    fn extended(self, read: i64) -> Option<Self> {
        let passed = wrapping_difference(read, self.read);
        (passed.abs() <= JUMP).then_some(Self { read, at: self.at + passed, ..self })
    }
}

/// The clock of one elementary stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamClock {
    last: Option<Anchor>,
    /// The latest returned time. Later results are never lower.
    latest: i64,
}

/// The timeline of all elementary streams. Streams with a common clock stay synchronous across its restarts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DtsTimeline {
    /// The newest reading of the newest clock.
    anchor: Option<Anchor>,
    newest: i64,
}

impl DtsTimeline {
    /// The decoding time of a unit with this DTS, since the first unit.
    pub(crate) fn decoding_time(&mut self, clock: &mut StreamClock, dts: u64) -> Duration {
        let now = self.anchor_for(clock, (dts as i64).rem_euclid(WRAP));
        clock.last = Some(now);
        clock.latest = clock.latest.max(now.at);
        if self.anchor.is_none_or(|anchor| anchor.epoch == now.epoch && anchor.at <= now.at) {
            self.anchor = Some(now);
        }
        self.newest = self.newest.max(clock.latest);
        duration(clock.latest)
    }

    fn anchor_for(&mut self, clock: &StreamClock, read: i64) -> Anchor {
        let is_late = |now: &Anchor| clock.last.is_none() || now.at >= clock.latest - BACK;
        let extended = |anchor: Option<Anchor>| anchor?.extended(read).filter(is_late);
        if let Some(now) = extended(clock.last).or_else(|| extended(self.anchor)) {
            return now;
        }
        let Some(anchor) = self.anchor else { return Anchor { read, at: 0, epoch: 0 } };
        let now = Anchor { read, at: self.newest + STEP, epoch: anchor.epoch + 1 };
        self.anchor = Some(now);
        now
    }

    /// The latest returned time.
    pub(crate) fn newest(&self) -> Duration {
        duration(self.newest)
    }

    /// The number of restarts.
    pub(crate) fn restarts(&self) -> u64 {
        self.anchor.map_or(0, |anchor| anchor.epoch)
    }
}

/// The difference `a - b` modulo 2^33, in the range -2^32 to 2^32, ticks.
pub(crate) fn wrapping_difference(a: i64, b: i64) -> i64 {
    (a - b + WRAP / 2).rem_euclid(WRAP) - WRAP / 2
}

/// Converts ticks, rounding down to microseconds. Times before the first unit become zero.
pub(crate) fn duration(ticks: i64) -> Duration {
    Duration::from_micros(ticks.max(0).unsigned_abs() * 100 / 9)
}

/// The latest time that [`ticks`] converts, microseconds: two thousand years. Later times are clamped to it, so that
/// sums of ticks do not overflow.
const LATEST: u64 = 1 << 56;

/// Converts a time of this timeline to ticks; the exact inverse of [`duration`].
pub(crate) fn ticks(time: Duration) -> u64 {
    let micros = u64::try_from(time.as_micros()).unwrap_or(LATEST).min(LATEST);
    (micros * 9).div_ceil(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped_ticks(line: &mut DtsTimeline, clock: &mut StreamClock, dts: i64) -> i64 {
        ticks(line.decoding_time(clock, dts.rem_euclid(WRAP) as u64)) as i64
    }

    #[test]
    fn ticks_are_exact_after_conversion_to_microseconds() {
        for n in (0..1_000_000).chain([WRAP as u64 * 1000, WRAP as u64 * 1000 + 1]) {
            assert_eq!(ticks(duration(n as i64)), n);
        }
        let latest = ticks(Duration::from_micros(LATEST));
        for time in [Duration::from_micros(u64::MAX / 2), Duration::MAX] {
            assert_eq!(ticks(time), latest, "no overflow");
        }
        assert!(duration(latest as i64 + JUMP).as_micros() > LATEST.into());
    }

    #[test]
    fn a_clock_that_wraps_goes_on() {
        let (mut line, mut video, mut audio) = Default::default();
        let first = WRAP - 5000;
        for n in 0..100 {
            assert_eq!(mapped_ticks(&mut line, &mut video, first + n * 3000), n * 3000);
            assert_eq!(mapped_ticks(&mut line, &mut audio, first + n * 3000 + 7), n * 3000 + 7);
        }
        assert_eq!(line.restarts(), 0);
    }

    #[test]
    fn streams_that_jump_stay_together() {
        let (mut line, mut video, mut audio) = Default::default();
        mapped_ticks(&mut line, &mut video, 1_000_000);
        mapped_ticks(&mut line, &mut audio, 1_000_500);
        // The video's clock restarts first; the audio's clock follows later.
        let after = mapped_ticks(&mut line, &mut video, 500);
        assert_eq!(after, 500 + STEP);
        assert_eq!(mapped_ticks(&mut line, &mut audio, 1_002_000), 2000);
        assert_eq!(mapped_ticks(&mut line, &mut video, 3500), after + 3000);
        assert_eq!(mapped_ticks(&mut line, &mut audio, 2500), after + 2000);
        assert_eq!(line.restarts(), 1);
    }

    #[test]
    fn time_never_goes_back() {
        let (mut line, mut clock) = Default::default();
        let mut last = 0;
        for dts in [0, 3000, 2000, 6000, 6000 - 3 * CLOCK, 9000, WRAP - 7, 4, 90 * CLOCK, 1] {
            let now = mapped_ticks(&mut line, &mut clock, dts);
            assert!(now >= last, "{dts}: {now} after {last}");
            last = now;
        }
    }

    #[test]
    fn times_before_the_first_unit_are_zero() {
        let (mut line, mut video, mut audio) = Default::default();
        assert_eq!(mapped_ticks(&mut line, &mut video, 9000), 0);
        assert_eq!(mapped_ticks(&mut line, &mut audio, 0), 0);
        assert_eq!(mapped_ticks(&mut line, &mut audio, 10_000), 1000);
    }
}
