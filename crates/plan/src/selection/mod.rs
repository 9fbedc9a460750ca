//! Parallel path selection (UKAIRO §3.2.1) as a pure state machine.
//!
//! One object is wanted over several paths; path 0 is the direct one. The
//! missing bytes are cut into one *share* per path (the paper's chunks of
//! N/(s+1)). In the **sampling phase** every path fetches its own share; in the
//! **completion phase** the best path fetches what the others left. A path
//! that fails at any moment hands back what it had not delivered.
//!
//! The machine does no I/O: the caller reports what happened ([`Selection::joined`],
//! [`sent`](Selection::sent), [`received`](Selection::received),
//! [`failed`](Selection::failed), [`busy`](Selection::busy), [`tick`](Selection::tick))
//! and carries out what [`Selection::next_action`] says. A byte belongs to one path at a
//! time, and is given to another only after its path was stopped or failed, or will be
//! stopped in front of it ([`Selection::owes`]). Only a hedge belongs to two.
//!
//! As in the paper, the remainders are asked for together, as a list of ranges:
//! a request for each would cost a round trip for each. The direct path's share is the
//! first part of what is missing, where its first request already reads.
//!
//! Differs from the paper (with [`Ending::Clear`]; [`Ending::Paper`] has only the first two
//! and small objects):
//! - The winner's own request goes on when sampling ends: the same bytes on the
//!   same path gain nothing from a new request.
//! - Failures and stalls, on which the paper is silent, lead to the next best path.
//! - Sampling ends when waiting tells no more: see [`Ending::Clear`]. A path that is done
//!   takes over part of the slowest's share: the paper's idles, up to 5 s.
//! - A path is judged by its rate after slow start: over all time, a path of long RTT that
//!   is the faster one for the rest looks slower.
//! - Direct wins near ties, too: see [`Reason::DirectNotBeaten`]. A difference of 5 % is
//!   within what the same path differs by from one second to the next.
//! - The rest may come over several paths ([`Config::lanes`]), if asked for, or if this host has several
//!   interfaces ([`Selection::leaves_by`]).
//! - A winner that becomes slow is compared anew with the best others (`drift`): 5 s tell
//!   little about the next 5 min.
//! - Where paths took from each other in sampling, the rest goes directly, on a new connection
//!   (`alone`): rates in company tell little then, and its connections recover slowly.
//! - For a stream that is read while it comes the winner begins at its front (`in_order`).
//! - What is late is asked of a second path, too (`hedge`), long before a stall counts.
//! - After a 429 or 503 one path at a time is asked.
//! - Small objects skip sampling: see [`Config::small`] and `small`.

mod action;
mod alone;
mod choice;
mod clock;
mod completion;
mod config;
mod drift;
mod events;
mod gauge;
mod hedge;
mod in_order;
mod path;
mod ranges;
mod recent;
mod sampling;
mod shares;
#[cfg(test)]
mod simulation;
mod small;
#[cfg(test)]
mod tests;
mod timeline;

pub use action::{Action, Phase};
pub use choice::Reason;
pub use config::{Config, Ending, Prior};
pub use path::Failure;

use path::PathState;
use std::{collections::VecDeque, ops::Range};
use thalweg_units::{PathId, Rate, Time};

/// Parallel path selection for one object. See the [module](self).
///
/// Memory: O(paths + missing ranges + bins of 5 s). A report of bytes costs O(paths +
/// missing ranges), and every 10 ms of sampling O(bins); a choice O(paths · ranges).
pub struct Selection {
    config: Config,
    paths: Vec<PathState>,
    /// Not received yet.
    missing: Vec<Range<u64>>,
    /// How many bytes that is.
    left: u64,
    /// How many it was at the beginning.
    whole: u64,
    /// This sampling began.
    since: Time,
    /// The bounds were compared last.
    looked: Time,
    /// Too small to sample.
    small: bool,
    /// A path has been chosen once.
    begun: bool,
    /// The server asked for fewer requests: one at a time.
    single: bool,
    phase: Phase,
    /// The paths chosen: the winner first.
    lanes: Vec<PathId>,
    /// Several were tried and brought no more.
    single_lane: bool,
    lanes_since: Time,
    /// New bytes since then.
    lanes_bytes: u64,
    drift: drift::Drift,
    alone: Option<alone::Alone>,
    hedge: Option<hedge::Hedge>,
    /// Bytes asked for by hedges so far.
    hedged: u64,
    actions: VecDeque<Action>,
}

impl Selection {
    /// A selection that starts at `now`, over `paths` ≥ 1 paths of which none
    /// has joined, for the `missing` bytes (disjoint ranges, ascending). What the direct
    /// path's first request has delivered by then is not among them.
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
        let mut shares = shares::split(&missing, count).into_iter();
        let path = |_| PathState::new(shares.next().unwrap_or_default(), now);
        let paths = (0..paths).map(path).collect();
        Self {
            config,
            paths,
            missing,
            left,
            whole: left,
            since: now,
            looked: now,
            small,
            begun: false,
            single: false,
            phase,
            lanes: Vec::new(),
            single_lane: false,
            lanes_since: now,
            lanes_bytes: 0,
            drift: drift::Drift::default(),
            alone: None,
            hedge: None,
            hedged: 0,
            actions: VecDeque::new(),
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Bytes not received yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Bytes that `path` was asked for and still owes. The part of a longer delivery behind
    /// them belongs to another path: the caller cuts it off, and is told to stop the path.
    pub fn owes(&self, path: PathId) -> u64 {
        self.paths.get(path.0 as usize).map_or(0, |p| ranges::total(p.owes()))
    }

    /// What to do next, oldest first; `None` when nothing is to be done until the next event.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The paths that carry the rest together, the best first; one, or none before the choice.
    pub fn lanes(&self) -> &[PathId] {
        &self.lanes
    }

    /// The rate a path is judged by, up to `now`: see [`Reason`]. `None` until it was asked.
    pub fn rate(&self, path: PathId, now: Time) -> Option<Rate> {
        let state = self.paths.get(path.0 as usize)?;
        let running = || match self.config.ending {
            Ending::Paper => state.gauge.overall(now),
            Ending::Clear => state.gauge.judged(now),
        };
        let rate = state.judged.map(|(rate, _)| rate).or_else(running)?;
        Some(Rate::from_bps((rate * 8.0).round() as u64))
    }

    /// This path takes nothing from anybody but this host's own `link` (an interface), which others
    /// may have as well; said before it joins. Where lanes have links of their own each adds what
    /// it brings: see [`Config::lanes`].
    pub fn leaves_by(&mut self, path: PathId, link: u32) {
        if let Some(state) = self.paths.get_mut(path.0 as usize) {
            state.own_link = Some(link);
        }
    }

    /// What earlier transfers tell of this path; said before it joins. It decides for small
    /// objects; for others it only orders paths of which nothing better is known.
    pub fn expect(&mut self, path: PathId, prior: Prior) {
        if let Some(state) = self.paths.get_mut(path.0 as usize) {
            state.prior = Some(prior);
        }
    }
}
