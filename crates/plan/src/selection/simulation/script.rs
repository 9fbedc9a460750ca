//! What a simulated path will do.

use crate::selection::Failure;
use std::time::Duration;
use thalweg_units::Rate;

/// One path.
#[derive(Clone, Debug)]
pub struct Script {
    /// When it joins; `None`: it is refused at once.
    pub joins: Option<Duration>,
    /// Its capacity.
    pub rate: Rate,
    /// Silence between a request and its first byte; slow start doubles the rate in each.
    pub rtt: Duration,
    /// Begins each connection with ten segments per round trip; else at its capacity.
    pub slow_start: bool,
    /// When and how it stops delivering, if it does.
    pub fails: Option<(Duration, Failure)>,
    /// Silent from when to when.
    pub silent: Option<(Duration, Duration)>,
    /// From when on its capacity is multiplied by what.
    pub drifts: Vec<(Duration, f64)>,
    /// When the server asks for fewer requests, and for how long.
    pub busy: Option<(Duration, Duration)>,
    /// All paths in the group share the network's capacity.
    pub shared: bool,
}

impl Script {
    pub fn steady(rate_mbps: f64) -> Self {
        Self {
            joins: Some(Duration::ZERO),
            rate: Rate::from_mbps(rate_mbps),
            rtt: Duration::from_millis(40),
            slow_start: false,
            fails: None,
            silent: None,
            drifts: Vec::new(),
            busy: None,
            shared: false,
        }
    }

    /// With slow start.
    pub fn real(rate_mbps: f64, rtt_ms: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self { slow_start: true, rtt, ..Self::steady(rate_mbps) }
    }

    pub fn failing(self, at_ms: u64, failure: Failure) -> Self {
        Self { fails: Some((Duration::from_millis(at_ms), failure)), ..self }
    }

    pub fn silent(self, from_ms: u64, to_ms: u64) -> Self {
        let silent = Some((Duration::from_millis(from_ms), Duration::from_millis(to_ms)));
        Self { silent, ..self }
    }

    pub fn drifting(self, drifts: &[(u64, f64)]) -> Self {
        let drifts = drifts.iter().map(|(ms, f)| (Duration::from_millis(*ms), *f)).collect();
        Self { drifts, ..self }
    }

    pub fn joining(self, at_ms: u64) -> Self {
        Self { joins: Some(Duration::from_millis(at_ms)), ..self }
    }

    pub fn busy(self, at_ms: u64, for_ms: u64) -> Self {
        Self { busy: Some((Duration::from_millis(at_ms), Duration::from_millis(for_ms))), ..self }
    }

    /// Bytes per second at this age of the download.
    pub fn capacity(&self, age: Duration) -> f64 {
        let over = self.drifts.iter().rev().find(|(at, _)| *at <= age);
        let silent = self.silent.is_some_and(|(from, to)| from <= age && age < to);
        if silent { 0.0 } else { self.rate.as_bps() as f64 / 8.0 * over.map_or(1.0, |(_, f)| *f) }
    }
}
