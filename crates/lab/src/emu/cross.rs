//! Cross traffic: the times at which the packets of a source enter its link.

use crate::topology::{CrossConfig, CrossShape, Draws, StepWalk};
use std::time::Duration;

/// Bits per byte times nanoseconds per second.
const SCALE: f64 = 8e9;

/// One source of cross traffic: a sequence of entry times of packets of one size.
///
/// It has its own random generator, so that its times do not depend on the packets that pass the link.
#[derive(Clone, Debug)]
pub(super) struct Source {
    size: u32,
    draws: Draws,
    pace: GapModel,
    /// The start, ns; times of steps are relative to it.
    origin: u64,
    stop: u64,
    /// The next entry, ns after the origin; fractional, because gaps are not whole nanoseconds.
    next: f64,
}

/// The model of the gaps between packets.
#[derive(Clone, Debug)]
enum GapModel {
    /// Equal gaps, ns.
    Constant(f64),
    /// Exponential gaps with this mean, ns.
    Poisson(f64),
    OnOff(OnOff),
    Steps(StepGaps),
}

/// Equal gaps of time spent in bursts. The remainder of a gap at the end of a burst continues in the next burst, so
/// that the mean rate is exact.
#[derive(Clone, Debug)]
struct OnOff {
    gap: f64,
    on: f64,
    off: f64,
    shape: f64,
    /// The remaining time of this burst, ns.
    left: f64,
}

/// A packet each time the integral of the step function has grown by `size` bytes.
#[derive(Clone, Debug)]
struct StepGaps {
    walk: StepWalk,
    /// The present rate, bit/s.
    rate: f64,
}

impl Source {
    /// Creates a source on a link that starts at `start`, ns.
    pub(super) fn new(config: &CrossConfig, seed: u64, start: u64) -> Self {
        let mut draws = Draws::new(seed);
        let size = config.size;
        let mut offset = 0.0;
        let mut gap = |rate: thalweg_units::Rate, draws: &mut Draws| {
            let gap = f64::from(size) * SCALE / rate.as_bps() as f64;
            // A random phase: otherwise two sources of the same rate would stay in step.
            offset = gap * draws.uniform();
            gap
        };
        let pace = match &config.shape {
            CrossShape::Cbr(rate) => GapModel::Constant(gap(*rate, &mut draws)),
            CrossShape::Poisson(rate) => GapModel::Poisson(gap(*rate, &mut draws)),
            CrossShape::Pareto { rate, on, off, shape } => {
                let gap = gap(*rate, &mut draws);
                GapModel::OnOff(OnOff::new(gap, *on, *off, *shape, &mut draws))
            }
            CrossShape::Steps(steps) => GapModel::Steps(StepGaps { walk: steps.walk(), rate: 0.0 }),
        };
        let origin = start.saturating_add(nanos(config.start));
        let stop = config.stop.map_or(u64::MAX, |s| start.saturating_add(nanos(s)));
        let mut source = Self { size, draws, pace, origin, stop, next: 0.0 };
        source.first(offset);
        source
    }

    /// The time at which the next packet enters, ns; `u64::MAX` if there are no more.
    pub(super) fn next(&self) -> u64 {
        let next = self.origin.saturating_add(self.next as u64);
        if next >= self.stop { u64::MAX } else { next }
    }

    /// Advances to the packet after the next one. Returns the size of the packet that enters, bytes.
    pub(super) fn take(&mut self) -> u32 {
        self.step();
        self.size
    }

    fn first(&mut self, offset: f64) {
        match &mut self.pace {
            GapModel::Constant(_) => self.next += offset,
            GapModel::Poisson(_) | GapModel::Steps(_) => self.step(),
            GapModel::OnOff(it) => {
                // Start in a burst with probability on / (on + off), as a random observer would find it.
                let silent = !self.draws.chance(it.on / (it.on + it.off));
                let wait = if silent { self.draws.pareto(it.off, it.shape) } else { 0.0 };
                self.next += wait + it.advance(offset, &mut self.draws);
            }
        }
    }

    fn step(&mut self) {
        self.next += match &mut self.pace {
            GapModel::Constant(gap) => *gap,
            GapModel::Poisson(mean) => self.draws.exponential(*mean),
            GapModel::OnOff(it) => it.advance(it.gap, &mut self.draws),
            GapModel::Steps(it) => it.advance(self.next, self.size),
        };
    }
}

impl OnOff {
    fn new(gap: f64, on: Duration, off: Duration, shape: f64, draws: &mut Draws) -> Self {
        let (on, off) = (nanos(on) as f64, nanos(off) as f64);
        Self { gap, on, off, shape, left: draws.pareto(on, shape) }
    }

    /// The time until `busy` nanoseconds of bursts have passed, ns.
    fn advance(&mut self, mut busy: f64, draws: &mut Draws) -> f64 {
        let mut passed = 0.0;
        while busy > self.left {
            busy -= self.left;
            passed += self.left + draws.pareto(self.off, self.shape);
            self.left = draws.pareto(self.on, self.shape);
        }
        self.left -= busy;
        passed + busy
    }
}

impl StepGaps {
    /// The time from `at`, ns after the origin, until the step function has produced `size` bytes, ns.
    fn advance(&mut self, at: f64, size: u32) -> f64 {
        let mut work = f64::from(size) * SCALE;
        let mut now = at;
        loop {
            let change = self.walk.peek();
            let until = change.map_or(f64::INFINITY, |(at, _)| at as f64);
            if self.rate > 0.0 && now + work / self.rate <= until {
                return now + work / self.rate - at;
            }
            let Some((_, rate)) = change else { return f64::INFINITY };
            // The wait is finite here, so a rate of 0 gives 0 and not NaN.
            work -= (until - now) * self.rate;
            now = until;
            self.rate = rate.as_bps() as f64;
            self.walk.advance();
            if self.is_silent_forever() {
                return f64::INFINITY;
            }
        }
    }

    /// Whether no packet ever follows: all steps of a repeating walk may be 0.
    fn is_silent_forever(&self) -> bool {
        self.rate == 0.0 && self.walk.is_silent()
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
