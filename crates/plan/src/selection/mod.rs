//! Parallel path selection (UKAIRO §3.2.1) as a pure state machine.
//!
//! One object is wanted over several paths; path 0 is the direct one. The
//! missing bytes are cut into one *share* per path (the paper's chunks of
//! N/(s+1)). In the **sampling phase** every path fetches its own share; in the
//! **completion phase** the fastest path fetches what the others left. A path
//! that fails at any moment hands back what it had not delivered.
//!
//! The machine does no I/O: the caller reports what happened ([`Selection::joined`],
//! [`sent`](Selection::sent), [`received`](Selection::received),
//! [`failed`](Selection::failed), [`tick`](Selection::tick)) and carries out what
//! [`Selection::next_action`] says. A byte belongs to at most one path at a time,
//! and is given to another only after its path was stopped or failed.
//!
//! As in the paper, the remainders are asked for together, as a list of ranges:
//! a request for each would cost a round trip for each.
//!
//! Differs from the paper:
//! - Sampling ends with the first complete share by default: see [`Ending`].
//! - The winner's own request goes on when sampling ends: the same bytes on the
//!   same path gain nothing from a new request.
//! - Failures and stalls, on which the paper is silent, lead to the next best path.
//! - Small objects skip sampling: see [`Config::small`].

mod choice;
mod path;
mod sample;
mod shares;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use choice::Reason;
pub use path::Failure;

use path::PathState;
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_units::{PathId, Rate, Time};

/// When sampling ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The paper's: every path runs until its own share is complete or
    /// [`Config::window`] has passed; then the fastest takes the rest. A fast
    /// path that is ready early waits for the slowest.
    Paper,
    /// Ours: sampling is over as soon as *one* share is complete, or after the
    /// window. From then on r₁, the fastest rate, carries the rest; waiting, the
    /// unfinished r₂ + r₃ + … would go on while path 1 idles from N/(k·r₁) to
    /// min(N/(k·r_k), window). So this ending is the faster one where
    /// r₁ > r₂ + r₃ + …, and the paper's where the paths are alike, at the cost of
    /// other flows. The sample is shorter, too: on a path so fast that its share
    /// ends within slow start the others may still be growing.
    Clear,
}

/// The parameters of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// When sampling ends.
    pub ending: Ending,
    /// Sampling never lasts longer. 5 s: "most paths achieve TCP steady-state
    /// behaviour within 5 seconds" (UKAIRO §3.2.1).
    pub window: Duration,
    /// A path that owes bytes and delivers none for this long counts as failed
    /// for now. 5 s: longer than four of Linux's doubling retransmission
    /// timeouts at an RTT of 100 ms (0.3 + 0.6 + 1.2 + 2.4 s), so one lost
    /// tail does not cost the path.
    pub stall: Duration,
    /// Objects of at most this many bytes *per path* skip sampling and come over
    /// the path that answered first. 256 kB is about five round trips of slow
    /// start from 10 segments (14.6 kB · (2⁵−1) = 450 kB): no share would leave
    /// slow start, and the set-up time decides.
    pub small: u64,
    /// A path that broke or stalled this many times without delivering
    /// [`Config::forgive`] bytes in between is dead for good.
    pub strikes: u32,
    /// Bytes delivered after which earlier strikes are forgotten. With it every
    /// [`Config::strikes`] failures cost the object at least this much
    /// progress, so a selection always ends.
    pub forgive: u64,
    /// The most paths that carry the rest at the same time (`--paths K`), at least 1.
    /// Further ones are only used where the sum of rates is better.
    pub lanes: u32,
}

/// What is known of a path before it is asked: from earlier transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// The rate it reached.
    pub rate: Rate,
    /// From dialling to the first byte.
    pub setup: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ending: Ending::Clear,
            window: Duration::from_secs(5),
            stall: Duration::from_secs(5),
            small: 256_000,
            strikes: 3,
            forgive: 1 << 20,
            lanes: 1,
        }
    }
}

/// What the caller must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for these bytes on this path, in this order; never while it still owes some.
    Fetch {
        /// The path to ask on.
        path: PathId,
        /// The bytes wanted: at least one range, none empty, disjoint, ascending, ends exclusive.
        ranges: Vec<Range<u64>>,
        /// Another path owes some of these bytes, too: whichever brings them first counts.
        hedge: bool,
    },
    /// Abandon what this path is fetching; bytes of it that were not reported
    /// to [`Selection::received`] belong to others from now on.
    Stop {
        /// The path to stop.
        path: PathId,
        /// True if it was given up for silence, false if another was faster.
        stalled: bool,
    },
    /// For the user's eyes: the rest comes over this path.
    Chosen {
        /// The path chosen.
        path: PathId,
        /// Why this one.
        reason: Reason,
    },
}

/// Where a selection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every path fetches its own share.
    Sampling,
    /// One path fetches the rest; `None` while no usable path has answered yet.
    Completing(Option<PathId>),
    /// Every byte has been received.
    Done,
    /// Every path is dead and bytes are missing.
    Failed,
}

/// Parallel path selection for one object. See the [module](self).
///
/// Memory: O(paths + missing ranges). Every call is O(paths), a choice
/// O(ranges · log ranges).
pub struct Selection {
    config: Config,
    paths: Vec<PathState>,
    /// Bytes that belong to no path: sorted and disjoint once a path is chosen.
    pool: Vec<Range<u64>>,
    /// Bytes not received yet.
    left: u64,
    since: Time,
    /// Too small to sample.
    small: bool,
    phase: Phase,
    actions: VecDeque<Action>,
}

impl Selection {
    /// A selection that starts at `now`, over `paths` ≥ 1 paths of which none
    /// has joined, for the `missing` bytes (disjoint ranges, ascending).
    pub fn new(config: Config, paths: u32, missing: &[Range<u64>], now: Time) -> Self {
        let left = missing.iter().map(|r| r.end.saturating_sub(r.start)).sum();
        let small = left <= config.small.saturating_mul(u64::from(paths));
        let (phase, count) = match (left, paths > 1 && !small) {
            (0, _) => (Phase::Done, 0),
            (_, true) => (Phase::Sampling, paths),
            (_, false) => (Phase::Completing(None), 0),
        };
        let mut shares = shares::split(missing, count).into_iter();
        let paths = (0..paths).map(|_| PathState::new(shares.next().unwrap_or_default())).collect();
        let pool = if count == 0 { missing.to_vec() } else { Vec::new() };
        Self { config, paths, pool, left, since: now, small, phase, actions: VecDeque::new() }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Bytes not received yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// What to do next, oldest first; `None` when nothing is to be done until the next event.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The rate a path is judged by, up to `now`: see [`Reason`]. `None` until it was asked.
    pub fn rate(&self, path: PathId, now: Time) -> Option<Rate> {
        self.paths.get(path.0 as usize)?.sample.rate(now)
    }

    /// The path is connected and its server agrees about the object.
    pub fn joined(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if !state.join() {
            return;
        }
        match self.phase {
            Phase::Sampling => {
                self.feed(path, now);
                self.end_sampling_if_due(now);
            }
            Phase::Completing(None) => self.choose(now, None),
            _ => {}
        }
    }

    /// A request for the path's last [`Action::Fetch`] has left: its clocks start.
    pub fn sent(&mut self, path: PathId, now: Time) {
        let sampling = self.phase == Phase::Sampling;
        if let Some(state) = self.paths.get_mut(path.0 as usize) {
            state.sent(sampling, now);
        }
    }

    /// `n` further bytes of the path's ranges, in their order, arrived and were kept.
    ///
    /// `n` is cut to what the path still owes; the caller rejects longer answers.
    ///
    /// Returns how many of them are new: always the last ones of the `n`. The others came
    /// over another path before (see [`Action::Fetch`]).
    pub fn received(&mut self, path: PathId, n: u64, now: Time) -> u64 {
        let (sampling, forgive) = (self.phase == Phase::Sampling, self.config.forgive);
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return 0 };
        let new = state.receive(n, sampling, forgive, now);
        self.left -= new;
        if self.left == 0 {
            self.phase = Phase::Done;
        } else if state.is_idle() {
            self.feed(path, now);
            self.end_sampling_if_due(now);
        }
        new
    }

    /// What earlier transfers tell of this path; said before it joins.
    pub fn expect(&mut self, path: PathId, prior: Prior) {
        _ = (path, prior);
    }

    /// The server asks for fewer requests (429, 503): the path gives back what it owes and is
    /// asked nothing before `until`. No failure: after `until` it is used as before, but from
    /// now on no more than one path is asked at a time.
    pub fn busy(&mut self, path: PathId, until: Time, now: Time) {
        _ = until;
        self.failed(path, Failure::Broken, now);
    }

    /// The path failed; what it had not delivered goes to others.
    pub fn failed(&mut self, path: PathId, failure: Failure, now: Time) {
        let (strikes, over) = (self.config.strikes, self.over());
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        if over || state.is_dead() {
            return;
        }
        self.pool.extend(state.fail(failure, strikes));
        match self.phase {
            Phase::Sampling => self.end_sampling_if_due(now),
            Phase::Completing(winner) if winner == Some(path) || winner.is_none() => {
                self.choose(now, Some(Reason::Failover));
            }
            _ => {}
        }
    }

    /// Lets time pass: ends sampling at its window, gives up stalled paths.
    pub fn tick(&mut self, now: Time) {
        let stall = self.config.stall;
        let stalled = |p: &PathState| p.silent_since().is_some_and(|t| now.since(t) >= stall);
        for id in (0u32..)
            .zip(&self.paths)
            .filter(|(_, p)| stalled(p))
            .map(|(i, _)| PathId(i))
            .collect::<Vec<_>>()
        {
            self.actions.push_back(Action::Stop { path: id, stalled: true });
            self.failed(id, Failure::Stalled, now);
        }
        self.end_sampling_if_due(now);
    }

    /// When [`tick`](Self::tick) is due next; `None` when only events can change anything.
    pub fn deadline(&self) -> Option<Time> {
        let window = (self.phase == Phase::Sampling).then(|| self.since + self.config.window);
        let stalls = self.paths.iter().filter_map(PathState::silent_since);
        stalls.map(|t| t + self.config.stall).chain(window).min()
    }

    /// The caller itself could not take bytes for `d` (a slow disk): no path is
    /// blamed, and the time does not count as sampled.
    pub fn paused(&mut self, d: Duration) {
        self.since += d;
        self.paths.iter_mut().for_each(|p| p.paused(d));
    }

    fn over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed)
    }

    /// Gives an idle path what is there for it: its share, or all that is left.
    fn feed(&mut self, path: PathId, now: Time) {
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        let ranges = match self.phase {
            Phase::Sampling => state.open_share(now),
            Phase::Completing(Some(winner)) if winner == path => std::mem::take(&mut self.pool),
            _ => Vec::new(),
        };
        if !ranges.is_empty() {
            state.ask(ranges.clone());
            self.actions.push_back(Action::Fetch { path, ranges, hedge: false });
        }
    }

    fn end_sampling_if_due(&mut self, now: Time) {
        if self.phase != Phase::Sampling {
            return;
        }
        let mut hopeful = self.paths.iter().filter(|p| p.is_hopeful());
        let shares_done = match self.config.ending {
            Ending::Paper => hopeful.all(PathState::share_done),
            Ending::Clear => hopeful.any(PathState::share_done),
        };
        let hopeful = self.paths.iter().filter(|p| p.is_hopeful()).count();
        let expired = now.since(self.since) >= self.config.window;
        if shares_done || expired || hopeful <= 1 {
            self.choose(now, None);
        }
    }

    /// Leaves sampling, or replaces a winner: the best usable path takes all that is left.
    fn choose(&mut self, now: Time, why: Option<Reason>) {
        let sampled = self.phase == Phase::Sampling;
        let best = choice::best(&self.paths, now);
        for (i, state) in (0u32..).zip(&mut self.paths) {
            let path = PathId(i);
            state.sample.close(now);
            if best.is_some_and(|(winner, _)| winner == path) {
                self.pool.extend(state.give_back_share());
                continue;
            }
            if !state.is_idle() {
                self.actions.push_back(Action::Stop { path, stalled: false });
            }
            self.pool.extend(state.give_back());
        }
        shares::merge(&mut self.pool);
        let Some((winner, reason)) = best else {
            let hope = self.paths.iter().any(PathState::is_waiting);
            self.phase = if hope { Phase::Completing(None) } else { Phase::Failed };
            return;
        };
        self.phase = Phase::Completing(Some(winner));
        let reason = why.unwrap_or(if sampled { reason } else { self.unsampled_reason() });
        self.actions.push_back(Action::Chosen { path: winner, reason });
        if self.paths[winner.0 as usize].is_idle() {
            self.feed(winner, now);
        }
    }

    fn unsampled_reason(&self) -> Reason {
        if self.small && self.paths.len() > 1 { Reason::Small } else { Reason::OnlyPath }
    }
}
