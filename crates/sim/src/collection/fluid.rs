//! Runs the adaptive fluid plan: reports what its ways carry to `plan::collection::steering`.

use super::{methods::Method, run::Transfer};
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::{
    Graph,
    collection::steering::{Observation, Settings, Steering, Way, WayId},
};

/// Mbit in a byte.
const MBIT: f64 = 8e-6;

/// More than any way ever moves, Mbit.
const PLENTY: f64 = 1e9;

/// A source counts as done when no more than this is left, Mbit: a byte.
const NOTHING: f64 = 8e-6;

/// Steered ways, each a flow that lasts as long as the way is open.
pub struct FluidMethod {
    steering: Steering,
    interval: f64,
    /// The time of the next report to the steering, s.
    next: f64,
    /// The time of the last report, s.
    last_report: f64,
    /// Mbit still to come, by host.
    left: Vec<f64>,
    /// By way: the way, and the Mbit that it had moved at the last look.
    running: BTreeMap<WayId, (Way, f64)>,
    /// By way: Mbit since the last report.
    since: BTreeMap<WayId, f64>,
    /// The time at which a source is done at the present rates, s.
    ends: f64,
    /// Transfers that are to end.
    ending: Vec<usize>,
    /// The time of the last look, s.
    looked: f64,
}

impl FluidMethod {
    pub fn new(settings: Settings, bytes: &[f64], estimates: &Graph) -> Self {
        let amounts: Vec<u64> = bytes.iter().map(|bytes| *bytes as u64).collect();
        let destination = bytes.len() as u32 - 1;
        let relays = (0..destination).collect();
        let interval = settings.interval.as_secs_f64();
        Self {
            steering: Steering::new(settings, destination, &amounts, estimates, &relays),
            interval,
            next: interval,
            last_report: 0.0,
            left: bytes.iter().map(|bytes| bytes * MBIT).collect(),
            running: BTreeMap::new(),
            since: BTreeMap::new(),
            ends: f64::INFINITY,
            ending: Vec::new(),
            looked: 0.0,
        }
    }

    fn hosts(&self, way: &Way) -> Vec<usize> {
        let to = self.left.len() as u32 - 1;
        let hosts = std::iter::once(way.source).chain(way.via.iter().copied());
        hosts.chain(std::iter::once(to)).map(|host| host as usize).collect()
    }

    /// Counts what arrived; the rates since the last look give the time at which a source is done.
    fn count(&mut self, now: f64, moved: &BTreeMap<usize, f64>) {
        let mut rates = vec![0.0; self.left.len()];
        for (id, (way, before)) in &mut self.running {
            let after = moved.get(&(id.0 as usize)).copied().unwrap_or(*before);
            let more = after - *before;
            *before = after;
            *self.since.entry(*id).or_default() += more;
            self.left[way.source as usize] -= more;
            rates[way.source as usize] += more / (now - self.looked).max(1e-9);
        }
        self.looked = now;
        let ends = |(left, rate): (&f64, &f64)| {
            if *left > NOTHING && *rate > 0.0 { now + left / rate } else { f64::INFINITY }
        };
        self.ends = self.left.iter().zip(&rates).map(ends).fold(f64::INFINITY, f64::min);
    }

    fn report(&mut self, now: f64) {
        let bytes = |mbit: f64| (mbit.max(0.0) / MBIT) as u64;
        let since = std::mem::take(&mut self.since);
        let left = |mbit: &f64| if *mbit > NOTHING { bytes(*mbit).max(1) } else { 0 };
        let seen = Observation {
            bytes: since.into_iter().map(|(id, mbit)| (id, bytes(mbit))).collect(),
            remaining: self.left.iter().map(left).collect(),
            ..Observation::default()
        };
        self.steering.observe(Duration::from_secs_f64(now - self.last_report), &seen);
        self.last_report = now;
        self.next = now + self.interval;
    }
}

impl Method for FluidMethod {
    fn start_due(&mut self, _now: f64) -> Vec<Transfer> {
        let open = self.steering.open();
        let mut due = Vec::new();
        for opening in open {
            if !self.running.contains_key(&opening.id) {
                let hosts = self.hosts(&opening.way);
                due.push(Transfer { id: opening.id.0 as usize, hosts, size: PLENTY });
                self.running.insert(opening.id, (opening.way, 0.0));
            }
        }
        due
    }

    fn complete(&mut self, _id: usize, _now: f64) {}

    fn observe(&mut self, now: f64, moved: &BTreeMap<usize, f64>) {
        if now <= self.looked {
            return;
        }
        self.count(now, moved);
        let is_done = |(id, (way, _)): (&WayId, &(Way, f64))| {
            (self.left[way.source as usize] <= NOTHING).then_some(*id)
        };
        let mut over: Vec<WayId> = self.running.iter().filter_map(is_done).collect();
        if now >= self.next - 1e-9 || !over.is_empty() {
            self.report(now);
            let open: Vec<WayId> = self.steering.open().iter().map(|open| open.id).collect();
            over = self.running.keys().filter(|id| !open.contains(id)).copied().collect();
        }
        for id in over {
            self.running.remove(&id);
            self.ending.push(id.0 as usize);
        }
    }

    fn take_ended(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ending)
    }

    fn next_wake(&self, now: f64) -> Option<f64> {
        // Not in shorter steps than a byte takes, because rates may have changed in between.
        Some(self.next.min(self.ends.max(now + 1e-4)))
    }

    fn is_finished(&self) -> bool {
        self.left.iter().all(|left| *left <= NOTHING)
    }
}
