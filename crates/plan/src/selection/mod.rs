//! Parallel path selection (UKAIRO §3.2.1) as a pure state machine (decision 0033).
//!
//! One object is wanted over several paths; path 0 is the direct one. The missing bytes are cut into one *share* per
//! path (the paper's chunks of N/(s+1)). In the **sampling phase** every path fetches its own share; in the
//! **completion phase** the best path fetches what the others left. A path that fails at any moment hands back what it
//! had not delivered.
//!
//! The machine does no I/O: the caller reports what happened ([`Selection::joined`], [`sent`](Selection::sent),
//! [`received`](Selection::received), [`failed`](Selection::failed), [`busy`](Selection::busy),
//! [`tick`](Selection::tick)) and carries out what [`Selection::next_action`] returns. A byte belongs to one path at a
//! time. It is given to another only after its path was stopped or failed, or if its path will be stopped in front of
//! it ([`Selection::owes`]). Only in a hedge does a byte belong to two paths.
//!
//! As in the paper, the remainders are requested together, as a list of ranges, because a request for each would cost a
//! round trip for each. The direct path's share is the first part of the missing bytes, where its first request already
//! reads.
//!
//! Differs from the paper (with [`Ending::Clear`]; [`Ending::Paper`] has only the first two and small objects):
//! - The winner's own request continues when sampling ends: the same bytes on the same path gain nothing from a new
//!   request.
//! - Failures and stalls, on which the paper is silent, lead to the next best path.
//! - Sampling ends when waiting tells no more: see [`Ending::Clear`]. A path that is done takes over part of the
//!   slowest's share, where the paper's idles, up to 5 s.
//! - A path is judged by its rate after slow start: over all time, a path of long RTT that is faster for the rest looks
//!   slower.
//! - Direct also wins near ties: see [`Reason::DirectNotBeaten`]. A path's own rate differs by 5 % from one second to
//!   the next.
//! - The rest may come over several paths ([`Config::lanes`]), if requested or if this host has several interfaces
//!   ([`Selection::leaves_by`]).
//! - A winner that becomes slow is compared anew with the best others (`drift`): 5 s say little about the next 5 min.
//! - If paths took from each other in sampling, the rest goes directly, on a new connection (`alone`): rates in company
//!   say little then, and their connections recover slowly.
//! - For a stream that is read while it arrives, the winner begins at its front (`turn_to_front`).
//! - Late bytes are also requested from a second path (`Hedge`), long before a stall counts.
//! - After a 429 or 503, only one path at a time is asked.
//! - Small objects skip sampling: see [`Config::small`] and `choose_small`.

mod action;
mod choice;
mod config;
mod drift;
mod gauge;
mod path;
mod paths;
mod ranges;
mod recent_rate;
mod sampling;
#[cfg(test)]
mod simulation;
mod single_path_trials;
#[cfg(test)]
mod tests;
mod timeline;

pub use action::{Action, Phase};
pub use choice::Reason;
pub use config::{Config, Ending, Prior};
pub use path::Failure;

use drift::Drift;
use path::{OwedRanges, PathState};
use paths::Paths;
use sampling::Sampling;
use single_path_trials::SinglePathTrials;
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_units::{PathId, Rate, Time};

/// A further path is used only if it adds at least this part to the sum of those before: what it takes from other users
/// must be worth it.
const ADDS: f64 = 0.15;
/// The same for a path with another link of this host's own, which takes from no other user: less is not worth a
/// connection.
const OWN_ADDS: f64 = 0.02;
/// The measured sum of several paths must be this many times the best one's rate alone.
const BETTER: f64 = 1.05;

/// How long the expected path is waited for if its usual set-up time is not known ...
const GRACE: Duration = Duration::from_secs(1);
/// ... and if it is known: this many times that.
const GRACE_SETUPS: u32 = 4;

/// How long the path at the front continues: this ...
const COVER: Duration = Duration::from_secs(1);
/// ... and this many round trips of the winner, which dials (six by a relay), asks, and is in slow start.
const COVER_RTTS: u32 = 10;
/// The fewest bytes that it keeps, for when its rate is not known yet.
const LEAST: u64 = 1 << 16;

/// Bytes that should take less than max(0.5 s, 4 RTT) are the tail.
const TAIL: Duration = Duration::from_millis(500);
const TAIL_RTTS: u32 = 4;
/// The tail is late after twice the time that it should have taken and two round trips.
const LATE: u32 = 2;
/// In the tail, a silence of max(0.2 s, 4 RTT) is too long ...
const TAIL_SILENCE: Duration = Duration::from_millis(200);
/// ... elsewhere one of max(1 s, 8 RTT).
const SILENCE: Duration = Duration::from_secs(1);
const SILENCE_RTTS: u32 = 8;
/// All hedges together request at most max(1 MiB, 1/16 of the object), so no more can arrive twice.
const BOUND: u64 = 1 << 20;
const BOUND_PART: u64 = 16;

/// The longest silence of a path whose server pauses, unless the path may be silent for longer anyway.
const LONGEST_PAUSE: Duration = Duration::from_secs(240);

/// Parallel path selection for one object. See the [module](self).
///
/// Memory: O(paths + missing ranges + bins of 5 s). A report of bytes costs O(paths + missing ranges), and O(bins)
/// every 10 ms of sampling; a choice costs O(paths · ranges).
pub struct Selection {
    config: Config,
    paths: Paths,
    /// The number of bytes missing at the beginning.
    whole: u64,
    sampling: Sampling,
    /// Whether the object is too small to sample.
    small: bool,
    /// Whether a path has been chosen once.
    begun: bool,
    /// Whether the server asked for fewer requests: one at a time.
    single: bool,
    phase: Phase,
    /// The chosen paths, the winner first.
    lanes: Vec<PathId>,
    /// Whether several paths were tried and brought no more than one.
    single_lane: bool,
    lanes_since: Time,
    /// New bytes since `lanes_since`.
    lanes_bytes: u64,
    drift: Drift,
    alone: Option<SinglePathTrials>,
    hedge: Option<Hedge>,
    /// Bytes asked for by hedges so far.
    hedged: u64,
    actions: VecDeque<Action>,
}

impl Selection {
    /// Creates a selection that starts at `now`, over `paths` ≥ 1 paths of which none has joined, for the `missing`
    /// bytes (disjoint ranges, ascending). Bytes that the direct path's first request has delivered by then are not
    /// among them.
    pub fn new(config: Config, paths: u32, missing: &[Range<u64>], now: Time) -> Self {
        let mut missing = missing.to_vec();
        ranges::merge(&mut missing);
        let left = ranges::total(&missing);
        let small = left <= config.small.saturating_mul(u64::from(paths));
        let (phase, count) = match (left, paths > 1 && !small) {
            (0, _) => (Phase::Done, 0),
            (_, true) => (Phase::Sampling, paths),
            (_, false) => (Phase::Completing(None), 0),
        };
        Self {
            config,
            paths: Paths::new(paths, count, missing, now),
            whole: left,
            sampling: Sampling::new(now),
            small,
            begun: false,
            single: false,
            phase,
            lanes: Vec::new(),
            single_lane: false,
            lanes_since: now,
            lanes_bytes: 0,
            drift: Drift::default(),
            alone: None,
            hedge: None,
            hedged: 0,
            actions: VecDeque::new(),
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The number of bytes not received yet.
    pub fn left(&self) -> u64 {
        self.paths.left()
    }

    /// Bytes that `path` was asked for and still owes. The part of a longer delivery behind them belongs to another
    /// path: the caller cuts it off and is told to stop the path.
    pub fn owes(&self, path: PathId) -> u64 {
        self.paths.get(path).map_or(0, |p| ranges::total(p.owes()))
    }

    /// The next action, oldest first; `None` if nothing is to be done until the next event.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The paths that carry the rest together, the best first; one path, or none before the choice.
    pub fn lanes(&self) -> &[PathId] {
        &self.lanes
    }

    /// The rate by which a path is judged, up to `now`: see [`Reason`]. `None` until it was asked.
    pub fn rate(&self, path: PathId, now: Time) -> Option<Rate> {
        let state = self.paths.get(path)?;
        let running = || match self.config.ending {
            Ending::Paper => state.gauge.overall(now),
            Ending::Clear => state.gauge.judged_rate(now),
        };
        let rate = state.judged.map(|(rate, _)| rate).or_else(running)?;
        Some(Rate::from_bps((rate * 8.0).round() as u64))
    }

    /// Declares that this path takes capacity from nobody but this host's own `link` (an interface), which others may
    /// use as well. Called before the path joins. If lanes have links of their own, each adds what it brings: see
    /// [`Config::lanes`].
    pub fn leaves_by(&mut self, path: PathId, link: u32) {
        if let Some(state) = self.paths.get_mut(path) {
            state.own_link = Some(link);
        }
    }

    /// Sets what earlier transfers tell about this path. Called before it joins. It decides for small objects; for
    /// others it only orders paths of which nothing better is known.
    pub fn expect(&mut self, path: PathId, prior: Prior) {
        if let Some(state) = self.paths.get_mut(path) {
            state.prior = Some(prior);
        }
    }
}

/// Events on the paths.
impl Selection {
    /// Records that the path is connected and its server agrees about the object.
    pub fn joined(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path) else { return };
        if !state.join() {
            return;
        }
        match self.phase {
            Phase::Sampling if self.paths[path].sampled => {
                self.feed(path, now);
                self.end_sampling_if_due(now);
            }
            Phase::Completing(None) => self.begin(None, now),
            _ => {}
        }
    }

    /// Makes the first choice without sampling, or the next one after a time without any usable path.
    fn begin(&mut self, why: Option<Reason>, now: Time) {
        if self.small && !self.begun && why.is_none() {
            self.choose_small(now);
        } else {
            self.choose(now, why);
        }
    }

    /// Records that a request for the path's last [`Action::Fetch`] has left: its clocks start.
    pub fn sent(&mut self, path: PathId, now: Time) {
        if let Some(state) = self.paths.get_mut(path) {
            state.sent(now);
        }
    }

    /// Records that `n` further bytes of the path's ranges, in their order, arrived and were kept.
    ///
    /// `n` is cut to what the path still [owes](Self::owes); the caller cuts longer deliveries too.
    ///
    /// Returns how many of them are new: always the last ones of the `n`. The others arrived over another path before
    /// (see [`Action::Fetch`]).
    pub fn received(&mut self, path: PathId, n: u64, now: Time) -> u64 {
        let received = self.paths.receive(path, n, self.config.forgive, now);
        let Some((new, beyond)) = received else { return 0 };
        if beyond {
            self.actions.push_back(Action::Stop { path, stalled: false });
        }
        if self.paths.left() == 0 {
            self.finish();
            return new;
        }
        self.settle_hedge(now);
        self.feed(path, now);
        self.end_sampling_if_due(now);
        self.mark_tail(path, now);
        self.weigh_sum(new, now);
        self.try_alone(now);
        self.watch(now);
        new
    }

    /// Records that `n` further bytes of the path's ranges arrived that cannot be trusted yet. They count for its rate
    /// and as a sign of life now, and not again once they are [`received`](Self::received). If they never are, they are
    /// still owed.
    pub fn coming(&mut self, path: PathId, n: u64, now: Time) {
        let Some(state) = self.paths.get_mut(path) else { return };
        state.count_early(n, now);
        self.end_sampling_if_due(now);
        self.try_alone(now);
        self.watch(now);
    }

    /// Ends the selection: nothing is missing, and what still arrives is no longer wanted.
    fn finish(&mut self) {
        self.phase = Phase::Done;
        for (i, state) in (0u32..).zip(&mut self.paths) {
            if !state.is_idle() {
                self.actions.push_back(Action::Stop { path: PathId(i), stalled: false });
            }
            state.give_back();
        }
    }

    /// Records that the server asks for fewer requests (429, 503): the path gives back what it owes and is not asked
    /// before `until`. This is no failure: after `until` the path is used as before, but from now on at most one path
    /// is asked at a time. The caller has stopped the path.
    pub fn busy(&mut self, path: PathId, until: Time, now: Time) {
        let over = self.over();
        let Some(state) = self.paths.get_mut(path) else { return };
        if over || state.is_dead() {
            return;
        }
        state.join();
        state.spare(until);
        self.single = true;
        match self.phase {
            // Another path continues, as the only one that is asked.
            Phase::Completing(Some(winner)) if winner != path && self.lanes.len() <= 1 => {
                self.hedge = None;
                self.feed_lanes(now);
            }
            _ => self.choose(now, Some(Reason::Busy)),
        }
    }

    /// Records that the path failed; what it had not delivered goes to others. The caller has stopped it.
    pub fn failed(&mut self, path: PathId, failure: Failure, now: Time) {
        self.fail_because(path, failure, Reason::Failover, now);
    }

    fn fail_because(&mut self, path: PathId, failure: Failure, why: Reason, now: Time) {
        let (strikes, over) = (self.config.strikes, self.over());
        let is_last = self.is_last(path);
        let Some(state) = self.paths.get_mut(path) else { return };
        if over || state.is_dead() {
            return;
        }
        state.fail(failure, strikes, is_last);
        if self.hedge.is_some_and(|h| h.owner == path || h.helper == path) {
            self.hedge = None;
        }
        match self.phase {
            Phase::Sampling => self.end_sampling_if_due(now),
            Phase::Completing(None) => self.begin(None, now),
            Phase::Completing(Some(winner)) if winner == path => self.choose(now, Some(why)),
            Phase::Completing(Some(_)) if self.is_front_lost() => self.choose(now, Some(why)),
            _ => {
                self.lanes.retain(|lane| *lane != path);
                self.feed_lanes(now);
            }
        }
    }

    fn over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed)
    }
}

/// The passing of time.
impl Selection {
    /// Lets time pass: ends sampling at its window, requests late bytes from a second path, gives up stalled paths.
    pub fn tick(&mut self, now: Time) {
        for path in self.paths.ids() {
            let silent = self.paths[path].silent_since();
            if silent.is_some_and(|t| now.since(t) >= self.stall(path)) {
                self.actions.push_back(Action::Stop { path, stalled: true });
                self.failed(path, Failure::Stalled, now);
            }
        }
        match self.phase {
            Phase::Sampling => self.end_sampling_if_due(now),
            Phase::Completing(None) => self.resume(now),
            _ => {}
        }
        // A path that was chosen just now may have been silent for long.
        self.hedge_if_late(now);
    }

    /// How long a path may be silent. If every path delivers bytes and then stalls, the server pauses: it gets more
    /// time after each round, because a new request only repeats the pause.
    fn stall(&self, path: PathId) -> Duration {
        let times = if self.is_last(path) { self.config.alone } else { 1 };
        let asked = self.paths.iter().filter(|p| !p.is_dead() && !p.is_waiting());
        let pauses = asked.map(PathState::pauses).min().unwrap_or(0);
        let least = times * self.config.stall;
        least.saturating_mul(pauses.saturating_add(1)).min(LONGEST_PAUSE.max(least))
    }

    /// Whether all other paths are dead.
    fn is_last(&self, path: PathId) -> bool {
        self.paths.ids().into_iter().all(|p| p == path || self.paths[p].is_dead())
    }

    /// Whether only one path is left.
    pub fn has_one_path(&self) -> bool {
        self.paths.iter().filter(|p| !p.is_dead()).count() == 1
    }

    /// Continues when a path that was to be left alone may be asked again, or the expected path of a small object has
    /// been waited for long enough.
    fn resume(&mut self, now: Time) {
        let there = self.paths.iter().any(|p| p.is_usable(now));
        if there {
            self.begin(self.single.then_some(Reason::Busy), now);
        }
    }

    /// The latest time at which [`Selection::tick`] is needed if nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        let stall = |p: PathId| self.paths[p].silent_since().map(|t| t + self.stall(p));
        let stalls = self.paths.ids().into_iter().filter_map(stall);
        let phase = match self.phase {
            Phase::Sampling => Some(self.sampling.since + self.config.window),
            Phase::Completing(None) => {
                let free = self.paths.iter().filter_map(PathState::free_at).min();
                free.into_iter().chain(self.next_small(self.sampling.since)).min()
            }
            // Any time would do: the choice of a helper does not depend on it while a path is chosen.
            Phase::Completing(Some(_)) => self.next_hedge(self.sampling.looked),
            _ => return None,
        };
        stalls.chain(phase).min()
    }

    /// Records that the caller was busy for `d` and no path could have delivered: the clocks of the paths and of the
    /// window stand still for that long.
    pub fn paused(&mut self, d: Duration) {
        self.sampling.paused(d);
        self.lanes_since += d;
        self.drift.paused(d);
        self.alone.iter_mut().for_each(|a| a.paused(d));
        self.paths.iter_mut().for_each(|p| p.paused(d));
    }
}

/// The end of sampling.
impl Selection {
    fn end_sampling_if_due(&mut self, now: Time) {
        if self.phase != Phase::Sampling {
            return;
        }
        if let Some(reason) = self.sampling.end_if_due(&mut self.paths, &self.config, now) {
            self.choose(now, Some(reason));
        }
    }

    /// Gives an idle path something to sample with: its share, or the late part of the share that will take longest.
    /// Without either, its sample is complete.
    fn feed_sample(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path) else { return };
        let mut wanted = state.open_share();
        if wanted.is_empty() && self.config.ending == Ending::Clear && state.sampled {
            wanted = self.paths.unowned();
        }
        // The reader waits for the bytes at the front, and this path may be the fastest.
        let was_front = self.config.in_order && !self.begun && path == PathId::DIRECT;
        if wanted.is_empty() && self.config.ending == Ending::Clear && !was_front {
            wanted = self.steal(path, &self.paths.ids(), false, now);
        }
        let Some(state) = self.paths.get_mut(path) else { return };
        if wanted.is_empty() {
            state.share_done = true;
            state.gauge.close(now);
        } else {
            self.ask(path, wanted, false);
        }
    }

    /// Ends the samples: from now on, the paths are judged by their rates.
    fn close_samples(&mut self, now: Time) {
        for state in self.paths.iter_mut().filter(|p| p.sampled) {
            state.gauge.close(now);
            state.sampled = false;
            let rate = match self.config.ending {
                Ending::Paper => state.gauge.overall(now),
                Ending::Clear => state.gauge.judged_rate(now),
            };
            state.judged = rate.map(|r| (r, now)).or(state.judged);
        }
    }

    /// Starts a new short sampling of the rest between `current`, whose request continues, and `others`, which get
    /// equal parts from the end.
    fn sample_again(&mut self, current: PathId, others: &[PathId], now: Time) {
        (self.phase, self.sampling) = (Phase::Sampling, Sampling::new(now));
        self.alone = None;
        let part = self.paths.left() / (others.len() as u64 + 1);
        for path in others {
            let mut free = self.paths.unowned();
            let mut share = ranges::cut_tail(&mut free, part);
            let more = part - ranges::total(&share);
            if let (Some(state), true) = (self.paths.get_mut(current), more > 0) {
                share.extend(state.surrender(more));
                ranges::merge(&mut share);
            }
            if let Some(state) = self.paths.get_mut(*path) {
                state.gauge = gauge::Gauge::default();
                state.assign(share);
            }
        }
        let rest = self.paths.unowned();
        if let Some(state) = self.paths.get_mut(current) {
            let rtt = state.rtt().unwrap_or(gauge::SHORTEST);
            state.gauge = gauge::Gauge::running(rtt, now);
            state.assign(rest);
        }
        self.lanes.clear();
        others.iter().for_each(|path| self.feed(*path, now));
    }
}

/// Completion: the rest on the best path, or on several whose sum is better.
impl Selection {
    /// Leaves sampling, or replaces a winner: the best usable path takes all that is left.
    fn choose(&mut self, now: Time, why: Option<Reason>) {
        let sampled = self.phase == Phase::Sampling;
        let first = sampled && !self.begun;
        let running: Vec<bool> = self.paths.iter().map(|p| p.sampled).collect();
        let shared = if first { single_path_trials::shared(&self.paths, now) } else { None };
        self.close_samples(now);
        let best = choice::best(&self.config, &self.paths, now);
        let pick = best.map(|(path, reason)| {
            let reason =
                match why {
                    Some(
                        Reason::Fastest | Reason::Clear | Reason::SlowStartOver | Reason::Window,
                    ) if reason != Reason::Fastest => reason,
                    Some(why) => why,
                    None if sampled => reason,
                    None => Reason::OnlyPath,
                };
            (path, self.drift.name(path, reason))
        });
        if self.choose_shared(pick, shared, now) {
            return;
        }
        self.settle_on(pick, now);
        if first {
            let together = (0..).map(PathId).zip(running);
            let together = together.filter(|r| r.1).map(|(p, _)| self.paths.speed(p)).sum();
            let steady = |p: PathId| self.paths[p].gauge.bounds().is_some();
            self.begin_alone(pick.is_some_and(|(p, _)| steady(p)), together);
        }
    }

    /// Gives this path the rest, with others if lanes are wanted; everything else stops.
    fn settle_on(&mut self, pick: Option<(PathId, Reason)>, now: Time) {
        (self.hedge, self.alone) = (None, None);
        self.lanes = pick.map(|(path, _)| self.lanes_beside(path, now)).unwrap_or_default();
        let front = pick.and_then(|(winner, _)| self.turn_to_front(winner, now));
        for (i, state) in (0u32..).zip(&mut self.paths) {
            let path = PathId(i);
            if Some(path) == front {
                continue;
            }
            if self.lanes.contains(&path) {
                state.give_back_share();
            } else {
                if !state.is_idle() {
                    self.actions.push_back(Action::Stop { path, stalled: false });
                }
                state.give_back();
            }
        }
        let Some((winner, reason)) = pick else {
            let hope = |p: &PathState| p.is_waiting() || p.free_at().is_some();
            let hope = self.paths.iter().any(hope);
            self.phase = if hope { Phase::Completing(None) } else { Phase::Failed };
            return;
        };
        (self.phase, self.begun) = (Phase::Completing(Some(winner)), true);
        let several = self.lanes.len() > 1 && reason.sampled();
        let reason = if several { Reason::Sum } else { reason };
        self.actions.push_back(Action::Chosen { path: winner, reason });
        self.begin_lanes(now);
    }

    fn begin_lanes(&mut self, now: Time) {
        (self.lanes_since, self.lanes_bytes) = (now, 0);
        for path in self.lanes.clone() {
            let free = self.paths.unowned();
            let Some(state) = self.paths.get_mut(path) else { continue };
            state.extend(&free);
            let rtt = state.rtt().unwrap_or_default();
            state.recent = recent_rate::RecentRate::new(rtt);
        }
        self.feed_lanes(now);
    }

    /// The winner and the paths whose rate adds enough to the sum, best first.
    fn lanes_beside(&self, winner: PathId, now: Time) -> Vec<PathId> {
        let mut lanes = vec![winner];
        if self.single || self.single_lane || self.config.lanes <= 1 {
            return lanes;
        }
        let fit = |id: &PathId| {
            self.paths[*id].is_usable(now)
                && self.paths[*id].strikes() == 0
                && self.paths[*id].judged.is_some()
        };
        let mut others: Vec<_> = self.paths.ids();
        others.retain(|id| *id != winner && fit(id));
        others.sort_by(|a, b| self.paths.speed(*b).total_cmp(&self.paths.speed(*a)));
        let mut sum = self.paths.speed(winner);
        for path in others {
            if lanes.len() >= self.config.lanes as usize {
                break;
            }
            let least = if self.paths.is_apart(path, &lanes) { OWN_ADDS } else { ADDS };
            if self.paths.speed(path) >= least * sum {
                sum += self.paths.speed(path);
                lanes.push(path);
            }
        }
        lanes
    }

    /// Keeps each chosen path busy while there is something for it.
    fn feed_lanes(&mut self, now: Time) {
        for path in self.lanes.clone() {
            self.feed(path, now);
        }
    }

    /// Gives an idle path its next bytes.
    fn feed(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get(path) else { return };
        if !state.is_idle() || !state.is_usable(now) {
            return;
        }
        match self.phase {
            Phase::Sampling => self.feed_sample(path, now),
            Phase::Completing(Some(_)) if self.lanes.contains(&path) => {
                let mut wanted = self.portion(path);
                if wanted.is_empty() && self.lanes.len() > 1 {
                    wanted = self.steal(path, &self.lanes.clone(), true, now);
                }
                if !wanted.is_empty() {
                    self.ask(path, wanted, false);
                }
            }
            _ => {}
        }
    }

    /// The part of the unowned bytes that a lane takes: all if it is the only one, else so much that all lanes would
    /// end at the same time.
    fn portion(&self, path: PathId) -> Vec<Range<u64>> {
        let free = self.paths.unowned();
        if self.lanes.len() <= 1 {
            return free;
        }
        let sum: f64 = self.lanes.iter().map(|p| self.paths.speed(*p)).sum();
        let fair = (self.paths.left() as f64 * self.paths.speed(path) / sum.max(1.0)) as u64;
        ranges::head(&free, fair.max(self.paths.least_piece(path, self.paths.speed(path))))
    }

    /// As [`Paths::steal`], but takes nothing from two paths that owe the same bytes.
    fn steal(
        &mut self,
        thief: PathId,
        from: &[PathId],
        judged_rate: bool,
        now: Time,
    ) -> Vec<Range<u64>> {
        let in_hedge = |p: &PathId| self.hedge.is_some_and(|h| h.owner == *p || h.helper == *p);
        let from: Vec<PathId> = from.iter().copied().filter(|p| !in_hedge(p)).collect();
        self.paths.steal(thief, &from, judged_rate, now)
    }

    fn ask(&mut self, path: PathId, ranges: Vec<Range<u64>>, hedge: bool) {
        if let Some(state) = self.paths.get_mut(path) {
            state.ask(ranges.clone());
            self.actions.push_back(Action::Fetch { path, ranges, hedge });
        }
    }

    /// Goes back to the best path if several bring no more than it did alone. Not if each has a link of its own: then
    /// the lanes do not take from each other.
    fn weigh_sum(&mut self, new: u64, now: Time) {
        self.lanes_bytes += new;
        let (Phase::Completing(Some(winner)), true) = (self.phase, self.lanes.len() > 1) else {
            return;
        };
        if self.lanes.iter().all(|lane| self.paths.is_apart(*lane, &self.lanes)) {
            return;
        }
        let rtts = self.lanes.iter().filter_map(|p| self.paths[*p].rtt());
        let window = Duration::from_secs(2).max(16 * rtts.max().unwrap_or_default());
        let took = now.since(self.lanes_since);
        if took < window {
            return;
        }
        let sum = self.lanes_bytes as f64 / took.as_secs_f64();
        (self.lanes_since, self.lanes_bytes) = (now, 0);
        if sum < BETTER * self.paths.speed(winner) {
            self.single_lane = true;
            self.settle_on(Some((winner, Reason::SumNotBetter)), now);
        }
    }
}

/// A chosen path that became slow ([`Drift`]), and paths that took from each other ([`SinglePathTrials`]).
impl Selection {
    /// Samples anew if the only chosen path has been too slow for long enough.
    fn watch(&mut self, now: Time) {
        let (Phase::Completing(Some(current)), Ending::Clear) = (self.phase, self.config.ending)
        else {
            return;
        };
        // Two paths owe the same bytes: a new sampling would give some of them to a third.
        let hedged = self.hedge.is_some();
        let several = self.lanes.len() > 1;
        // While a path is being tried it is too early to call it slow.
        let trying = self.alone.as_ref().is_some_and(SinglePathTrials::is_trying);
        if self.single || hedged || several || trying {
            return;
        }
        if self.drift.is_due(&self.paths, current, now) {
            let others = drift::rivals(&self.paths, current, now);
            self.sample_again(current, &others, now);
        }
    }

    /// After the first sampling: settles on the direct path instead of `pick` if paths shared something and none had
    /// most of it. Returns whether it did.
    fn choose_shared(
        &mut self,
        pick: Option<(PathId, Reason)>,
        shared: Option<f64>,
        now: Time,
    ) -> bool {
        let (Some((winner, _)), Some(together)) = (pick, shared) else { return false };
        if !self.tries() || !single_path_trials::is_shared_out(&self.paths, winner, together, now) {
            return false;
        }
        self.settle_afresh(PathId::DIRECT, Reason::Shared, now);
        self.alone = Some(SinglePathTrials::new(together, None));
        true
    }

    /// After a choice by rates: watches whether the winner grows alone.
    fn begin_alone(&mut self, steady: bool, together: f64) {
        let Phase::Completing(Some(winner)) = self.phase else { return };
        if self.tries() && steady {
            self.alone = Some(SinglePathTrials::new(together, Some(self.paths.speed(winner))));
        }
    }

    fn tries(&self) -> bool {
        let alone = !self.single && self.config.lanes <= 1;
        alone && self.config.trials > 0 && self.config.ending == Ending::Clear
    }

    /// As [`Selection::settle_on`], on a new connection.
    fn settle_afresh(&mut self, path: PathId, reason: Reason, now: Time) {
        if let Some(state) = self.paths.get_mut(path).filter(|p| !p.is_idle()) {
            state.give_back();
            self.actions.push_back(Action::Stop { path, stalled: false });
        }
        self.settle_on(Some((path, reason)), now);
    }

    /// Watches the only path's rate until it is settled. Then the next path is tried, or the best of those tried
    /// carries the rest.
    fn try_alone(&mut self, now: Time) {
        let Phase::Completing(Some(current)) = self.phase else { return };
        if self.hedge.is_some() || self.single {
            return;
        }
        let Some(alone) = &mut self.alone else { return };
        let Some(rate) = alone.settled_rate(&self.paths[current].recent, now) else { return };
        let Some(mut alone) = self.alone.take() else { return };
        let trials = self.config.trials;
        let next = alone.next(&mut self.paths, (current, rate), trials, now);
        let Some((path, reason)) = next else { return };
        self.settle_on(Some((path, reason)), now);
        if reason == Reason::Trial {
            self.alone = Some(alone);
        }
    }
}

/// Objects too small to be sampled: earlier transfers decide.
impl Selection {
    /// The time until which the expected path is waited for.
    fn grace(&self, expected: PathId) -> Time {
        let prior = self.paths[expected].prior;
        self.sampling.since + prior.map_or(GRACE, |p| GRACE_SETUPS * p.setup)
    }

    /// When to stop waiting for the expected path, if another one is usable.
    fn next_small(&self, now: Time) -> Option<Time> {
        let waits = self.small && self.phase == Phase::Completing(None);
        let there = self.paths.iter().any(|p| p.is_usable(now));
        let expected = self.paths.expected().filter(|_| waits && there)?;
        self.paths[expected].is_waiting().then(|| self.grace(expected))
    }

    /// Begins if the expected path is usable, or has been waited for long enough.
    fn choose_small(&mut self, now: Time) {
        let Some(expected) = self.paths.expected() else { return self.choose(now, None) };
        let usable = |p: &PathState| p.is_usable(now);
        let several = self.paths.iter().filter(|p| !p.is_dead()).count() > 1;
        if usable(&self.paths[expected]) {
            let reason = match expected {
                _ if !several => Reason::OnlyPath,
                PathId::DIRECT => Reason::Small,
                _ if self.paths[expected].prior.is_some() => Reason::History,
                _ => Reason::FirstToJoin,
            };
            return self.settle_on(Some((expected, reason)), now);
        }
        let waits = self.paths[expected].is_waiting() && now < self.grace(expected);
        if waits {
            return;
        }
        let mut there = self.paths.ids();
        there.retain(|p| usable(&self.paths[*p]));
        let time = |p: &PathId| self.paths.predicted(*p);
        let first = there.into_iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        match first {
            Some(path) => self.settle_on(Some((path, Reason::FirstToJoin)), now),
            None => self.choose(now, None),
        }
    }
}

/// A stream that is read while it arrives: the path that takes the rest begins at its front.
///
/// Sampled shares lie far apart. A winner that first finished its own, half of the object ahead, would leave the reader
/// without a byte for as long as that takes. So with [`Config::in_order`] the winner asks anew from the front on. Until
/// it has connected and its first bytes arrive, the path at the front continues: the reader never gets less than that
/// path, the direct one at first, gave it.
impl Selection {
    /// Called before `winner` takes the rest. The winner gives up what it fetches further ahead. The path at the front,
    /// if it is another one that works, keeps its next bytes and is returned.
    fn turn_to_front(&mut self, winner: PathId, now: Time) -> Option<PathId> {
        if !self.config.in_order || self.config.lanes > 1 {
            return None;
        }
        let front = self.paths.at_front();
        if front == Some(winner) {
            return None;
        }
        let state = &mut self.paths[winner];
        if !state.is_idle() {
            state.give_back();
            self.actions.push_back(Action::Stop { path: winner, stalled: false });
        }
        let cover = COVER + COVER_RTTS * state.rtt().unwrap_or_default();
        let silent = |p: &PathId| {
            let heard = self.paths[*p].silent_since();
            heard.is_some_and(|t| now.since(t) >= COVER)
        };
        let front = front.filter(|p| !silent(p))?;
        let kept = LEAST.max((self.paths.speed(front) * cover.as_secs_f64()) as u64);
        let state = &mut self.paths[front];
        let owed = ranges::total(state.owes());
        state.give_back_share();
        // Unowned now: the winner takes it.
        state.surrender(owed.saturating_sub(kept));
        Some(front)
    }

    /// Whether no path fetches the bytes that the reader waits for.
    fn is_front_lost(&self) -> bool {
        self.config.in_order && self.paths.at_front().is_none()
    }
}

/// Late bytes are also requested from a second path (decision 0037).
impl Selection {
    /// The most bytes that may arrive twice.
    pub fn most_duplicates(&self) -> u64 {
        BOUND.max(self.whole / BOUND_PART)
    }

    /// When something that this path owes is late enough to ask another path for it.
    fn hedge_due(&self, path: PathId, now: Time) -> Option<Time> {
        let allowed = self.config.ending == Ending::Clear && !self.single && self.hedge.is_none();
        let completing = matches!(self.phase, Phase::Completing(Some(_)));
        if !allowed || !completing || self.hedged >= self.most_duplicates() {
            return None;
        }
        let state = self.paths.get(path)?;
        let owed = state.owed.as_ref()?;
        let heard = owed.heard?;
        self.paths.helper(path, now)?;
        // Unknown before the first byte; then the silence of 1 s decides.
        let rtt = state.rtt().unwrap_or_default();
        let anywhere = heard + SILENCE.max(SILENCE_RTTS * rtt);
        let Some((since, expected)) = owed.tail else { return Some(anywhere) };
        let silent = heard + TAIL_SILENCE.max(TAIL_RTTS * rtt);
        Some(anywhere.min(silent).min(since + LATE * expected + 2 * rtt))
    }

    fn next_hedge(&self, now: Time) -> Option<Time> {
        self.paths.ids().into_iter().filter_map(|p| self.hedge_due(p, now)).min()
    }

    /// Asks a second path for late bytes.
    fn hedge_if_late(&mut self, now: Time) {
        let late = |p: &PathId| self.hedge_due(*p, now).is_some_and(|t| t <= now);
        let Some(owner) = self.paths.ids().into_iter().find(late) else { return };
        let Some(helper) = self.paths.helper(owner, now) else { return };
        let owes: Vec<_> = self.paths[owner].owes().cloned().collect();
        let room = self.most_duplicates().saturating_sub(self.hedged);
        let wanted = ranges::head(&owes, room);
        self.hedged += ranges::total(&wanted);
        self.hedge = Some(Hedge { owner, helper, since: now });
        self.ask(helper, wanted, true);
    }

    /// Records when a path enters the tail.
    fn mark_tail(&mut self, path: PathId, now: Time) {
        if !matches!(self.phase, Phase::Completing(_)) {
            return;
        }
        let all = self.paths.left();
        let Some(state) = self.paths.get_mut(path) else { return };
        let (speed, rtt) = (state.speed(), state.rtt().unwrap_or_default());
        let left = ranges::total(state.owes()).max(all);
        if let (Some(owed @ OwedRanges { tail: None, .. }), true) = (&mut state.owed, speed > 0.0) {
            let expected = Duration::from_secs_f64((left as f64 / speed).min(1e6));
            owed.tail = (expected < TAIL.max(TAIL_RTTS * rtt)).then_some((now, expected));
        }
    }

    /// After bytes arrived: stops a path that no longer owes any missing byte. An owner that was silent all the while
    /// has stalled.
    fn settle_hedge(&mut self, now: Time) {
        let Some(Hedge { owner, helper, since }) = self.hedge else { return };
        let mut over = false;
        for path in [owner, helper] {
            let wanted = !self.paths.owes_nothing_new(path);
            let state = &mut self.paths[path];
            if !state.is_idle() && !wanted {
                self.actions.push_back(Action::Stop { path, stalled: false });
                state.give_back();
            }
            over |= state.is_idle();
        }
        if !over {
            return;
        }
        self.hedge = None;
        if self.paths[owner].silent_since().is_some_and(|t| t < since) {
            self.actions.push_back(Action::Stop { path: owner, stalled: true });
            self.fail_because(owner, Failure::Stalled, Reason::Stalled, now);
        } else {
            self.feed_lanes(now);
        }
    }
}

/// Two paths owe the same bytes: `helper` was asked for the first bytes that `owner` owes. Both deliver them in the
/// same order, so the bytes that arrived over either are a prefix.
#[derive(Clone, Copy)]
struct Hedge {
    owner: PathId,
    helper: PathId,
    since: Time,
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod in_order_tests {
    use super::*;
    use simulation::{Script, run};

    const MB: u64 = 1_000_000;

    /// What was requested after the choice, as (path, first byte).
    fn asked(in_order: bool) -> Vec<(PathId, u64)> {
        let config = Config { in_order, ..Config::default() };
        let scripts = [Script::steady(5.0), Script::steady(50.0)];
        let outcome = run(config, &scripts, &[0..32 * MB]);
        assert_eq!(outcome.phase, Phase::Done);
        let chosen = |a: &Action| matches!(a, Action::Chosen { path: PathId(1), reason } if *reason != Reason::OnlyPath);
        let after = outcome.actions.iter().map(|(_, a)| a).skip_while(|a| !chosen(a));
        let fetch = |a: &Action| match a {
            Action::Fetch { path, ranges, .. } => Some((*path, ranges.first()?.start)),
            _ => None,
        };
        after.filter_map(fetch).collect()
    }

    #[test]
    fn the_winner_begins_behind_the_bytes_that_direct_still_brings() {
        let first = asked(true)[0];
        assert!(first.0 == PathId(1) && first.1 < 6 * MB, "{first:?}");
    }

    #[test]
    fn without_a_reader_the_winners_own_request_continues() {
        let later = asked(false);
        assert_eq!(later.len(), 1, "it asks for the remainders when its share is done");
    }
}
