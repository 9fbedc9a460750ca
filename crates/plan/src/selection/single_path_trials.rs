//! Tries single paths after a sampling in which paths took from each other: the direct path first, on a new connection
//! (decision 0035).
//!
//! Behind one slow access link (the server's, say), rates in company say nothing about what each path gives alone: the
//! path that joined last, in slow start while the others recover from the losses that it caused, looks best. And a
//! connection that comes out of the crowd has a small window, which CUBIC grows slowly: alone on an access of 20
//! Mbit/s, a winner was seen to stay at 6 for 10 s, where a new connection had all of it in half a second. So such a
//! choice is made differently:
//!
//! - Sharing shows while paths join ([`shared`]): the paths that were there lose ([`LOST`]) what the new ones gain, and
//!   the sum hardly grows ([`GREW`]). Or it shows afterwards: the winner grows well ([`GROWN`]) when the others stop.
//! - If the winner has most of the sum ([`MOST`]), nothing can be gained.
//! - Otherwise the direct path gets the rest, on a new connection: alone it is never slower than itself.
//! - If it stays well below ([`ROOM`]) what all brought together, the best other path gets one trial, on a new
//!   connection as well; the better of the two carries the rest.
//!
//! The direct path also gets that trial if it once had nearly what the winner has alone ([`NEAR`]), lost it in company
//! ([`FELL`]), and a long time is left ([`LONG`]): other clients that sampled through this host at the same time may
//! have held it down, and a download must not be slower than direct.
//!
//! If paths share nothing, nothing changes. Drift is not looked for meanwhile; failures, stalls, new samplings and 429
//! or 503 end it.

use super::{
    Reason,
    paths::Paths,
    recent_rate::{self, RecentRate},
};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// With fewer paths in company, they do each other little harm.
const COMPANY: usize = 3;
/// The early rate is the best over this many slots.
const EARLY: usize = 4;
/// The late rate is that of this many slots: the last second.
const LATE: usize = 20;
/// Paths share if those that were there early keep less than this part of their rate ...
const LOST: f64 = 0.75;
/// ... and all together have less than this many times as much.
const GREW: f64 = 1.25;
/// A winner with this part of the sum in company has nothing to gain.
const MOST: f64 = 0.6;
/// If the winner grew by this factor when the others stopped, they had shared something.
const GROWN: f64 = 1.4;
/// Below this part of what all had brought together, another path may be better.
const ROOM: f64 = 0.8;
/// In a trial for direct: for a moment in sampling, it had this part of what the winner has alone ...
const NEAR: f64 = 0.8;
/// ... and this many times what it kept, so it may be better by itself.
const FELL: f64 = 1.3;
/// Such a trial is made only if the winner would still take this long, in seconds: a trial in vain costs at most a
/// tenth of it.
const LONG: f64 = 7.0;
/// A trial must still pay if the tried path is slower than all together by this factor.
const MARGIN: f64 = 1.1;
/// The rate is settled if, half a window later, it is no more than this factor higher ...
const SETTLED: f64 = 1.1;
/// ... or after this many half windows.
const HALVES: u32 = 8;
/// The direct path is kept if its rate alone is at least this part of the best.
const TIE: f64 = 0.95;

/// The state after a sampling whose paths shared something, or may have.
#[derive(Debug)]
pub(super) struct SinglePathTrials {
    /// The rate of all paths together, bytes per second.
    together: f64,
    /// The winner's part of it; `None` if paths are known to have shared.
    company: Option<f64>,
    /// The best of the paths that were tried alone.
    best: Option<(PathId, f64)>,
    tried: Vec<PathId>,
    /// When the rate was last looked at, and what it was.
    last: Option<(Time, f64)>,
    halves: u32,
}

impl SinglePathTrials {
    pub(super) fn new(together: f64, company: Option<f64>) -> Self {
        Self { together, company, best: None, tried: Vec::new(), last: None, halves: 0 }
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.last.iter_mut().for_each(|(at, _)| *at += d);
    }

    /// Whether a path is being tried.
    pub(super) fn is_trying(&self) -> bool {
        self.company.is_none() || !self.tried.is_empty()
    }

    /// The rate of the latest window, once it no longer grows.
    pub(super) fn settled_rate(&mut self, recent: &RecentRate, now: Time) -> Option<f64> {
        let (rate, half) = (recent.rate()?, recent.window() / 2);
        let Some((at, before)) = self.last else {
            self.last = Some((now, rate));
            return None;
        };
        if now.since(at) < half {
            return None;
        }
        (self.last, self.halves) = (Some((now, rate)), self.halves + 1);
        (rate < SETTLED * before || self.halves >= HALVES).then_some(rate)
    }

    /// What follows when the rate of `current` alone is settled: a trial of the next path ([`Reason::Trial`]), or the
    /// best of the paths that were tried, if it is another one.
    pub(super) fn next(
        &mut self,
        paths: &mut Paths,
        (current, rate): (PathId, f64),
        trials: u32,
        now: Time,
    ) -> Option<(PathId, Reason)> {
        let first = self.tried.is_empty();
        let near = first && self.company.is_some() && direct_is_near(paths, current, rate, now);
        let grown = self.company.is_none_or(|company| rate >= GROWN * company);
        if first && !grown && !near {
            return None;
        }
        paths[current].judged = Some((rate, now));
        self.tried.push(current);
        let tie = if current == PathId::DIRECT { TIE } else { 1.0 };
        if self.best.is_none_or(|(_, best)| rate >= tie * best) {
            self.best = Some((current, rate));
        }
        let (best, rate) = self.best?;
        let direct = near.then_some(PathId::DIRECT);
        if let Some(next) = direct.or_else(|| self.worth_a_trial(paths, trials, rate, now)) {
            (self.last, self.halves) = (None, 0);
            return Some((next, Reason::Trial));
        }
        (best != current).then_some((best, Reason::BestAlone))
    }

    /// The next path to try alone, if it could save enough: direct first, then the others by their rates in company.
    fn worth_a_trial(&self, paths: &Paths, trials: u32, rate: f64, now: Time) -> Option<PathId> {
        if rate >= ROOM * self.together || self.tried.len() > trials as usize {
            return None;
        }
        let mut open = paths.ids();
        open.retain(|p| {
            let state = &paths[*p];
            let fit = state.is_usable(now) && state.is_idle() && state.strikes() == 0;
            fit && !self.tried.contains(p) && state.judged.is_some()
        });
        let by_rate = |a: &PathId, b: &PathId| paths.speed(*a).total_cmp(&paths.speed(*b));
        let direct = open.iter().copied().find(|p| *p == PathId::DIRECT);
        let next = direct.or_else(|| open.into_iter().max_by(by_rate))?;
        let rtt = paths[next].rtt().unwrap_or_default();
        // The time to connect, and to see a rate.
        let cost = (recent_rate::window(rtt) * 3 / 2 + 3 * rtt).as_secs_f64();
        let left = paths.left() as f64;
        (left / rate.max(1.0) > MARGIN * left / self.together + cost).then_some(next)
    }
}

/// The rate of all paths together, bytes per second, if they take it from each other.
///
/// For each moment at which a path had joined, the rates before are compared with those of the last second. O(paths² ·
/// slots), once.
pub(super) fn shared(paths: &Paths, now: Time) -> Option<f64> {
    let lines = || paths.iter().map(|p| &p.timeline);
    let late = lines().next()?.slot(now).checked_sub(LATE)?;
    let mut joined: Vec<usize> = lines().filter_map(|l| l.first()).collect();
    joined.retain(|first| *first < late);
    joined.sort_unstable();
    let together: f64 = lines().map(|l| l.rate(late, LATE)).sum();
    let took = |until: usize| {
        let there = || lines().filter(|l| l.first().is_some_and(|first| first < until));
        let sum = |from, count| there().map(|l| l.rate(from, count)).sum::<f64>();
        let windows = 0..=until.saturating_sub(EARLY);
        let early = windows.map(|from| sum(from, EARLY)).fold(0.0, f64::max);
        until >= EARLY && sum(late, LATE) < LOST * early && together < GREW * early
    };
    let company = joined.len() >= COMPANY;
    (company && joined.iter().skip(1).any(|until| took(*until))).then_some(together)
}

/// Whether direct gets the rest instead of `winner`, because no path has most of what all bring `together`.
pub(super) fn is_shared_out(paths: &Paths, winner: PathId, together: f64, now: Time) -> bool {
    let direct = paths.direct().is_some_and(|p| p.is_usable(now) && p.strikes() == 0);
    direct && paths.speed(winner) < MOST * together
}

fn direct_is_near(paths: &Paths, current: PathId, rate: f64, now: Time) -> bool {
    let Some(direct) = paths.direct().filter(|_| current != PathId::DIRECT) else {
        return false;
    };
    let fit = direct.is_usable(now) && direct.is_idle() && direct.strikes() == 0;
    let peak = direct.timeline.peak(EARLY);
    let fell = direct.judged.is_some_and(|(company, _)| peak >= FELL * company);
    fit && fell && peak >= NEAR * rate && paths.left() as f64 >= LONG * rate
}
