//! The script of a simulated path: what it does when.

use crate::selection::Failure;
use std::time::Duration;
use thalweg_units::Rate;

/// The behaviour of one path.
#[derive(Clone, Debug)]
pub struct Script {
    /// When it joins; `None`: it is refused at once.
    pub joins: Option<Duration>,
    /// Its capacity.
    pub rate: Rate,
    /// The silence between a request and its first byte; slow start doubles the rate in each such time.
    pub rtt: Duration,
    /// Whether each connection begins with ten segments per round trip; otherwise it begins at its capacity.
    pub slow_start: bool,
    /// When and how it stops delivering, if it does.
    pub fails: Option<(Duration, Failure)>,
    /// From when to when it is silent.
    pub silent: Option<(Duration, Duration)>,
    /// (from, factor): from then on, its capacity is multiplied by the factor.
    pub drifts: Vec<(Duration, f64)>,
    /// When the server asks for fewer requests, and for how long.
    pub busy: Option<(Duration, Duration)>,
    /// The part of its capacity within which this changes at random, every 50 ms.
    pub noise: f64,
    /// The round trip of its part behind the shared access; TCP shares the access by this.
    pub leg: Duration,
    /// Whether it uses the shared access.
    pub shared: bool,
}

impl Script {
    /// A constant rate from the beginning, with a round trip of 40 ms.
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
            noise: 0.0,
            leg: Duration::from_millis(40),
            shared: false,
        }
    }

    /// As [`steady`](Self::steady), with slow start.
    pub fn real(rate_mbps: f64, rtt_ms: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self { slow_start: true, rtt, leg: rtt, ..Self::steady(rate_mbps) }
    }

    /// Fails at this time.
    pub fn failing(self, at_ms: u64, failure: Failure) -> Self {
        Self { fails: Some((Duration::from_millis(at_ms), failure)), ..self }
    }

    /// Transfers nothing between these times.
    pub fn silent(self, from_ms: u64, to_ms: u64) -> Self {
        let silent = Some((Duration::from_millis(from_ms), Duration::from_millis(to_ms)));
        Self { silent, ..self }
    }

    /// Multiplies the rate: from each of these times, ms, by its factor.
    pub fn drifting(self, drifts: &[(u64, f64)]) -> Self {
        let drifts = drifts.iter().map(|(ms, f)| (Duration::from_millis(*ms), *f)).collect();
        Self { drifts, ..self }
    }

    /// Becomes available at this time.
    pub fn joining(self, at_ms: u64) -> Self {
        Self { joins: Some(Duration::from_millis(at_ms)), ..self }
    }

    /// Answers at this time that the server is busy, for this long.
    pub fn busy(self, at_ms: u64, for_ms: u64) -> Self {
        Self { busy: Some((Duration::from_millis(at_ms), Duration::from_millis(for_ms))), ..self }
    }

    /// Bytes per second at this age of the download.
    pub fn capacity(&self, age: Duration) -> f64 {
        let over = self.drifts.iter().rev().find(|(at, _)| *at <= age);
        let silent = self.silent.is_some_and(|(from, to)| from <= age && age < to);
        if silent {
            return 0.0;
        }
        let factor = over.map_or(1.0, |(_, f)| *f) * (1.0 + self.noise * self.chance(age));
        self.rate.as_bps() as f64 / 8.0 * factor
    }

    /// From -1 to 1, depending on the time and the path's own parameters (SplitMix64).
    fn chance(&self, age: Duration) -> f64 {
        let slot = (age.as_millis() / 50) as u64;
        let mut z = (self.rate.as_bps() ^ slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64 * 2.0 - 1.0
    }
}
