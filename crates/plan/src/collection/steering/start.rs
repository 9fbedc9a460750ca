//! The first ways: those of the fluid plan on the estimates.

use super::{Steering, Way, candidates::candidates};
use crate::collection::{Leg, Limits, Problem, RatedPath};

impl Steering {
    pub(super) fn start(&mut self) {
        for source in 0..self.remaining.len() as u32 {
            if self.is_waiting(source) {
                self.start_of(source);
            }
        }
    }

    /// The planned ways, the widest first; the direct one in any case, as it needs nobody.
    fn start_of(&mut self, source: u32) {
        let direct = Way { source, via: Vec::new() };
        let planned = self.planned(source);
        let known = !planned.is_empty();
        if !known {
            self.add(direct.clone(), false);
        }
        for way in planned.into_iter().take(self.settings.ways.max(1)) {
            self.add(way, false);
        }
        if self.of(source).count() == 0 {
            self.add(direct, false);
        }
    }

    /// The fluid plan's ways of a source, by their rates.
    fn planned(&self, source: u32) -> Vec<Way> {
        let mut paths: Vec<RatedPath> =
            self.plan().into_iter().filter(|path| path.source == source).collect();
        paths.sort_by(|a, b| b.per_slot.total_cmp(&a.per_slot));
        let way = |path: RatedPath| {
            let mut via = path.via;
            via.pop();
            Way { source, via }
        };
        let short = |way: &Way| way.via.len() <= self.settings.intermediates;
        paths.into_iter().map(way).filter(short).collect()
    }

    /// The fluid plan of what remains on what is known: units are bytes, slots seconds. Empty if
    /// there is none: estimates are missing.
    fn plan(&self) -> Vec<RatedPath> {
        let leg = |((from, to), rate): ((u32, u32), f64)| Leg { from, to, per_slot: rate as u64 };
        let legs: Vec<Leg> = self.legs.all().map(leg).collect();
        let Ok(mut problem) = Problem::collect(&self.remaining, self.destination, &legs) else {
            return Vec::new();
        };
        for host in 0..self.remaining.len() as u32 {
            let (into, out) = self.legs.host_limits(host);
            let limit = |rate: f64| rate.is_finite().then_some(rate as u64);
            let limits = Limits { ingress: limit(into), egress: limit(out), storage: None };
            problem = problem.with_limits(host, limits);
        }
        problem.fluid().map(|fluid| fluid.paths).unwrap_or_default()
    }

    /// All ways of a source that may be opened.
    pub(super) fn candidates(&self, source: u32) -> Vec<Way> {
        let nodes = self.remaining.len() as u32;
        candidates(source, self.destination, nodes, self.settings.intermediates)
    }
}
