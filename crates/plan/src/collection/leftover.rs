//! Places whole units that a plan leaves over: each goes where it arrives first in the room that remains.

use super::{PlanError, Problem, TimedPath};
use std::collections::BTreeMap;

/// The number of slots in which leftover units may be placed.
const MOST_SLOTS: u32 = 1 << 16;

/// The capacity that a plan leaves free, slot by slot.
pub struct Leftover<'a> {
    problem: &'a Problem,
    /// Sets of legs and what each set carries per slot: the problem's sets, and the hosts' limits.
    sets: Vec<(Vec<usize>, u64)>,
    /// The sets of each leg.
    inside: Vec<Vec<usize>>,
    /// Used units by (slot, leg).
    legs: BTreeMap<(u32, usize), u64>,
    /// Used units by (slot, set).
    together: BTreeMap<(u32, usize), u64>,
}

impl<'a> Leftover<'a> {
    /// Creates the record of the room that these paths leave.
    pub fn new(problem: &'a Problem, paths: &[TimedPath]) -> Self {
        let mut sets: Vec<(Vec<usize>, u64)> =
            problem.shared.iter().map(|set| (set.legs.clone(), set.per_slot)).collect();
        for (host, limits) in (0..problem.hosts).zip(&problem.limits) {
            let legs = |at: fn(&super::Leg) -> u32| -> Vec<usize> {
                (0..problem.legs.len()).filter(|leg| at(&problem.legs[*leg]) == host).collect()
            };
            let storage = limits.storage.filter(|_| !problem.is_destination(host));
            let into = limits.ingress.into_iter().chain(storage).min();
            sets.extend(into.map(|most| (legs(|leg| leg.to), most)));
            sets.extend(limits.egress.map(|most| (legs(|leg| leg.from), most)));
        }
        let of = |leg| (0..sets.len()).filter(|set| sets[*set].0.contains(&leg)).collect();
        let inside = (0..problem.legs.len()).map(of).collect();
        let mut left =
            Self { problem, sets, inside, legs: BTreeMap::new(), together: BTreeMap::new() };
        paths.iter().for_each(|path| left.take(path));
        left
    }

    /// Paths for the units left of each supply; `left` has an entry for each supply and destination, supplies first.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooLong`] if there is no room within the maximum number of slots.
    pub fn paths(&mut self, left: &[u64]) -> Result<Vec<TimedPath>, PlanError> {
        let mut paths = Vec::new();
        let problem = self.problem;
        let ends = || problem.demands.iter().map(|demand| demand.0);
        let each = problem.supplies.iter().flat_map(|from| ends().map(move |to| (from, to)));
        for ((supply, to), units) in each.zip(left) {
            let mut units = *units;
            while units > 0 {
                let path = self.first(supply.host, supply.ready, to, units);
                let path = path.ok_or(PlanError::TooLong { most: MOST_SLOTS })?;
                units -= path.units;
                self.take(&path);
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn room(&self, slot: u32, leg: usize) -> u64 {
        let used = |of: &BTreeMap<(u32, usize), u64>, at| of.get(&(slot, at)).copied().unwrap_or(0);
        let own = self.problem.legs[leg].per_slot.saturating_sub(used(&self.legs, leg));
        let sets = self.inside[leg].iter();
        let sets = sets.map(|set| self.sets[*set].1.saturating_sub(used(&self.together, *set)));
        sets.fold(own, u64::min)
    }

    fn take(&mut self, path: &TimedPath) {
        for (slot, from, to) in path.transfers() {
            let mut units = path.units;
            let legs = 0..self.problem.legs.len();
            let ends = |leg: &usize| {
                let leg = &self.problem.legs[*leg];
                (leg.from, leg.to) == (from, to)
            };
            let same: Vec<usize> = legs.filter(ends).collect();
            for leg in same {
                // Parallel legs are one leg to a path.
                let taken = units.min(self.room(slot, leg));
                units -= taken;
                *self.legs.entry((slot, leg)).or_default() += taken;
                for set in &self.inside[leg] {
                    *self.together.entry((slot, *set)).or_default() += taken;
                }
            }
        }
    }

    /// The path that arrives first; among equals the one that begins first.
    fn first(&self, from: u32, ready: u32, to: u32, units: u64) -> Option<TimedPath> {
        let mut best: Option<TimedPath> = None;
        for start in ready..MOST_SLOTS {
            if best.as_ref().is_some_and(|best| best.end() <= start + 1) {
                break;
            }
            if let Some(path) = self.beginning(from, start, to, units)
                && best.as_ref().is_none_or(|best| path.end() < best.end())
            {
                best = Some(path);
            }
        }
        best
    }

    /// The path with the fewest legs that begins in this slot, one leg per slot.
    fn beginning(&self, from: u32, start: u32, to: u32, units: u64) -> Option<TimedPath> {
        let mut before: Vec<Option<usize>> = vec![None; self.problem.hosts as usize];
        let mut layer = vec![from];
        for slot in start..start + self.problem.hosts {
            let mut next = Vec::new();
            for (at, leg) in self.problem.legs.iter().enumerate() {
                let new = leg.to != from && before[leg.to as usize].is_none();
                if new && layer.contains(&leg.from) && self.room(slot, at) > 0 {
                    before[leg.to as usize] = Some(at);
                    next.push(leg.to);
                }
            }
            if before[to as usize].is_some() {
                return Some(self.back(from, start, to, units, &before));
            }
            layer = next;
        }
        None
    }

    fn back(
        &self,
        from: u32,
        start: u32,
        to: u32,
        units: u64,
        before: &[Option<usize>],
    ) -> TimedPath {
        let (mut legs, mut at) = (Vec::new(), to);
        while let Some(leg) = before[at as usize].filter(|_| at != from) {
            legs.push(leg);
            at = self.problem.legs[leg].from;
        }
        legs.reverse();
        let rooms = (start..).zip(&legs).map(|(slot, leg)| self.room(slot, *leg));
        let units = rooms.fold(units, u64::min);
        let via = legs.iter().map(|leg| self.problem.legs[*leg].to).collect();
        TimedPath { source: from, start, via, units }
    }
}
