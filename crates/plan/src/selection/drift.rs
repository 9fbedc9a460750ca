//! A chosen path that became slow: a new sampling, if that pays.

use super::{Ending, Phase, Reason, Selection, path::PathState};
use std::{cmp::Reverse, time::Duration};
use thalweg_units::{PathId, Time};

/// Below this part of its own sampled rate a path has drifted.
const OWN: f64 = 0.5;
/// Below this part of another's sampled rate, too.
const OTHERS: f64 = 0.6;
/// The other's rate counts half after this time: conditions change.
const HALF_LIFE: f64 = 60.0;
/// A switch must save this part of the time left, and this much more.
const MARGIN: f64 = 1.25;
const MARGIN_SECS: f64 = 0.5;
/// The most new samplings of one download. Before each the patience doubles, so a path
/// that swings is not left again and again.
const MOST: u32 = 6;
/// The most other paths in a new sampling: what they bring is taken from the best known.
const OTHERS_SAMPLED: usize = 2;

/// What is remembered of drifting.
#[derive(Default)]
pub(super) struct Drift {
    /// Since when the path is too slow.
    slow_since: Option<Time>,
    times: u32,
    /// The path that a new sampling may replace.
    before: Option<PathId>,
}

impl Drift {
    pub(super) fn paused(&mut self, d: Duration) {
        self.slow_since.iter_mut().for_each(|t| *t += d);
    }
}

impl Selection {
    /// Samples anew if the only chosen path has been too slow for long enough.
    pub(super) fn watch(&mut self, now: Time) {
        let (Phase::Completing(Some(current)), Ending::Clear) = (self.phase, self.config.ending)
        else {
            return;
        };
        // Two owe the same bytes: a new sampling would give some of them to a third.
        let hedged = self.hedge.is_some();
        let several = self.lanes.len() > 1;
        if self.single || hedged || several || self.is_trying() || self.drift.times >= MOST {
            return;
        }
        if !self.is_slow(current, now) {
            self.drift.slow_since = None;
            return;
        }
        let since = *self.drift.slow_since.get_or_insert(now);
        // The rate is that of a whole window already; half a one more, then 1, 2, 4 ...
        let window = self.paths[current.0 as usize].recent.window();
        if now.since(since) < window / 2 * (1 << self.drift.times) {
            return;
        }
        self.drift.slow_since = None;
        self.drift.times += 1;
        self.drift.before = Some(current);
        let others = self.rivals(current, now);
        self.sample_again(current, &others, now);
    }

    /// Its recent rate is far below what it or another path was seen to give, and so much is
    /// left that a switch pays.
    fn is_slow(&self, current: PathId, now: Time) -> bool {
        let state = &self.paths[current.0 as usize];
        let Some(rate) = state.recent.rate() else { return false };
        let own = state.judged.map_or(0.0, |(rate, _)| rate);
        let rivals = self.rivals(current, now);
        let Some(rival) = rivals.first().map(|p| &self.paths[p.0 as usize]) else { return false };
        let slow = rate < OWN * own || rate < OTHERS * aged(rival, now);
        slow && self.pays(rate, rival, now)
    }

    fn pays(&self, rate: f64, rival: &PathState, now: Time) -> bool {
        let left = self.left as f64;
        let setup = rival.prior.map_or(rival.rtt().unwrap_or_default() * 2, |p| p.setup);
        let there = setup.as_secs_f64() + MARGIN * left / aged(rival, now).max(1.0) + MARGIN_SECS;
        left / rate.max(1.0) > there
    }

    /// The best others, by what they were seen to give.
    fn rivals(&self, current: PathId, now: Time) -> Vec<PathId> {
        let fit = |p: &PathState| p.is_usable(now) && p.is_idle() && p.strikes() == 0;
        let mut rivals = self.everyone();
        rivals.retain(|p| *p != current && fit(&self.paths[p.0 as usize]));
        let rate = |p: &PathId| aged(&self.paths[p.0 as usize], now);
        rivals.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.cmp(b)));
        rivals.truncate(OTHERS_SAMPLED);
        rivals
    }

    /// What a choice is called that follows a drift.
    pub(super) fn after_drift(&mut self, chosen: PathId, reason: Reason) -> Reason {
        match self.drift.before.take() {
            Some(before) if before == chosen && reason.sampled() => Reason::StillBest,
            Some(_) if reason.sampled() => Reason::Drift,
            _ => reason,
        }
    }

    /// The best idle path but for `owner`, to help it out.
    pub(super) fn helper(&self, owner: PathId, now: Time) -> Option<PathId> {
        let fit = |p: &PathState| p.is_usable(now) && p.is_idle();
        let helpers = self.everyone().into_iter();
        let fit = |p: &PathId| *p != owner && fit(&self.paths[p.0 as usize]);
        let key = |p: &PathId| (Reverse(self.paths[p.0 as usize].strikes()), Reverse(*p));
        helpers.filter(fit).max_by(|a, b| {
            let by_rate = self.speed(*a).total_cmp(&self.speed(*b));
            key(a).0.cmp(&key(b).0).then(by_rate).then(key(a).1.cmp(&key(b).1))
        })
    }
}

/// A path's rate, worth less the longer it was not seen.
fn aged(path: &PathState, now: Time) -> f64 {
    let since = path.judged.map_or(0.0, |(_, at)| now.since(at).as_secs_f64());
    path.speed() * 0.5f64.powf(since / HALF_LIFE)
}
