//! The rest on the best path, or on several whose sum is better.

use super::{Action, Phase, Reason, Selection, choice, path::PathState, ranges, recent};
use std::{ops::Range, time::Duration};
use thalweg_units::{PathId, Time};

/// A further path is only used if it adds at least this part to the sum of those
/// before: what it takes from other users must be worth it.
const ADDS: f64 = 0.15;
/// By another link of this host's own it takes from nobody: less than this is not worth a connection.
const OWN_ADDS: f64 = 0.02;
/// The measured sum must be this much better than the best alone was.
const BETTER: f64 = 1.05;
/// Nothing smaller is taken over from another path.
const PIECE: u64 = 1 << 16;

impl Selection {
    /// Leaves sampling, or replaces a winner: the best usable path takes all that is left.
    pub(super) fn choose(&mut self, now: Time, why: Option<Reason>) {
        let sampled = self.phase == Phase::Sampling;
        let first = sampled && !self.begun;
        let running: Vec<bool> = self.paths.iter().map(|p| p.sampled).collect();
        let shared = if first { self.shared(now) } else { None };
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
            (path, self.after_drift(path, reason))
        });
        if self.choose_shared(pick, shared, now) {
            return;
        }
        self.settle_on(pick, now);
        if first {
            let together = (0..).map(PathId).zip(running);
            let together = together.filter(|r| r.1).map(|(p, _)| self.speed(p)).sum();
            let steady = |p: PathId| self.paths[p.0 as usize].gauge.bounds().is_some();
            self.begin_alone(pick.is_some_and(|(p, _)| steady(p)), together);
        }
    }

    /// This path takes the rest, with others if lanes are wanted; everything else stops.
    pub(super) fn settle_on(&mut self, pick: Option<(PathId, Reason)>, now: Time) {
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
            let free = self.unowned();
            let Some(state) = self.paths.get_mut(path.0 as usize) else { continue };
            state.extend(&free);
            let rtt = state.rtt().unwrap_or_default();
            state.recent = recent::Recent::new(rtt);
        }
        self.feed_lanes(now);
    }

    /// The winner and those whose rate adds enough to the sum, best first.
    fn lanes_beside(&self, winner: PathId, now: Time) -> Vec<PathId> {
        let mut lanes = vec![winner];
        if self.single || self.single_lane || self.config.lanes <= 1 {
            return lanes;
        }
        let fit = |id: &PathId| {
            self.paths[id.0 as usize].is_usable(now)
                && self.paths[id.0 as usize].strikes() == 0
                && self.paths[id.0 as usize].judged.is_some()
        };
        let mut others: Vec<_> = self.everyone();
        others.retain(|id| *id != winner && fit(id));
        others.sort_by(|a, b| self.speed(*b).total_cmp(&self.speed(*a)));
        let mut sum = self.speed(winner);
        for path in others {
            if lanes.len() >= self.config.lanes as usize {
                break;
            }
            let least = if self.is_apart(path, &lanes) { OWN_ADDS } else { ADDS };
            if self.speed(path) >= least * sum {
                sum += self.speed(path);
                lanes.push(path);
            }
        }
        lanes
    }

    /// Whether it has a link of this host's own that none of these has.
    fn is_apart(&self, path: PathId, from: &[PathId]) -> bool {
        let link = |p: PathId| self.paths[p.0 as usize].own_link;
        let others = from.iter().filter(|p| **p != path);
        link(path).is_some() && others.map(|p| link(*p)).all(|l| l.is_some() && l != link(path))
    }

    pub(super) fn speed(&self, path: PathId) -> f64 {
        self.paths.get(path.0 as usize).map_or(0.0, PathState::speed)
    }

    pub(super) fn everyone(&self) -> Vec<PathId> {
        (0..self.paths.len() as u32).map(PathId).collect()
    }

    /// No chosen path idles while there is something for it.
    pub(super) fn feed_lanes(&mut self, now: Time) {
        for path in self.lanes.clone() {
            self.feed(path, now);
        }
    }

    /// Gives an idle path what is its own now.
    pub(super) fn feed(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get(path.0 as usize) else { return };
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

    /// What of the bytes that belong to nobody a lane takes: all if it is the only one or the
    /// last idle one, else so much that all would end at the same time.
    fn portion(&self, path: PathId) -> Vec<Range<u64>> {
        let free = self.unowned();
        if self.lanes.len() <= 1 {
            return free;
        }
        let sum: f64 = self.lanes.iter().map(|p| self.speed(*p)).sum();
        let fair = (self.left as f64 * self.speed(path) / sum.max(1.0)) as u64;
        ranges::head(&free, fair.max(self.least_piece(path, self.speed(path))))
    }

    /// What a path moves in two round trips: less is not worth a request.
    fn least_piece(&self, path: PathId, rate: f64) -> u64 {
        let rtt = self.paths[path.0 as usize].rtt().unwrap_or_default();
        PIECE.max((rate * 2.0 * rtt.as_secs_f64()) as u64)
    }

    /// The late part of what will take another path longest: so much that both end together by
    /// their rates, as they were judged (`judged_rate`) or as they are now. At least what the
    /// path moves in two round trips.
    ///
    /// Not half of it: from a path a hundred times slower half is too little to be worth a
    /// request, and the fast one would end sampling while its rivals still grow.
    ///
    /// A lane asks a round trip before it is brought anything, in which the other goes on: so much less is
    /// taken, and then whatever is worth a request.
    pub(super) fn steal(
        &mut self,
        thief: PathId,
        from: &[PathId],
        judged_rate: bool,
        now: Time,
    ) -> Vec<Range<u64>> {
        let rate = |p: PathId| {
            let state = &self.paths[p.0 as usize];
            let lately = || state.recent.rate().unwrap_or(state.speed());
            if judged_rate { lately() } else { state.gauge.judged(now).unwrap_or(0.0) }.max(1.0)
        };
        let own = rate(thief);
        let rtt = self.paths[thief.0 as usize].rtt().unwrap_or_default().as_secs_f64();
        let (pause, least) = match judged_rate {
            true => (rtt, PIECE),
            false => (0.0, self.least_piece(thief, own)),
        };
        let held = |p: PathId| ranges::total(self.paths[p.0 as usize].holds());
        let in_hedge = |p: PathId| self.hedge.is_some_and(|h| h.owner == p || h.by == p);
        let victims = from.iter().copied().filter(|p| *p != thief && !in_hedge(*p));
        let lasts = |p: PathId| held(p) as f64 / rate(p);
        let Some(victim) = victims.max_by(|a, b| lasts(*a).total_cmp(&lasts(*b))) else {
            return Vec::new();
        };
        let part = own / (own + rate(victim));
        let n = ((held(victim) as f64 - pause * rate(victim)) * part).max(0.0) as u64;
        if n < least {
            return Vec::new();
        }
        self.paths[victim.0 as usize].surrender(n)
    }

    pub(super) fn ask(&mut self, path: PathId, ranges: Vec<Range<u64>>, hedge: bool) {
        if let Some(state) = self.paths.get_mut(path.0 as usize) {
            state.ask(ranges.clone());
            self.actions.push_back(Action::Fetch { path, ranges, hedge });
        }
    }

    /// The bytes that belong to no path. O(ranges · paths).
    pub(super) fn unowned(&self) -> Vec<Range<u64>> {
        let mut free = self.missing.clone();
        for r in self.paths.iter().flat_map(PathState::holds) {
            ranges::remove(&mut free, r);
        }
        free
    }

    /// Several paths that bring no more than the best did alone give way to it. Not where each has a link
    /// of its own: what one brings less then is not taken by the others.
    pub(super) fn weigh_sum(&mut self, new: u64, now: Time) {
        self.lanes_bytes += new;
        let (Phase::Completing(Some(winner)), true) = (self.phase, self.lanes.len() > 1) else {
            return;
        };
        if self.lanes.iter().all(|lane| self.is_apart(*lane, &self.lanes)) {
            return;
        }
        let rtts = self.lanes.iter().filter_map(|p| self.paths[p.0 as usize].rtt());
        let window = Duration::from_secs(2).max(16 * rtts.max().unwrap_or_default());
        let took = now.since(self.lanes_since);
        if took < window {
            return;
        }
        let sum = self.lanes_bytes as f64 / took.as_secs_f64();
        (self.lanes_since, self.lanes_bytes) = (now, 0);
        if sum < BETTER * self.speed(winner) {
            self.single_lane = true;
            self.settle_on(Some((winner, Reason::SumNotBetter)), now);
        }
    }
}
