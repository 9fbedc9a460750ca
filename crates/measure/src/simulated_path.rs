//! A simulated path for the estimators' tests: one queue with a constant service rate and cross traffic.

use crate::{
    estimators::{Estimator, EstimatorError, Finding, Step},
    train::{Flight, OVERHEAD, Stamp, Tally, Train},
};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;
use thalweg_units::Time;

/// Cross traffic in packets of 1,000 bytes.
#[derive(Clone, Copy, Debug)]
pub struct CrossTraffic {
    mbps: f64,
    is_poisson: bool,
}

impl CrossTraffic {
    /// Packets at equal intervals.
    pub fn even(mbps: f64) -> Self {
        Self { mbps, is_poisson: false }
    }

    /// Packets at random, exponentially distributed intervals.
    pub fn poisson(mbps: f64) -> Self {
        Self { mbps, is_poisson: true }
    }
}

/// How other work on the hosts disturbs their timing.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyHosts {
    /// The probability that the sender pauses before a probe, and the mean pause, s.
    pub pauses: (f64, f64),
    /// The interval at which the receiver polls, s. It stamps the packets that have arrived since then one after the
    /// other.
    pub looks: f64,
    /// The probability that the receiver pauses between two polls, and the mean pause, s.
    pub rests: (f64, f64),
}

/// The time to stamp one packet, s.
const STAMP: f64 = 4e-6;

/// The size of a packet of cross traffic, bytes.
const CROSS_BYTES: f64 = 1000.0;

/// The one-way delay without the queue, s.
const DELAY: f64 = 0.02;

/// The difference of the two hosts' clocks, s.
const CLOCK_OFFSET: f64 = 1000.0;

/// A path with one queue; times are in seconds.
pub struct SimulatedPath {
    /// bit/s.
    capacity: f64,
    cross: CrossTraffic,
    /// When the queue will be empty, and when the next packet of cross traffic arrives.
    free: f64,
    next: f64,
    now: f64,
    random: Xoshiro256PlusPlus,
    /// The probability of a random loss, and the wait beyond which the queue drops packets, s.
    lost: f64,
    queue: f64,
    /// The rate of riders that trains hide, bit/s.
    hidden: f64,
    busy: BusyHosts,
    /// When the receiver polls next.
    look: f64,
    overhead: u32,
}

impl SimulatedPath {
    pub fn new(mbps: f64, cross: CrossTraffic, seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (free, next, now, lost, hidden, look) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        let (capacity, queue, busy, overhead) = (mbps * 1e6, 0.1, BusyHosts::default(), OVERHEAD);
        Self { capacity, cross, free, next, now, random, lost, queue, hidden, busy, look, overhead }
    }

    pub fn with_loss(self, lost: f64) -> Self {
        Self { lost, ..self }
    }

    /// The same path with this many bytes of IP and UDP headers per probe.
    pub fn with_overhead(self, overhead: u32) -> Self {
        Self { overhead, ..self }
    }

    /// The same path, whose trains hide riders at this rate.
    pub fn with_hidden_rate(self, mbps: f64) -> Self {
        Self { hidden: mbps * 1e6, ..self }
    }

    /// The same path between busy hosts.
    pub fn with_busy_hosts(self, busy: BusyHosts) -> Self {
        Self { busy, ..self }
    }

    /// How long a host pauses now, s; usually zero.
    fn draw_pause(&mut self, (chance, mean): (f64, f64)) -> f64 {
        let does = chance > 0.0 && self.uniform() < chance;
        if does { -mean * (1.0 - self.uniform()).ln() } else { 0.0 }
    }

    /// When a packet that arrives at `through` is stamped.
    fn stamp_time(&mut self, through: f64) -> f64 {
        if self.busy.looks <= 0.0 {
            return through;
        }
        while self.look < through {
            let rest = self.draw_pause(self.busy.rests);
            self.look = self.look.max(through - 20.0 * self.busy.looks) + self.busy.looks + rest;
        }
        self.look += STAMP;
        self.look
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Sends the cross traffic up to `until`.
    fn send_cross_traffic(&mut self, until: f64) {
        let mean = CROSS_BYTES * 8.0 / (self.cross.mbps * 1e6);
        while self.cross.mbps > 0.0 && self.next <= until {
            let at = self.next;
            self.push(at, CROSS_BYTES);
            let draw = self.uniform();
            self.next += if self.cross.is_poisson { -mean * (1.0 - draw).ln() } else { mean };
        }
    }

    /// When the packet has left the queue; `None`: the queue was full.
    fn push(&mut self, at: f64, bytes: f64) -> Option<f64> {
        let wait = (self.free - at).max(0.0);
        (wait <= self.queue).then(|| {
            self.free = at + wait + bytes * 8.0 / self.capacity;
            self.free
        })
    }

    fn send_train(&mut self, train: &Train) -> Flight {
        let mut flight = Flight::default();
        let (mut at, mut due) = (self.now, self.now);
        for (place, probe) in train.probes().iter().enumerate() {
            let gap = if place == 0 { 0.0 } else { probe.gap.as_secs_f64() };
            // Probes back to back leave at the rate of the host's own link, 1 Gbit/s.
            let bytes = f64::from(u32::from(probe.size) + self.overhead);
            due += gap.max(bytes * 8e-9);
            at = due.max(at + bytes * 8e-9) + self.draw_pause(self.busy.pauses);
            // Like the pacer: a probe that is late by less than its gap does not delay the following ones.
            due = if at - due >= gap { at } else { due };
            self.send_cross_traffic(at);
            let through =
                self.push(at, bytes).filter(|_| self.lost <= 0.0 || self.uniform() >= self.lost);
            flight.sent.push(Some(Time::from_nanos(nanos(at))));
            let stamp = through.map(|through| self.stamp_time(through + DELAY));
            flight.arrived.push(stamp.map(|at| Stamp::from_unix_nanos(nanos(at + CLOCK_OFFSET))));
        }
        let transmitted = Duration::from_secs_f64(at - self.now);
        let hidden_bytes = (self.hidden * transmitted.as_secs_f64() / 8.0) as u64;
        flight.tally = Tally { transmitted, hidden_bytes, ..Tally::default() };
        self.now = at;
        flight
    }

    /// Sends one train of the tool; `Some`: the tool is done, with this result.
    pub fn send_next_train(
        &mut self,
        tool: &mut dyn Estimator,
    ) -> Option<Result<Vec<Finding>, EstimatorError>> {
        match tool.next() {
            Step::Done(result) => Some(result),
            Step::Send { train, after } => {
                self.now += after.as_secs_f64();
                let flight = self.send_train(&train);
                tool.record(&flight);
                None
            }
        }
    }

    /// Runs the tool to its end; returns its result and the time it took.
    pub fn run(
        &mut self,
        tool: &mut dyn Estimator,
    ) -> (Result<Vec<Finding>, EstimatorError>, Duration) {
        let began = self.now;
        loop {
            if let Some(result) = self.send_next_train(tool) {
                return (result, Duration::from_secs_f64(self.now - began));
            }
        }
    }
}

fn nanos(s: f64) -> u64 {
    (s * 1e9) as u64
}
