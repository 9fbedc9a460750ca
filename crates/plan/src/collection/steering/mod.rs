//! The adaptive fluid plan: which ways each source uses now, corrected by their measured throughput.
//!
//! Ours; the paper plans once ("Such adaptation to changing network conditions is an ongoing
//! effort", §III). A *way* is a path of the overlay that is used cut-through: one TCP connection per
//! leg, all at the same time, so that it is as fast as its slowest leg.
//!
//! ```text
//! estimates ─ start: Problem::fluid ─► ways ─► bytes per way ─ observe ─► settled? ─┐
//!     ▲                                                                            │
//!     ├── legs: what they carry ◄── drift ──────────────────────────── judge trials ◄─┤
//!     ├── sets: legs that slow each other ◄── trials that brought nothing ────────────┘
//!     └── on drift replan: Problem::fluid of the rest with both ─► which ways are tried first
//!                          balance: who ends last gets ways, who ends early gives them up
//! ```
//!
//! Rates are not enforced: a way takes its source's next data whenever it can, and TCP shares the
//! bottlenecks per connection. What is steered is how many connections a source has, and where. So
//! estimates are only needed to begin well; they may be wrong, or missing.

mod balance;
mod candidates;
mod choice;
mod forecast;
mod learn;
mod legs;
mod open;
mod replan;
mod settings;
mod start;
#[cfg(test)]
mod tests;

pub use legs::SharedSet;
pub use open::{Opening, Way, WayId};
pub use settings::Settings;

use crate::Graph;
use legs::Legs;
use open::Open;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What passed since the last observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Bytes by way; a way that is not named moved none.
    pub bytes: BTreeMap<WayId, u64>,
    /// Bytes still to come, by participant.
    pub remaining: Vec<u64>,
    /// Ways that broke; they are left, and tried again after a pause.
    pub broken: Vec<WayId>,
    /// Sources that are not reached any more, on no way: their ways are closed for good.
    pub lost: Vec<u32>,
}

/// Decides, interval by interval, which ways are open.
#[derive(Clone, Debug)]
pub struct Steering {
    settings: Settings,
    destination: u32,
    remaining: Vec<u64>,
    lost: Vec<bool>,
    relays: Vec<u32>,
    legs: Legs,
    open: Vec<Open>,
    benched: BTreeMap<Way, Benched>,
    /// Intervals so far, and since the last change.
    ticks: u64,
    calm: u32,
    next: u32,
    drifts: u32,
    /// Bytes/s by way of the last plan made on drift, and how many there were.
    planned: BTreeMap<Way, f64>,
    plans: u32,
}

/// A way that is not to be tried for a while.
#[derive(Clone, Copy, Debug)]
struct Benched {
    until: u64,
    times: u32,
    /// What it carried when it was last open, bytes/s.
    rate: f64,
}

impl Steering {
    /// Chooses the first ways.
    ///
    /// `remaining` is by participant, the destination's is passed over. `estimates` are of the same
    /// indices; legs may be missing and rates wrong. `relays` are those who pass on others' data; a
    /// source that is none of them is only asked directly, as relays do not connect to it.
    pub fn new(
        settings: Settings,
        destination: u32,
        remaining: &[u64],
        estimates: &Graph,
        relays: &BTreeSet<u32>,
    ) -> Self {
        let mut steering = Self {
            settings,
            destination,
            remaining: remaining.to_vec(),
            lost: vec![false; remaining.len()],
            relays: relays.iter().copied().filter(|host| *host != destination).collect(),
            legs: Legs::new(remaining.len() as u32, destination, estimates),
            open: Vec::new(),
            benched: BTreeMap::new(),
            ticks: 0,
            calm: 0,
            next: 0,
            drifts: 0,
            planned: BTreeMap::new(),
            plans: 0,
        };
        if let Some(own) = steering.remaining.get_mut(destination as usize) {
            *own = 0;
        }
        steering.start();
        steering
    }

    /// The ways that are to be open now, by their names; weights of a source sum to 1.
    pub fn open(&self) -> Vec<Opening> {
        self.open.iter().map(|open| self.opening(open)).collect()
    }

    /// Takes what passed in `elapsed`; [`open`](Self::open) is the answer.
    pub fn observe(&mut self, elapsed: Duration, seen: &Observation) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        self.ticks += 1;
        self.calm += 1;
        self.take(seconds, seen);
        self.close_broken(seen);
        self.close_finished();
        if self.calm >= self.settings.samples {
            let judged = self.judge();
            if self.learn_drift() && self.settings.replan {
                self.replan();
            }
            let balanced = self.balance();
            if judged || balanced {
                self.calm = 0;
            }
        }
        self.keep_reachable();
    }

    /// When everything is there if the ways stay; `None`: a source gets nothing yet.
    pub fn ends_in(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.forecast(None).last()).ok()
    }

    /// Sets of legs that were seen to slow each other.
    pub fn shared_sets(&self) -> &[SharedSet] {
        self.legs.learnt()
    }

    /// What a leg is taken to carry now, bytes/s; `None`: nothing is known of it.
    pub fn leg(&self, from: u32, to: u32) -> Option<f64> {
        self.legs.known((from, to))
    }

    /// How often realised rates were away from the planned ones for long enough.
    pub fn drifts(&self) -> u32 {
        self.drifts
    }

    /// How often what was left was planned anew.
    pub fn plans(&self) -> u32 {
        self.plans
    }

    fn take(&mut self, seconds: f64, seen: &Observation) {
        for (at, bytes) in seen.remaining.iter().enumerate() {
            if at != self.destination as usize && at < self.remaining.len() {
                self.remaining[at] = *bytes;
            }
        }
        for open in &mut self.open {
            let bytes = seen.bytes.get(&open.id).copied().unwrap_or(0);
            open.take(bytes as f64 / seconds, self.settings.samples);
        }
        let is_full = self.is_full();
        self.open.iter_mut().for_each(|open| open.take_alone(is_full));
        seen.lost.iter().for_each(|source| {
            if let Some(lost) = self.lost.get_mut(*source as usize) {
                *lost = true;
            }
        });
    }

    fn close_broken(&mut self, seen: &Observation) {
        for id in &seen.broken {
            if self.open.iter().any(|open| open.id == *id) {
                self.close(*id);
                self.calm = 0;
            }
        }
    }

    fn close_finished(&mut self) {
        let (remaining, lost) = (&self.remaining, &self.lost);
        let waits = |open: &Open| {
            let source = open.way.source as usize;
            remaining[source] > 0 && !lost[source]
        };
        let before = self.open.len();
        self.open.retain(waits);
        if self.open.len() < before {
            self.calm = 0;
        }
    }

    /// Leaves a way, and benches it, longer each time.
    fn close(&mut self, id: WayId) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        let open = self.open.remove(at);
        let times = self.benched.get(&open.way).map_or(0, |benched| benched.times) + 1;
        let pause = u64::from(self.settings.pause) << times.min(6);
        let benched = Benched { until: self.ticks + pause, times, rate: open.rate() };
        self.benched.insert(open.way, benched);
    }

    fn add(&mut self, way: Way, trial: bool) {
        let before = self.open.iter().map(|open| (open.id, open.rate())).collect();
        let legs = way.legs(self.destination).into_iter();
        let alone = legs.map(|leg| self.legs.rate(leg)).fold(f64::INFINITY, f64::min);
        let expected = (self.expected(&way), alone);
        let id = WayId(self.next);
        self.next += 1;
        self.open.push(Open::new(id, way, expected, trial.then_some(before)));
    }

    fn is_waiting(&self, source: u32) -> bool {
        self.remaining[source as usize] > 0 && !self.lost[source as usize]
    }

    fn of(&self, source: u32) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(move |open| open.way.source == source)
    }

    /// What a source gets now, bytes/s.
    fn rate(&self, source: u32) -> f64 {
        self.of(source).map(Open::rate).sum()
    }

    fn opening(&self, open: &Open) -> Opening {
        let all: f64 = self.of(open.way.source).map(Open::weight).sum();
        let count = self.of(open.way.source).count() as f64;
        let weight = if all > 0.0 { open.weight() / all } else { 1.0 / count };
        Opening { id: open.id, way: open.way.clone(), weight, expected: open.weight() }
    }
}
