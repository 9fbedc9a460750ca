//! Paths that took from each other in sampling: the direct path is tried alone, afresh.
//!
//! Behind one slow access (the server's, say) rates in company tell nothing of what each path
//! gives alone: whoever comes last, in slow start while the others recover from what it
//! pushed out, looks best. And what comes out of the crowd has a small window, which CUBIC
//! grows slowly: alone on an access of 20 Mbit/s a winner was seen to stay at 6 for 10 s, where a
//! new connection had all of it in half a second. So such a choice is made otherwise:
//!
//! - That they share shows while paths join ([`Selection::shared`]): those there were lose
//!   ([`LOST`]) what the new ones gain, and the sum hardly grows ([`GREW`]). Or it shows
//!   afterwards: the winner grows well ([`GROWN`]) when the others stop.
//! - If the winner has most of the sum ([`MOST`]), there is nothing to mend.
//! - Else the direct path gets the rest, on a new connection: alone it is never slower than itself.
//! - If it stays well below ([`ROOM`]) what all brought together, the best other gets one trial,
//!   on a new connection as well; the better of the two carries the rest.
//!
//! The direct path gets that trial, too, where it had once nearly what the winner has alone
//! ([`NEAR`]), lost it in company ([`FELL`]), and a long time is left ([`LONG`]): other clients that
//! sampled by this host at the same time may have held it down, and a download is to be no slower
//! than direct.
//!
//! Where else paths share nothing, nothing changes. Drift is not looked for meanwhile; failures,
//! stalls, new samplings and 429 or 503 end it.

use super::{Action, Ending, Phase, Reason, Selection, recent};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// Fewer paths in company do each other little harm.
const COMPANY: usize = 3;
/// The early rate is the best of so many slots; the late one that of the last second.
const EARLY: usize = 4;
const LATE: usize = 20;
/// Those there early keep less than this part of their rate ...
const LOST: f64 = 0.75;
/// ... and all together have less than this many times as much.
const GREW: f64 = 1.25;
/// A winner with this part of the sum in company has nothing to gain.
const MOST: f64 = 0.6;
/// The winner grew by this factor when the others stopped: they had shared something.
const GROWN: f64 = 1.4;
/// Below this part of what all had brought together there is room for a better one.
const ROOM: f64 = 0.8;
/// For a moment in sampling direct had this part of what the winner has alone, and this many times
/// what it kept: it may be better by itself.
const NEAR: f64 = 0.8;
const FELL: f64 = 1.3;
/// That is found out where the winner would take so long still, in seconds: a trial in vain costs a
/// tenth of it at most.
const LONG: f64 = 7.0;
/// Were the tried path this much slower than all together, the trial must pay still.
const MARGIN: f64 = 1.1;
/// The rate is settled if half a window later it is no more than this factor higher ...
const SETTLED: f64 = 1.1;
/// ... or after so many halves.
const HALVES: u32 = 8;
/// From direct's rate alone on, as a part of the best, direct is kept.
const TIE: f64 = 0.95;

/// What is remembered of a sampling whose paths shared something, or may have.
#[derive(Debug)]
pub(super) struct Alone {
    /// What all brought together, bytes per second.
    together: f64,
    /// What the winner brought of it, if it is not known that they shared.
    company: Option<f64>,
    /// The best of those that were tried alone.
    best: Option<(PathId, f64)>,
    tried: Vec<PathId>,
    /// When the rate was looked at last, and what it was.
    last: Option<(Time, f64)>,
    halves: u32,
}

impl Alone {
    fn new(together: f64, company: Option<f64>) -> Self {
        Self { together, company, best: None, tried: Vec::new(), last: None, halves: 0 }
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.last.iter_mut().for_each(|(at, _)| *at += d);
    }
}

impl Selection {
    /// What all paths bring together, bytes per second, if they take it from each other.
    ///
    /// For each moment at which a path had joined: what there was before is compared with the
    /// last second. O(paths² · slots), once.
    pub(super) fn shared(&self, now: Time) -> Option<f64> {
        let lines = || self.paths.iter().map(|p| &p.timeline);
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

    /// After the first sampling: the direct path instead of `pick` where paths shared something
    /// and none had most of it.
    pub(super) fn choose_shared(
        &mut self,
        pick: Option<(PathId, Reason)>,
        shared: Option<f64>,
        now: Time,
    ) -> bool {
        let (Some((winner, _)), Some(together)) = (pick, shared) else { return false };
        let direct = self.paths.first().is_some_and(|p| p.is_usable(now) && p.strikes() == 0);
        if !self.tries() || !direct || self.speed(winner) >= MOST * together {
            return false;
        }
        self.settle_afresh(PathId::DIRECT, Reason::Shared, now);
        self.alone = Some(Alone::new(together, None));
        true
    }

    /// After a choice by rates: whether the winner grows alone is looked at.
    pub(super) fn begin_alone(&mut self, steady: bool, together: f64) {
        let Phase::Completing(Some(winner)) = self.phase else { return };
        if self.tries() && steady {
            self.alone = Some(Alone::new(together, Some(self.speed(winner))));
        }
    }

    fn tries(&self) -> bool {
        let alone = !self.single && self.config.lanes <= 1;
        alone && self.config.trials > 0 && self.config.ending == Ending::Clear
    }

    /// As [`Selection::settle_on`], on a new connection.
    fn settle_afresh(&mut self, path: PathId, reason: Reason, now: Time) {
        if let Some(state) = self.paths.get_mut(path.0 as usize).filter(|p| !p.is_idle()) {
            state.give_back();
            self.actions.push_back(Action::Stop { path, stalled: false });
        }
        self.settle_on(Some((path, reason)), now);
    }

    /// Whether a path is being tried: then it is too early to call it slow.
    pub(super) fn is_trying(&self) -> bool {
        self.alone.as_ref().is_some_and(|a| a.company.is_none() || !a.tried.is_empty())
    }

    /// Looks at the only path's rate until it is settled; then the next is tried, or the best
    /// of those tried carries the rest.
    pub(super) fn try_alone(&mut self, now: Time) {
        let Phase::Completing(Some(current)) = self.phase else { return };
        if self.hedge.is_some() || self.single || self.alone.is_none() {
            return;
        }
        let Some(rate) = self.settled_rate(current, now) else { return };
        let Some(mut alone) = self.alone.take() else { return };
        let first = alone.tried.is_empty();
        let near = first && alone.company.is_some() && self.direct_is_near(current, rate, now);
        let grown = alone.company.is_none_or(|company| rate >= GROWN * company);
        if first && !grown && !near {
            return;
        }
        self.paths[current.0 as usize].judged = Some((rate, now));
        alone.tried.push(current);
        let tie = if current == PathId::DIRECT { TIE } else { 1.0 };
        if alone.best.is_none_or(|(_, best)| rate >= tie * best) {
            alone.best = Some((current, rate));
        }
        let Some((best, rate)) = alone.best else { return };
        let direct = near.then_some(PathId::DIRECT);
        if let Some(next) = direct.or_else(|| self.worth_a_trial(&alone, rate, now)) {
            (alone.last, alone.halves) = (None, 0);
            self.settle_on(Some((next, Reason::Trial)), now);
            self.alone = Some(alone);
        } else if best != current {
            self.settle_on(Some((best, Reason::BestAlone)), now);
        }
    }

    fn direct_is_near(&self, current: PathId, rate: f64, now: Time) -> bool {
        let Some(direct) = self.paths.first().filter(|_| current != PathId::DIRECT) else {
            return false;
        };
        let fit = direct.is_usable(now) && direct.is_idle() && direct.strikes() == 0;
        let peak = direct.timeline.peak(EARLY);
        let fell = direct.judged.is_some_and(|(company, _)| peak >= FELL * company);
        fit && fell && peak >= NEAR * rate && self.left as f64 >= LONG * rate
    }

    /// The rate of the latest window, once it grows no more.
    fn settled_rate(&mut self, current: PathId, now: Time) -> Option<f64> {
        let recent = &self.paths[current.0 as usize].recent;
        let (rate, half) = (recent.rate()?, recent.window() / 2);
        let alone = self.alone.as_mut()?;
        let Some((at, before)) = alone.last else {
            alone.last = Some((now, rate));
            return None;
        };
        if now.since(at) < half {
            return None;
        }
        (alone.last, alone.halves) = (Some((now, rate)), alone.halves + 1);
        (rate < SETTLED * before || alone.halves >= HALVES).then_some(rate)
    }

    /// The next path to be tried alone, if it could save enough: direct first, then the others
    /// as they were in company.
    fn worth_a_trial(&self, alone: &Alone, rate: f64, now: Time) -> Option<PathId> {
        if rate >= ROOM * alone.together || alone.tried.len() > self.config.trials as usize {
            return None;
        }
        let mut open = self.everyone();
        open.retain(|p| {
            let state = &self.paths[p.0 as usize];
            let fit = state.is_usable(now) && state.is_idle() && state.strikes() == 0;
            fit && !alone.tried.contains(p) && state.judged.is_some()
        });
        let by_rate = |a: &PathId, b: &PathId| self.speed(*a).total_cmp(&self.speed(*b));
        let direct = open.iter().copied().find(|p| *p == PathId::DIRECT);
        let next = direct.or_else(|| open.into_iter().max_by(by_rate))?;
        let rtt = self.paths[next.0 as usize].rtt().unwrap_or_default();
        // To connect, and to see a rate.
        let cost = (recent::window(rtt) * 3 / 2 + 3 * rtt).as_secs_f64();
        let left = self.left as f64;
        (left / rate.max(1.0) > MARGIN * left / alone.together + cost).then_some(next)
    }
}
