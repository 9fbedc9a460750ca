//! When sampling is over.

use super::{Ending, Phase, Reason, Selection, gauge, path::PathState, ranges};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// How often the bounds are compared: half of the shortest bin.
const LOOK: Duration = Duration::from_millis(10);
/// Slow start counts as over on a path after so many bins without growth: the mean of
/// fewer is too uncertain to rank paths that are not clearly apart.
const SETTLED: usize = 6;
/// A first window of ten segments, the least that slow start begins with (RFC 6928).
const FIRST_WINDOW: f64 = 14_600.0;
/// The least number of round trips from dialling to the first byte by a relay:
/// TCP, SOCKS greeting and connect, TCP beyond, request. So a path that is not there
/// after t has an RTT of t/6 at least, or it is late for other reasons.
const SETUP_RTTS: u32 = 6;

impl Selection {
    pub(super) fn end_sampling_if_due(&mut self, now: Time) {
        if self.phase != Phase::Sampling {
            return;
        }
        if let Some(reason) = self.sampling_over(now) {
            self.choose(now, Some(reason));
        }
    }

    fn sampling_over(&mut self, now: Time) -> Option<Reason> {
        let hopeful = || self.paths.iter().filter(|p| p.is_hopeful());
        let ready = match self.config.ending {
            Ending::Paper => hopeful().all(|p| p.share_done),
            // Nothing worth taking over was left for it.
            Ending::Clear => hopeful().any(|p| p.share_done),
        };
        if ready || hopeful().count() <= 1 {
            return Some(Reason::Fastest);
        }
        if now.since(self.since) >= self.config.window {
            return Some(Reason::Window);
        }
        if self.config.ending == Ending::Paper || now.since(self.looked) < LOOK {
            return None;
        }
        self.looked = now;
        self.paths.iter_mut().for_each(|p| p.gauge.advance(now));
        self.verdict(now)
    }

    /// Whether the bounds tell who wins, or waiting would tell no more.
    fn verdict(&self, now: Time) -> Option<Reason> {
        let hopeful = || self.paths.iter().filter(|p| p.is_hopeful());
        let bounded = hopeful().filter_map(|p| Some((p, p.gauge.bounds()?)));
        let (best, (low, _)) = bounded.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let others = || hopeful().filter(|p| !std::ptr::eq(*p, best));
        let beaten = |p: &PathState| match p.gauge.bounds() {
            Some((_, high)) => high < low,
            None => self.hopeless(p, low, now),
        };
        if others().all(beaten) {
            return Some(Reason::Clear);
        }
        let settled = |p: &PathState| p.gauge.steady_bins() >= SETTLED;
        let over = settled(best) && others().all(|p| settled(p) || beaten(p));
        over.then_some(Reason::SlowStartOver)
    }

    /// Whether a path in slow start would finish later than one of at least the rate `low`,
    /// even if it doubled its rate each round trip: r·RTT·(2ᵏ − 1)/ln 2 bytes in k round trips.
    fn hopeless(&self, path: &PathState, low: f64, now: Time) -> bool {
        let silent = path.gauge.age(now).unwrap_or(now.since(self.since) / SETUP_RTTS);
        let rtt = path.gauge.rtt().unwrap_or(silent).max(gauge::SHORTEST).as_secs_f64();
        let latest = if path.gauge.rtt().is_some() { path.gauge.latest() } else { 0.0 };
        let window = (latest * rtt).max(FIRST_WINDOW);
        let rounds = (1.0 + self.left as f64 * std::f64::consts::LN_2 / window).log2();
        rounds * rtt >= self.left as f64 / low.max(1.0)
    }

    /// Gives an idle path something to sample with: its share, or the late part of the
    /// share that will take longest. Without either it is ready.
    pub(super) fn feed_sample(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        let mut wanted = state.open_share();
        if wanted.is_empty() && self.config.ending == Ending::Clear && state.sampled {
            wanted = self.unowned();
        }
        // The reader waits for what is now at the front, and this path may be the fastest.
        let was_front = self.config.in_order && !self.begun && path == PathId::DIRECT;
        if wanted.is_empty() && self.config.ending == Ending::Clear && !was_front {
            wanted = self.steal(path, &self.everyone(), false, now);
        }
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if wanted.is_empty() {
            state.share_done = true;
            state.gauge.close(now);
        } else {
            self.ask(path, wanted, false);
        }
    }

    /// Ends the samples: what they tell is what the paths are judged by.
    pub(super) fn close_samples(&mut self, now: Time) {
        for state in self.paths.iter_mut().filter(|p| p.sampled) {
            state.gauge.close(now);
            state.sampled = false;
            let rate = match self.config.ending {
                Ending::Paper => state.gauge.overall(now),
                Ending::Clear => state.gauge.judged(now),
            };
            state.judged = rate.map(|r| (r, now)).or(state.judged);
        }
    }

    /// A new short sampling of what is left between `current`, whose request goes on,
    /// and `others`, which get equal parts from the end.
    pub(super) fn sample_again(&mut self, current: PathId, others: &[PathId], now: Time) {
        (self.phase, self.since, self.looked) = (Phase::Sampling, now, now);
        self.alone = None;
        let part = self.left / (others.len() as u64 + 1);
        for path in others {
            let mut free = self.unowned();
            let mut share = ranges::cut_tail(&mut free, part);
            let more = part - ranges::total(&share);
            if let (Some(state), true) = (self.paths.get_mut(current.0 as usize), more > 0) {
                share.extend(state.surrender(more));
                ranges::merge(&mut share);
            }
            if let Some(state) = self.paths.get_mut(path.0 as usize) {
                state.gauge = gauge::Gauge::default();
                state.assign(share);
            }
        }
        let rest = self.unowned();
        if let Some(state) = self.paths.get_mut(current.0 as usize) {
            let rtt = state.rtt().unwrap_or(gauge::SHORTEST);
            state.gauge = gauge::Gauge::running(rtt, now);
            state.assign(rest);
        }
        self.lanes.clear();
        others.iter().for_each(|path| self.feed(*path, now));
    }
}
