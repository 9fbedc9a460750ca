//! The non-coordinated method: each host uses its own best path (§III, "Remark").

use super::{PlanError, Problem};

/// One host's data and the path that all of it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestPath {
    /// The host that has the data.
    pub source: u32,
    /// The hosts to which the data is sent, in order; the last is the destination.
    pub via: Vec<u32>,
    /// The slowest leg's data units a slot.
    pub per_slot: u64,
}

/// See [`Problem::best_paths`].
pub(super) fn best_paths(problem: &Problem) -> Result<Vec<BestPath>, PlanError> {
    let widest = WidestPaths::to(problem);
    let path =
        |supply: &super::Supply| widest.path(supply.host).ok_or(PlanError::NoPath(supply.host));
    problem.supplies.iter().map(path).collect()
}

/// Each host's best rate to a destination, and the next host on that path.
struct WidestPaths {
    best: Vec<Option<PathStep>>,
}

#[derive(Clone, Copy)]
struct PathStep {
    per_slot: u64,
    hops: u32,
    next: u32,
}

impl WidestPaths {
    /// Works in rounds over all legs (Bellman–Ford): a path has at most one leg per host.
    fn to(problem: &Problem) -> Self {
        let end = |host| {
            let here = PathStep { per_slot: u64::MAX, hops: 0, next: host };
            problem.is_destination(host).then_some(here)
        };
        let mut widest = Self { best: (0..problem.hosts).map(end).collect() };
        for _ in 0..problem.hosts {
            if !widest.improve(problem) {
                break;
            }
        }
        widest
    }

    fn improve(&mut self, problem: &Problem) -> bool {
        let mut improved = false;
        for leg in &problem.legs {
            let Some(on) = self.best[leg.to as usize] else { continue };
            let per_slot = on.per_slot.min(leg.per_slot);
            let by = PathStep { per_slot, hops: on.hops + 1, next: leg.to };
            let rank = |step: &PathStep| (step.per_slot, std::cmp::Reverse(step.hops));
            let better = self.best[leg.from as usize].is_none_or(|now| rank(&by) > rank(&now));
            if better {
                self.best[leg.from as usize] = Some(by);
                improved = true;
            }
        }
        improved
    }

    fn path(&self, source: u32) -> Option<BestPath> {
        let first = self.best[source as usize]?;
        let (mut via, mut at) = (Vec::new(), first);
        while at.hops > 0 {
            via.push(at.next);
            at = self.best[at.next as usize]?;
        }
        Some(BestPath { source, via, per_slot: first.per_slot })
    }
}
