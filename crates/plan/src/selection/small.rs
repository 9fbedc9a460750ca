//! Objects too small to be sampled: what earlier transfers tell decides.

use super::{Phase, Prior, Reason, Selection, path::PathState};
use std::time::Duration;
use thalweg_units::{PathId, Rate, Time};

/// A detour is expected to be clearly faster if it needs less than this part of the
/// direct path's time ...
const CLEARLY: f64 = 0.8;
/// ... and saves this much.
const SAVES_SECS: f64 = 0.05;
/// How long the expected path is waited for: four times its usual set-up, or this.
const GRACE: Duration = Duration::from_secs(1);
const GRACE_SETUPS: u32 = 4;
/// What is assumed of a path of which nothing is known, to compare it with others when the
/// expected one is not there: a round trip of 100 ms and 10 Mbit/s.
const GUESS: Prior = Prior { rate: Rate::from_bps(10_000_000), setup: Duration::from_millis(200) };

impl Selection {
    /// The path that should finish first, of those that are not dead: direct, unless a
    /// detour's past is clearly better than direct's own; without a past of direct, direct.
    fn expected(&self) -> Option<PathId> {
        let alive = |p: &PathId| !self.paths[p.0 as usize].is_dead();
        let time = |p: PathId| self.predicted(p);
        let others = self.everyone().into_iter().filter(|p| alive(p));
        let fastest = others.min_by(|a, b| time(*a).total_cmp(&time(*b)))?;
        let Some(direct) = self.paths.first().filter(|p| !p.is_dead()) else {
            return Some(fastest);
        };
        let known = self.paths[fastest.0 as usize].prior.is_some() && direct.prior.is_some();
        let own = time(PathId::DIRECT);
        let better = time(fastest) < CLEARLY * own && time(fastest) + SAVES_SECS < own;
        Some(if known && better { fastest } else { PathId::DIRECT })
    }

    fn predicted(&self, path: PathId) -> f64 {
        self.paths[path.0 as usize].prior.unwrap_or(GUESS).predicts(self.left)
    }

    /// Until when the expected path is waited for.
    fn grace(&self, expected: PathId) -> Time {
        let prior = self.paths[expected.0 as usize].prior;
        self.since + prior.map_or(GRACE, |p| GRACE_SETUPS * p.setup)
    }

    /// When to stop waiting for the expected path, if another is there.
    pub(super) fn next_small(&self, now: Time) -> Option<Time> {
        let waits = self.small && self.phase == Phase::Completing(None);
        let there = self.paths.iter().any(|p| p.is_usable(now));
        let expected = self.expected().filter(|_| waits && there)?;
        self.paths[expected.0 as usize].is_waiting().then(|| self.grace(expected))
    }

    /// Begins if the expected path is there, or has been waited for long enough.
    pub(super) fn choose_small(&mut self, now: Time) {
        let Some(expected) = self.expected() else { return self.choose(now, None) };
        let usable = |p: &PathState| p.is_usable(now);
        let several = self.paths.iter().filter(|p| !p.is_dead()).count() > 1;
        if usable(&self.paths[expected.0 as usize]) {
            let reason = match expected {
                _ if !several => Reason::OnlyPath,
                PathId::DIRECT => Reason::Small,
                _ if self.paths[expected.0 as usize].prior.is_some() => Reason::History,
                _ => Reason::FirstToJoin,
            };
            return self.settle_on(Some((expected, reason)), now);
        }
        let waits = self.paths[expected.0 as usize].is_waiting() && now < self.grace(expected);
        if waits {
            return;
        }
        let mut there = self.everyone();
        there.retain(|p| usable(&self.paths[p.0 as usize]));
        let time = |p: &PathId| self.predicted(*p);
        let first = there.into_iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        match first {
            Some(path) => self.settle_on(Some((path, Reason::FirstToJoin)), now),
            None => self.choose(now, None),
        }
    }
}
