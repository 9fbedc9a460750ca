//! How much of a relay's gain remains when it has little free capacity ("room").

use crate::{Graph, graph::gain, ranking::ROBUST_MOST_GAIN};
use thalweg_units::Rate;

/// The number of measured pairs that are sampled: all, in meshes of up to 32 nodes.
const PAIRS: usize = 1_024;

/// The number of tabulated rooms: powers of √2 from 1/16 Mbit/s; the last, 64 Gbit/s, stands for no limit.
const ROOMS: usize = 41;

/// The weight of the gains of all relays together beside a relay's own, in units of one pair whose rate is doubled.
const PRIOR: f64 = 4.0;

/// The summed gains of some detours as functions of the room that they find, and their rates.
#[derive(Clone, Debug)]
struct GainCurve {
    /// The sum of gains at each tabulated room; the last is without limit.
    gains: [f64; ROOMS],
    pairs: f64,
    gaining: f64,
    /// The sum of the rates of the detours that gain, Mbit/s.
    rates: f64,
}

impl GainCurve {
    const NONE: Self = Self { gains: [0.0; ROOMS], pairs: 0.0, gaining: 0.0, rates: 0.0 };

    /// Adds a detour to all rooms, as the difference from each room to the next.
    fn add(&mut self, direct: Rate, detour: Rate) {
        self.pairs += 1.0;
        if detour <= direct {
            return;
        }
        self.gaining += 1.0;
        self.rates += detour.as_mbps();
        let clipped = |rate| gain(direct, rate).min(ROBUST_MOST_GAIN);
        let (mut before, whole) = (0.0, clipped(detour));
        for at in index(direct.as_mbps())..ROOMS {
            let now = if room(at) < detour { clipped(room(at)) } else { whole };
            self.gains[at] += now - before;
            if now >= whole {
                break;
            }
            before = now;
        }
    }

    /// Turns differences into sums.
    fn finish(&mut self) {
        for at in 1..ROOMS {
            self.gains[at] += self.gains[at - 1];
        }
    }

    /// The sum of gains at this room, Mbit/s, interpolated between the tabulated ones.
    fn at(&self, mbps: f64) -> f64 {
        let at = index(mbps);
        let Some(above) = self.gains.get(at + 1) else { return self.all() };
        let (low, high) = (room(at).as_mbps(), room(at + 1).as_mbps());
        let part = if mbps < low { 0.0 } else { (mbps - low) / (high - low) };
        let below = if mbps < low { self.gains[at] * mbps.max(0.0) / low } else { self.gains[at] };
        below + part * (above - self.gains[at])
    }

    const fn all(&self) -> f64 {
        self.gains[ROOMS - 1]
    }
}

/// The tabulated room at an index; the last is without limit.
fn room(at: usize) -> Rate {
    let last = at == ROOMS - 1;
    if last { Rate::from_bps(u64::MAX) } else { Rate::from_mbps((at as f64 / 2.0 - 4.0).exp2()) }
}

/// The index of the largest tabulated room that is not above this, Mbit/s; 0 for less.
fn index(mbps: f64) -> usize {
    let at = ((mbps.max(1e-9).log2() + 4.0) * 2.0).floor();
    (at.max(0.0) as usize).min(ROOMS - 1)
}

/// The gain curves of all relays.
#[derive(Clone, Debug)]
pub(super) struct GainCurves {
    of: Vec<GainCurve>,
    together: GainCurve,
}

impl GainCurves {
    /// Tabulates the detours of evenly spaced measured legs, at most [`PAIRS`] of them.
    pub(super) fn of(graph: &Graph) -> Self {
        let mut curves =
            Self { of: vec![GainCurve::NONE; graph.nodes()], together: GainCurve::NONE };
        let step = graph.measured().div_ceil(PAIRS).max(1);
        for ((i, j), direct) in graph.legs().step_by(step) {
            for (l, detour) in graph.detours(i, j) {
                curves.of[l].add(direct, detour);
                curves.together.add(direct, detour);
            }
        }
        curves.of.iter_mut().chain([&mut curves.together]).for_each(GainCurve::finish);
        curves
    }

    /// The part of the gains by `l` that remains with this room, Mbit/s: from 0 to 1. For a relay of which few pairs
    /// are known, it tends to the part of all relays together.
    pub(super) fn part(&self, l: usize, room: f64) -> f64 {
        let (own, together) = (self.of[l].at(room), self.together.at(room));
        let usual = if self.together.all() > 0.0 { together / self.together.all() } else { 1.0 };
        (own + PRIOR * usual) / (self.of[l].all() + PRIOR)
    }

    /// The mean rate of a flow by relay `l` where it gains, Mbit/s; `otherwise` if it never gains.
    pub(super) fn usual(&self, l: usize, otherwise: f64) -> f64 {
        let GainCurve { gaining, rates, .. } = self.of[l];
        if gaining > 0.0 { rates / gaining } else { otherwise }
    }

    /// A score as a fraction of the mean gain that the relay's pairs measured, at most 1.
    pub(super) fn belief(&self, l: usize, score: f64) -> f64 {
        let GainCurve { pairs, .. } = self.of[l];
        let all = self.of[l].all();
        if all > 0.0 { (score * pairs / all).min(1.0) } else { 1.0 }
    }
}
