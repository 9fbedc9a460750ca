//! The first ways: those of the fluid plan on the estimates.

use super::{Steering, Way, candidates::candidates, replan::MOST_LEGS};
use crate::collection::{Leg, Limits, Problem, RatedPath};

impl Steering {
    /// The planned ways of each source, the widest first; where none is short enough, the direct one.
    pub(super) fn start(&mut self) {
        let mut paths = self.plan();
        paths.sort_by(|a, b| b.per_slot.total_cmp(&a.per_slot));
        for source in 0..self.remaining.len() as u32 {
            let own = paths.iter().filter(|path| path.source == source);
            let ways = own.filter_map(|path| self.way(path));
            let ways: Vec<Way> = ways.take(self.settings.ways.max(1)).collect();
            ways.into_iter().for_each(|way| self.add(way, false));
            if self.is_waiting(source) && self.of(source).next().is_none() {
                self.add(Way { source, via: Vec::new() }, false);
            }
        }
    }

    pub(super) fn way(&self, path: &RatedPath) -> Option<Way> {
        let (_, via) = path.via.split_last()?;
        let is_short = via.len() <= self.settings.intermediates;
        is_short.then(|| Way { source: path.source, via: via.to_vec() })
    }

    /// The fluid plan of what remains on what is known: units are bytes, slots seconds. Empty if
    /// there is none.
    pub(super) fn plan(&self) -> Vec<RatedPath> {
        let leg = |((from, to), rate): ((u32, u32), f64)| Leg { from, to, per_slot: rate as u64 };
        let goes_on = |to: u32| to == self.destination || self.relays.contains(&to);
        let known = self.legs.all().filter(|((from, to), _)| {
            goes_on(*to) && (*to == self.destination || self.relays.contains(from))
        });
        let mut legs: Vec<Leg> = known.map(leg).collect();
        // Who is not measured can be asked directly all the same.
        let unknown = (0..self.remaining.len() as u32)
            .map(|source| (source, self.destination))
            .filter(|direct| self.is_waiting(direct.0) && self.legs.known(*direct).is_none());
        legs.extend(unknown.map(|direct| leg((direct, self.legs.rate(direct)))));
        let Ok(mut problem) = Problem::collect(&self.remaining, self.destination, &legs) else {
            return Vec::new();
        };
        for host in 0..self.remaining.len() as u32 {
            let (into, out) = self.legs.host_limits(host);
            let limit = |rate: f64| rate.is_finite().then_some(rate as u64);
            let limits = Limits { ingress: limit(into), egress: limit(out), storage: None };
            problem = problem.with_limits(host, limits);
        }
        if legs.len() <= MOST_LEGS {
            for set in self.legs.learnt() {
                let inside: Vec<(u32, u32)> = set.legs.iter().copied().collect();
                problem = problem.with_shared(&inside, set.limit as u64);
            }
        }
        problem.fluid().map(|fluid| fluid.paths).unwrap_or_default()
    }

    /// All ways of a source that may be opened.
    pub(super) fn candidates(&self, source: u32) -> Vec<Way> {
        candidates(source, &self.relays, self.settings.intermediates)
    }
}
