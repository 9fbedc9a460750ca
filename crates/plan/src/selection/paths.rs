//! The paths of a selection, and which path owes which of the missing bytes.

use super::{Prior, path::PathState, ranges};
use std::{
    cmp::Reverse,
    ops::{Index, IndexMut, Range},
    slice::{Iter, IterMut},
    time::Duration,
};
use thalweg_units::{PathId, Rate, Time};

/// The smallest piece that is taken over from another path.
const PIECE: u64 = 1 << 16;

/// A detour is expected to be clearly faster if it needs less than this part of the direct path's time ...
const CLEARLY: f64 = 0.8;
/// ... and saves this much.
const SAVES_SECS: f64 = 0.05;
/// Assumed for a path of which nothing is known, to compare it with others when the expected one is not usable: a round
/// trip of 100 ms and 10 Mbit/s.
const GUESS: Prior = Prior { rate: Rate::from_bps(10_000_000), setup: Duration::from_millis(200) };

/// All paths of one object, by [`PathId`], and the bytes that none of them has delivered yet.
pub(super) struct Paths {
    states: Vec<PathState>,
    missing: Vec<Range<u64>>,
    /// The number of missing bytes.
    left: u64,
}

impl Paths {
    /// `count` paths; the first `sampled` of them get equal shares of what is missing (sorted, merged).
    pub(super) fn new(count: u32, sampled: u32, missing: Vec<Range<u64>>, now: Time) -> Self {
        let mut shares = split(&missing, sampled).into_iter();
        let path = |_| PathState::new(shares.next().unwrap_or_default(), now);
        let left = ranges::total(&missing);
        Self { states: (0..count).map(path).collect(), missing, left }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn get(&self, path: PathId) -> Option<&PathState> {
        self.states.get(path.0 as usize)
    }

    pub(super) fn get_mut(&mut self, path: PathId) -> Option<&mut PathState> {
        self.states.get_mut(path.0 as usize)
    }

    pub(super) fn direct(&self) -> Option<&PathState> {
        self.states.first()
    }

    pub(super) fn iter(&self) -> Iter<'_, PathState> {
        self.states.iter()
    }

    pub(super) fn iter_mut(&mut self) -> IterMut<'_, PathState> {
        self.states.iter_mut()
    }

    pub(super) fn ids(&self) -> Vec<PathId> {
        (0..self.states.len() as u32).map(PathId).collect()
    }

    /// The rate by which the path was last judged, bytes per second; 0 if unknown.
    pub(super) fn speed(&self, path: PathId) -> f64 {
        self.get(path).map_or(0.0, PathState::speed)
    }

    /// Takes `n` further bytes of a path. Returns how many are new, and whether the path's request goes on beyond what
    /// it owes; `None` if there is no such path.
    pub(super) fn receive(
        &mut self,
        path: PathId,
        n: u64,
        forgive: u64,
        now: Time,
    ) -> Option<(u64, bool)> {
        let (taken, beyond) = self.get_mut(path)?.receive(n, forgive, now);
        let new = taken.iter().map(|r| ranges::remove(&mut self.missing, r)).sum();
        self.left -= new;
        Some((new, beyond))
    }

    /// The bytes that belong to no path. O(ranges · paths).
    pub(super) fn unowned(&self) -> Vec<Range<u64>> {
        let mut free = self.missing.clone();
        for r in self.states.iter().flat_map(PathState::holds) {
            ranges::remove(&mut free, r);
        }
        free
    }

    /// Whether no byte that the path owes is missing any more.
    pub(super) fn owes_nothing_new(&self, path: PathId) -> bool {
        ranges::common(&self.missing, self[path].owes()).is_empty()
    }

    /// The path that owes the first missing byte.
    pub(super) fn at_front(&self) -> Option<PathId> {
        let front = self.missing.first()?.start;
        let owes = |p: &PathId| {
            let mut owed = self[*p].owes();
            owed.any(|r| r.contains(&front))
        };
        self.ids().into_iter().find(owes)
    }

    /// Whether it has a link of this host's own that none of the others has.
    pub(super) fn is_apart(&self, path: PathId, from: &[PathId]) -> bool {
        let link = |p: PathId| self[p].own_link;
        let others = from.iter().filter(|p| **p != path);
        link(path).is_some() && others.map(|p| link(*p)).all(|l| l.is_some() && l != link(path))
    }

    /// The best idle path other than `owner`, to help it out.
    pub(super) fn helper(&self, owner: PathId, now: Time) -> Option<PathId> {
        let fit = |p: &PathState| p.is_usable(now) && p.is_idle();
        let helpers = self.ids().into_iter();
        let fit = |p: &PathId| *p != owner && fit(&self[*p]);
        let key = |p: &PathId| (Reverse(self[*p].strikes()), Reverse(*p));
        helpers.filter(fit).max_by(|a, b| {
            let by_rate = self.speed(*a).total_cmp(&self.speed(*b));
            key(a).0.cmp(&key(b).0).then(by_rate).then(key(a).1.cmp(&key(b).1))
        })
    }

    /// The path that should finish first, of those that are not dead: direct, unless a detour's history is clearly
    /// better than direct's. Without a history of direct, direct.
    pub(super) fn expected(&self) -> Option<PathId> {
        let alive = |p: &PathId| !self[*p].is_dead();
        let time = |p: PathId| self.predicted(p);
        let others = self.ids().into_iter().filter(|p| alive(p));
        let fastest = others.min_by(|a, b| time(*a).total_cmp(&time(*b)))?;
        let Some(direct) = self.direct().filter(|p| !p.is_dead()) else {
            return Some(fastest);
        };
        let known = self[fastest].prior.is_some() && direct.prior.is_some();
        let own = time(PathId::DIRECT);
        let better = time(fastest) < CLEARLY * own && time(fastest) + SAVES_SECS < own;
        Some(if known && better { fastest } else { PathId::DIRECT })
    }

    pub(super) fn predicted(&self, path: PathId) -> f64 {
        self[path].prior.unwrap_or(GUESS).predicts(self.left)
    }

    /// What a path moves in two round trips, at least [`PIECE`]: less is not worth a request.
    pub(super) fn least_piece(&self, path: PathId, rate: f64) -> u64 {
        let rtt = self[path].rtt().unwrap_or_default();
        PIECE.max((rate * 2.0 * rtt.as_secs_f64()) as u64)
    }

    /// Takes over the late part of the bytes that will take another path longest: so much that both end together, by
    /// their rates of the last moments (`judged_rate`) or in the running sample. In sampling, it is at least what the
    /// thief moves in two round trips.
    ///
    /// The part is not half: from a path a hundred times slower, half is too little to be worth a request, and the fast
    /// one would end sampling while its rivals still grow.
    ///
    /// A lane waits a round trip for its first byte, in which the other path continues: that much less is taken, and
    /// then anything of at least [`PIECE`].
    pub(super) fn steal(
        &mut self,
        thief: PathId,
        from: &[PathId],
        judged_rate: bool,
        now: Time,
    ) -> Vec<Range<u64>> {
        let rate = |p: PathId| {
            let state = &self[p];
            let lately = || state.recent.rate().unwrap_or(state.speed());
            if judged_rate { lately() } else { state.gauge.judged_rate(now).unwrap_or(0.0) }
                .max(1.0)
        };
        let own = rate(thief);
        let rtt = self[thief].rtt().unwrap_or_default().as_secs_f64();
        let (pause, least) = match judged_rate {
            true => (rtt, PIECE),
            false => (0.0, self.least_piece(thief, own)),
        };
        let held = |p: PathId| ranges::total(self[p].holds());
        let victims = from.iter().copied().filter(|p| *p != thief);
        let lasts = |p: PathId| held(p) as f64 / rate(p);
        let Some(victim) = victims.max_by(|a, b| lasts(*a).total_cmp(&lasts(*b))) else {
            return Vec::new();
        };
        let part = own / (own + rate(victim));
        let n = ((held(victim) as f64 - pause * rate(victim)) * part).max(0.0) as u64;
        if n < least {
            return Vec::new();
        }
        self[victim].surrender(n)
    }
}

impl Index<PathId> for Paths {
    type Output = PathState;
    fn index(&self, path: PathId) -> &PathState {
        &self.states[path.0 as usize]
    }
}

impl IndexMut<PathId> for Paths {
    fn index_mut(&mut self, path: PathId) -> &mut PathState {
        &mut self.states[path.0 as usize]
    }
}

impl<'a> IntoIterator for &'a mut Paths {
    type Item = &'a mut PathState;
    type IntoIter = IterMut<'a, PathState>;
    fn into_iter(self) -> Self::IntoIter {
        self.states.iter_mut()
    }
}

/// Splits `missing` into `count` shares, equal to within one byte, in order; the paper's N/(s+1) each when nothing has
/// arrived yet. So the direct path's share is the first part, which its first request began. O(ranges · count).
pub(super) fn split(missing: &[Range<u64>], count: u32) -> Vec<Vec<Range<u64>>> {
    let mut rest: Vec<_> = missing.iter().filter(|r| r.start < r.end).cloned().collect();
    let all = ranges::total(&rest);
    let quota = |i: u32| (u128::from(all) * u128::from(i) / u128::from(count.max(1))) as u64;
    let mut shares: Vec<_> =
        (0..count).rev().map(|i| ranges::cut_tail(&mut rest, quota(i + 1) - quota(i))).collect();
    shares.reverse();
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_to_a_byte_and_cover_all() {
        let shares = split(&[0..10, 20..27], 3);
        let sizes: Vec<u64> = shares.iter().map(ranges::total).collect();
        assert_eq!(sizes, [5, 6, 6]);
        let mut all: Vec<_> = shares.into_iter().flatten().collect();
        ranges::merge(&mut all);
        assert_eq!(all, [0..10, 20..27]);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn more_shares_than_bytes_leaves_some_empty() {
        let shares = split(&[5..7], 4);
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 2);
        assert_eq!(shares.len(), 4);
    }
}
