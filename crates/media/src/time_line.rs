//! One growing time line out of the clocks of a stream.

use std::time::Duration;

/// Ticks of PTS and DTS in a second (ISO/IEC 13818-1, 2.4.3.7).
pub(crate) const CLOCK: i64 = 90_000;

/// Where PTS and DTS wrap.
pub(crate) const WRAP: i64 = 1 << 33;

/// A clock that goes further ahead at once has begun anew.
const JUMP: i64 = 10 * CLOCK;

/// So much may a clock go back, and it is still the same.
const BACK: i64 = CLOCK;

/// After a jump the next frame counts as so much later.
const STEP: i64 = CLOCK / 25;

/// A reading of a clock, and what it means on the time line; ticks.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    read: i64,
    at: i64,
    /// How many times a clock had begun anew.
    epoch: u64,
}

impl Anchor {
    /// Where this reading of the same clock is; `None` if the clock has jumped between.
    fn extended(self, read: i64) -> Option<Self> {
        let passed = apart(read, self.read);
        (passed.abs() <= JUMP).then_some(Self { read, at: self.at + passed, ..self })
    }
}

/// The clock of one elementary stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamClock {
    last: Option<Anchor>,
    /// The latest time that was given out; none is earlier afterwards.
    shown: i64,
}

/// The time line of all streams: those that read the same clock stay together, also when it jumps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeLine {
    /// The newest reading of the clock that began last.
    anchor: Option<Anchor>,
    newest: i64,
}

impl TimeLine {
    /// When a unit with this DTS is to be decoded, since the first one.
    pub(crate) fn at(&mut self, clock: &mut StreamClock, dts: u64) -> Duration {
        let now = self.place(clock, (dts as i64).rem_euclid(WRAP));
        clock.last = Some(now);
        clock.shown = clock.shown.max(now.at);
        if self.anchor.is_none_or(|anchor| anchor.epoch == now.epoch && anchor.at <= now.at) {
            self.anchor = Some(now);
        }
        self.newest = self.newest.max(clock.shown);
        duration(clock.shown)
    }

    fn place(&mut self, clock: &StreamClock, read: i64) -> Anchor {
        let is_late = |now: &Anchor| clock.last.is_none() || now.at >= clock.shown - BACK;
        let extended = |anchor: Option<Anchor>| anchor?.extended(read).filter(is_late);
        if let Some(now) = extended(clock.last).or_else(|| extended(self.anchor)) {
            return now;
        }
        let Some(anchor) = self.anchor else { return Anchor { read, at: 0, epoch: 0 } };
        let now = Anchor { read, at: self.newest + STEP, epoch: anchor.epoch + 1 };
        self.anchor = Some(now);
        now
    }

    /// The latest time that was given out.
    pub(crate) fn newest(&self) -> Duration {
        duration(self.newest)
    }

    /// How many times a clock began anew.
    pub(crate) fn jumps(&self) -> u64 {
        self.anchor.map_or(0, |anchor| anchor.epoch)
    }
}

/// How far `a` is after `b`, by the shorter way round; ticks.
pub(crate) fn apart(a: i64, b: i64) -> i64 {
    (a - b + WRAP / 2).rem_euclid(WRAP) - WRAP / 2
}

/// Rounded down to microseconds; before the first unit there is no time.
fn duration(ticks: i64) -> Duration {
    Duration::from_micros(ticks.max(0).unsigned_abs() * 100 / 9)
}

/// The ticks of a time of this time line, exactly.
pub(crate) fn ticks(time: Duration) -> u64 {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 16);
    (micros * 9).div_ceil(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &mut TimeLine, clock: &mut StreamClock, dts: i64) -> i64 {
        ticks(line.at(clock, dts.rem_euclid(WRAP) as u64)) as i64
    }

    #[test]
    fn ticks_survive_microseconds() {
        for n in (0..1_000_000).chain([WRAP as u64 * 1000, WRAP as u64 * 1000 + 1]) {
            assert_eq!(ticks(duration(n as i64)), n);
        }
    }

    #[test]
    fn a_clock_that_wraps_goes_on() {
        let (mut line, mut video, mut audio) = Default::default();
        let first = WRAP - 5000;
        for n in 0..100 {
            assert_eq!(at(&mut line, &mut video, first + n * 3000), n * 3000);
            assert_eq!(at(&mut line, &mut audio, first + n * 3000 + 7), n * 3000 + 7);
        }
        assert_eq!(line.jumps(), 0);
    }

    #[test]
    fn streams_that_jump_stay_together() {
        let (mut line, mut video, mut audio) = Default::default();
        at(&mut line, &mut video, 1_000_000);
        at(&mut line, &mut audio, 1_000_500);
        // The video's clock begins anew; the sound's still runs for a while.
        let after = at(&mut line, &mut video, 500);
        assert_eq!(after, 500 + STEP);
        assert_eq!(at(&mut line, &mut audio, 1_002_000), 2000);
        assert_eq!(at(&mut line, &mut video, 3500), after + 3000);
        assert_eq!(at(&mut line, &mut audio, 2500), after + 2000);
        assert_eq!(line.jumps(), 1);
    }

    #[test]
    fn time_never_goes_back() {
        let (mut line, mut clock) = Default::default();
        let mut last = 0;
        for dts in [0, 3000, 2000, 6000, 6000 - 3 * CLOCK, 9000, WRAP - 7, 4, 90 * CLOCK, 1] {
            let now = at(&mut line, &mut clock, dts);
            assert!(now >= last, "{dts}: {now} after {last}");
            last = now;
        }
    }

    #[test]
    fn what_is_before_the_first_unit_is_at_zero() {
        let (mut line, mut video, mut audio) = Default::default();
        assert_eq!(at(&mut line, &mut video, 9000), 0);
        assert_eq!(at(&mut line, &mut audio, 0), 0);
        assert_eq!(at(&mut line, &mut audio, 10_000), 1000);
    }
}
