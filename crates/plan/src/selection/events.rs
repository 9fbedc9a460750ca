//! What happens on the paths.

use super::{Action, Failure, Phase, Reason, Selection, ranges};
use thalweg_units::{PathId, Time};

impl Selection {
    /// The path is connected and its server agrees about the object.
    pub fn joined(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if !state.join() {
            return;
        }
        match self.phase {
            Phase::Sampling if self.paths[path.0 as usize].sampled => {
                self.feed(path, now);
                self.end_sampling_if_due(now);
            }
            Phase::Completing(None) => self.begin(None, now),
            _ => {}
        }
    }

    /// The first choice without sampling, or the next after a time without any usable path.
    pub(super) fn begin(&mut self, why: Option<Reason>, now: Time) {
        if self.small && !self.begun && why.is_none() {
            self.choose_small(now);
        } else {
            self.choose(now, why);
        }
    }

    /// A request for the path's last [`Action::Fetch`] has left: its clocks start.
    pub fn sent(&mut self, path: PathId, now: Time) {
        if let Some(state) = self.paths.get_mut(path.0 as usize) {
            state.sent(now);
        }
    }

    /// `n` further bytes of the path's ranges, in their order, arrived and were kept.
    ///
    /// `n` is cut to what the path still [owes](Self::owes); the caller cuts longer
    /// deliveries, too.
    ///
    /// Returns how many of them are new: always the last ones of the `n`. The others came
    /// over another path before (see [`Action::Fetch`]).
    pub fn received(&mut self, path: PathId, n: u64, now: Time) -> u64 {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return 0 };
        let (taken, beyond) = state.receive(n, self.config.forgive, now);
        let new = taken.iter().map(|r| ranges::remove(&mut self.missing, r)).sum();
        self.left -= new;
        if beyond {
            self.actions.push_back(Action::Stop { path, stalled: false });
        }
        if self.left == 0 {
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

    /// `n` further bytes of the path's ranges came that cannot be believed yet: they count for
    /// its rate and as a sign of life now, and not again once they are
    /// [`received`](Self::received). If they never are, they are still owed.
    pub fn coming(&mut self, path: PathId, n: u64, now: Time) {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        state.come(n, now);
        self.end_sampling_if_due(now);
        self.try_alone(now);
        self.watch(now);
    }

    /// Nothing is missing: what still comes is wanted no more.
    fn finish(&mut self) {
        self.phase = Phase::Done;
        for (i, state) in (0u32..).zip(&mut self.paths) {
            if !state.is_idle() {
                self.actions.push_back(Action::Stop { path: PathId(i), stalled: false });
            }
            state.give_back();
        }
    }

    /// The server asks for fewer requests (429, 503): the path gives back what it owes and is
    /// asked nothing before `until`. No failure: after `until` it is used as before, but from
    /// now on no more than one path is asked at a time. The caller has stopped it.
    pub fn busy(&mut self, path: PathId, until: Time, now: Time) {
        let over = self.over();
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if over || state.is_dead() {
            return;
        }
        state.join();
        state.spare(until);
        self.single = true;
        match self.phase {
            // Another path goes on: it is the only one that is asked.
            Phase::Completing(Some(winner)) if winner != path && self.lanes.len() <= 1 => {
                self.hedge = None;
                self.feed_lanes(now);
            }
            _ => self.choose(now, Some(Reason::Busy)),
        }
    }

    /// The path failed; what it had not delivered goes to others. The caller has stopped it.
    pub fn failed(&mut self, path: PathId, failure: Failure, now: Time) {
        self.fail_because(path, failure, Reason::Failover, now);
    }

    pub(super) fn fail_because(&mut self, path: PathId, failure: Failure, why: Reason, now: Time) {
        let (strikes, over) = (self.config.strikes, self.over());
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if over || state.is_dead() {
            return;
        }
        state.fail(failure, strikes);
        if self.hedge.is_some_and(|h| h.owner == path || h.by == path) {
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
