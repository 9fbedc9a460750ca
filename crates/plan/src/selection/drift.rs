//! Detects a chosen path that became slow, and samples anew if that pays.

use super::{Reason, path::PathState, paths::Paths};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// A path has drifted below this part of its own sampled rate ...
const OWN: f64 = 0.5;
/// ... or below this part of another's sampled rate.
const OTHERS: f64 = 0.6;
/// The other's rate counts half after this time, s: conditions change.
const HALF_LIFE: f64 = 60.0;
/// The time left must exceed what the other path needs by this factor ...
const MARGIN: f64 = 1.25;
/// ... and by this much more.
const MARGIN_SECS: f64 = 0.5;
/// The most new samplings of one download. Before each, the patience doubles, so that a path that swings is not left
/// again and again.
const MOST: u32 = 6;
/// The most other paths in a new sampling: what they fetch is taken from the best known path.
const OTHERS_SAMPLED: usize = 2;

/// The state of drift detection.
#[derive(Default)]
pub(super) struct Drift {
    /// Since when the path has been too slow.
    slow_since: Option<Time>,
    /// New samplings so far.
    times: u32,
    /// The path that a new sampling may replace.
    before: Option<PathId>,
}

impl Drift {
    pub(super) fn paused(&mut self, d: Duration) {
        self.slow_since.iter_mut().for_each(|t| *t += d);
    }

    /// Whether the only chosen path has been too slow for long enough, so that it must be sampled anew, with its
    /// [`rivals`].
    pub(super) fn is_due(&mut self, paths: &Paths, current: PathId, now: Time) -> bool {
        if self.times >= MOST {
            return false;
        }
        if !is_slow(paths, current, now) {
            self.slow_since = None;
            return false;
        }
        let since = *self.slow_since.get_or_insert(now);
        // The rate is already that of a whole window; half a window more, then 1, 2, 4 ...
        let window = paths[current].recent.window();
        if now.since(since) < window / 2 * (1 << self.times) {
            return false;
        }
        *self = Self { slow_since: None, times: self.times + 1, before: Some(current) };
        true
    }

    /// The reason of a choice that may follow a drift.
    pub(super) fn name(&mut self, chosen: PathId, reason: Reason) -> Reason {
        match self.before.take() {
            Some(before) if before == chosen && reason.sampled() => Reason::StillBest,
            Some(_) if reason.sampled() => Reason::Drift,
            _ => reason,
        }
    }
}

/// Whether the path's recent rate is far below what it or another path was seen to give, and enough is left that a
/// switch pays.
fn is_slow(paths: &Paths, current: PathId, now: Time) -> bool {
    let state = &paths[current];
    let Some(rate) = state.recent.rate() else { return false };
    let own = state.judged.map_or(0.0, |(rate, _)| rate);
    let rivals = rivals(paths, current, now);
    let Some(rival) = rivals.first().map(|p| &paths[*p]) else { return false };
    let slow = rate < OWN * own || rate < OTHERS * aged(rival, now);
    slow && pays(paths, rate, rival, now)
}

fn pays(paths: &Paths, rate: f64, rival: &PathState, now: Time) -> bool {
    let left = paths.left() as f64;
    let setup = rival.prior.map_or(rival.rtt().unwrap_or_default() * 2, |p| p.setup);
    let there = setup.as_secs_f64() + MARGIN * left / aged(rival, now).max(1.0) + MARGIN_SECS;
    left / rate.max(1.0) > there
}

/// The best other paths, by the rates that they were seen to give.
pub(super) fn rivals(paths: &Paths, current: PathId, now: Time) -> Vec<PathId> {
    let fit = |p: &PathState| p.is_usable(now) && p.is_idle() && p.strikes() == 0;
    let mut rivals = paths.ids();
    rivals.retain(|p| *p != current && fit(&paths[*p]));
    let rate = |p: &PathId| aged(&paths[*p], now);
    rivals.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.cmp(b)));
    rivals.truncate(OTHERS_SAMPLED);
    rivals
}

/// A path's rate, discounted by the time since it was measured.
fn aged(path: &PathState, now: Time) -> f64 {
    let since = path.judged.map_or(0.0, |(_, at)| now.since(at).as_secs_f64());
    path.speed() * 0.5f64.powf(since / HALF_LIFE)
}
