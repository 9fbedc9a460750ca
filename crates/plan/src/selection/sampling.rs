//! Decides when sampling is over (decision 0034).

use super::{Config, Ending, Reason, gauge, path::PathState, paths::Paths};
use std::time::Duration;
use thalweg_units::Time;

/// How often the bounds are compared: half of the shortest bin.
const LOOK: Duration = Duration::from_millis(10);
/// Slow start counts as over on a path after this many bins without growth: the mean of fewer is too uncertain to rank
/// paths that are not clearly apart.
const SETTLED: usize = 6;
/// A first window of ten segments, the least with which slow start begins (RFC 6928).
const FIRST_WINDOW: f64 = 14_600.0;
/// The least number of round trips from dialling to the first byte by a relay: TCP, SOCKS greeting and connect, TCP
/// beyond, request. So a path that has not connected after t has an RTT of at least t/6, or it is late for other
/// reasons.
const SETUP_RTTS: u32 = 6;

/// The clock of one sampling.
pub(super) struct Sampling {
    pub(super) since: Time,
    /// When the bounds were last compared.
    pub(super) looked: Time,
}

impl Sampling {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, looked: now }
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.since += d;
        self.looked += d;
    }

    /// The reason for which it is over, if it is.
    pub(super) fn end_if_due(
        &mut self,
        paths: &mut Paths,
        config: &Config,
        now: Time,
    ) -> Option<Reason> {
        let hopeful = || paths.iter().filter(|p| p.is_hopeful());
        let ready = match config.ending {
            Ending::Paper => hopeful().all(|p| p.share_done),
            // Nothing worth taking over was left for that path.
            Ending::Clear => hopeful().any(|p| p.share_done),
        };
        if ready || hopeful().count() <= 1 {
            return Some(Reason::Fastest);
        }
        if now.since(self.since) >= config.window {
            return Some(Reason::Window);
        }
        if config.ending == Ending::Paper || now.since(self.looked) < LOOK {
            return None;
        }
        self.looked = now;
        paths.iter_mut().for_each(|p| p.gauge.advance(now));
        self.verdict(paths, now)
    }

    /// Whether the bounds show a winner, or waiting would show no more.
    fn verdict(&self, paths: &Paths, now: Time) -> Option<Reason> {
        let hopeful = || paths.iter().filter(|p| p.is_hopeful());
        let bounded = hopeful().filter_map(|p| Some((p, p.gauge.bounds()?)));
        let (best, (low, _)) = bounded.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let others = || hopeful().filter(|p| !std::ptr::eq(*p, best));
        let beaten = |p: &PathState| match p.gauge.bounds() {
            Some((_, high)) => high < low,
            None => self.hopeless((p, paths.left()), low, now),
        };
        if others().all(beaten) {
            return Some(Reason::Clear);
        }
        let settled = |p: &PathState| p.gauge.steady_bins() >= SETTLED;
        let over = settled(best) && others().all(|p| settled(p) || beaten(p));
        over.then_some(Reason::SlowStartOver)
    }

    /// Whether a path in slow start, with `left` bytes to come, would finish later than one of at least the rate `low`,
    /// even if it doubled its rate each round trip: r·RTT·(2ᵏ − 1)/ln 2 bytes in k round trips.
    fn hopeless(&self, (path, left): (&PathState, u64), low: f64, now: Time) -> bool {
        let silent = path.gauge.age(now).unwrap_or(now.since(self.since) / SETUP_RTTS);
        let rtt = path.gauge.rtt().unwrap_or(silent).max(gauge::SHORTEST).as_secs_f64();
        let latest = if path.gauge.rtt().is_some() { path.gauge.latest() } else { 0.0 };
        let window = (latest * rtt).max(FIRST_WINDOW);
        let rounds = (1.0 + left as f64 * std::f64::consts::LN_2 / window).log2();
        rounds * rtt >= left as f64 / low.max(1.0)
    }
}
