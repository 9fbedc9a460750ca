//! A simulation of parents that serve requests one after the other at their rates, event by event.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{collections::BTreeSet, ops::Range, time::Duration};
use thalweg_fountain::{Geometry, HaveSet, ParentId, Pull, PullSettings};
use thalweg_units::{ByteSize, Rate, Time};

/// Interval for checking for idle and silent parents.
const TICK: Duration = Duration::from_millis(50);

/// A simulated parent.
#[derive(Clone, Debug)]
pub struct Served {
    rate: Rate,
    said: Rate,
    rtt: Duration,
    dies: Time,
    holds: Range<u64>,
    /// When it has sent everything that was requested.
    free: Time,
}

impl Served {
    /// A parent that holds everything, with this rate and round trip (ms).
    pub fn new(mbps: f64, rtt: u64) -> Self {
        let rate = Rate::from_mbps(mbps);
        let (rtt, holds) = (Duration::from_millis(rtt), 0..u64::MAX);
        Self { rate, said: rate, rtt, dies: Time::MAX, holds, free: Time::ZERO }
    }

    /// The receiver does not know its rate.
    pub fn unknown(mut self) -> Self {
        self.said = Rate::ZERO;
        self
    }

    /// The receiver expects this rate.
    pub fn said(mut self, mbps: f64) -> Self {
        self.said = Rate::from_mbps(mbps);
        self
    }

    /// It sends nothing from this time on.
    pub fn dies(mut self, seconds: f64) -> Self {
        self.dies = Time::ZERO + Duration::from_secs_f64(seconds);
        self
    }

    /// It holds only these symbols.
    pub fn holding(mut self, range: Range<u64>) -> Self {
        self.holds = range;
        self
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct End {
    /// When the receiver had everything.
    pub seconds: f64,
    /// Symbols that arrived twice.
    pub duplicates: u64,
    /// Parents that were given up.
    pub left: Vec<ParentId>,
    /// Symbols that each parent sent.
    pub sent: Vec<u64>,
}

/// One receiver and its parents.
pub struct Swarm {
    geometry: Geometry,
    pull: Pull,
    parents: Vec<Served>,
    rng: Xoshiro256PlusPlus,
    /// Symbols in transit: arrival time, parent, index.
    events: BTreeSet<(Time, usize, u64)>,
    end: End,
}

impl Swarm {
    /// Creates a receiver without symbols.
    pub fn new(geometry: Geometry, parents: &[Served], seed: u64) -> Self {
        let mut pull = Pull::new(geometry, HaveSet::empty(&geometry), PullSettings::default());
        for (at, parent) in parents.iter().enumerate() {
            let rtt = if parent.said == Rate::ZERO { Duration::ZERO } else { parent.rtt };
            pull.join(ParentId(at as u64), parent.said, rtt, Time::ZERO);
            pull.record_held(ParentId(at as u64), parent.holds.clone());
        }
        let sent = vec![0; parents.len()];
        let end = End { seconds: 0.0, duplicates: 0, left: Vec::new(), sent };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (parents, events) = (parents.to_vec(), BTreeSet::new());
        Self { geometry, pull, parents, rng, events, end }
    }

    /// Runs until the receiver has everything.
    pub fn run(mut self) -> End {
        let mut tick = Time::ZERO;
        while !self.pull.is_complete() {
            assert!(tick < Time::ZERO + Duration::from_secs(600), "{:?}", self.pull.progress());
            match self.events.first().copied().filter(|event| event.0 <= tick) {
                Some((now, at, index)) => {
                    self.events.pop_first();
                    self.arrive(now, at, index);
                }
                None => {
                    self.look_after(tick);
                    tick += TICK;
                }
            }
        }
        self.end.duplicates = self.pull.progress().duplicates;
        self.end
    }

    fn arrive(&mut self, now: Time, at: usize, index: u64) {
        self.pull.receive(ParentId(at as u64), index, now);
        self.end.sent[at] += 1;
        self.end.seconds = now.as_secs_f64();
        self.ask(now, at);
    }

    fn look_after(&mut self, now: Time) {
        for id in self.pull.silent_parents(now) {
            self.pull.leave(id);
            self.events.retain(|event| event.1 as u64 != id.0);
            self.end.left.push(id);
        }
        (0..self.parents.len()).for_each(|at| self.ask(now, at));
    }

    fn ask(&mut self, now: Time, at: usize) {
        let asks = self.pull.next_requests(ParentId(at as u64), now, &mut self.rng);
        for index in asks.into_iter().flatten() {
            let parent = &mut self.parents[at];
            let size = ByteSize::from_bytes(u64::from(self.geometry.symbol_bytes()));
            parent.free = parent.free.max(now + parent.rtt / 2) + parent.rate.time_for(size);
            if parent.free < parent.dies {
                self.events.insert((parent.free + parent.rtt / 2, at, index));
            }
        }
    }
}
