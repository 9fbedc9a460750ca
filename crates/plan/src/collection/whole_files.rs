//! Files that are not split: each goes over one path.
//!
//! §IV: "if we do not want to allow any splitting of the data, we could consider formulating the problem as
//! an unsplittable flow problem. Unfortunately, unsplittable flow problems are NP-complete. Good heuristics
//! for these have been developed recently". This is that of Dinitz, Garg and Goemans, *On the single source
//! unsplittable flow problem* (1999), seen from the destination, where it is the sources that are many:
//!
//! - the best splittable flow is rounded; no leg gets as much as a largest file more than it had:
//!   makespan < splittable T* + largest file / slowest leg in use;
//! - then, ours, files leave the legs that end last for the paths on which they end soonest, as long as
//!   the makespan falls.

use super::{PlanError, Problem, prices::whole_flow, rounding::Rounding};

/// A plan of constant rates in which each file has one path.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeFiles {
    /// The makespan in slots: the leg, or host's limit, with most to do for its capacity.
    pub slots: f64,
    /// T* if files could be split: no plan is faster.
    pub splittable: f64,
    /// What the makespan is below for certain, in slots.
    pub bound: f64,
    /// By file: the hosts it is sent to, in turn; empty if it is at its destination.
    pub via: Vec<Vec<u32>>,
}

/// A network's arcs with what they take in a slot, and the files on them.
struct Loads<'a> {
    rounding: &'a Rounding,
    /// Files' units by arc.
    load: Vec<u64>,
    /// By arc, in data units a slot; `None` is no limit.
    per_slot: Vec<Option<u64>>,
}

impl Problem {
    /// A path for each of these files (host, data units); the problem's own supplies do not count.
    ///
    /// O(files · legs) time for each round of the rounding and each file moved. Large numbers of small files
    /// are better split among paths as they are.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no way; [`PlanError::OneDestination`] with several, or sets of
    /// legs that share a capacity.
    pub fn whole_files(&self, files: &[(u32, u64)]) -> Result<WholeFiles, PlanError> {
        let (Some(to), true) = (self.alone(), self.shared.is_empty()) else {
            return Err(PlanError::OneDestination);
        };
        let problem = self.of_files(files, to)?;
        let splittable = problem.fluid()?.slots;
        if splittable <= 0.0 {
            let via = vec![Vec::new(); files.len()];
            return Ok(WholeFiles { slots: 0.0, splittable, bound: 0.0, via });
        }
        let flow = whole_flow(&problem, splittable)?;
        let sizes: Vec<(u32, u64)> =
            files.iter().map(|(host, units)| (*host, units * flow.fine)).collect();
        let rounding = Rounding::run(3 * self.hosts, to, &flow.arcs, flow.on, &sizes);
        let limits = self.limits.iter().flat_map(|at| [at.ingress, at.egress]);
        let per_slot = self.legs.iter().map(|leg| Some(leg.per_slot)).chain(limits).collect();
        let mut ways = rounding.ways.clone();
        let mut loads = Loads::new(&rounding, per_slot, files, &ways);
        let slowest = loads.slowest();
        loads.improve(files, to, &mut ways);
        let largest = files.iter().map(|file| file.1).max().unwrap_or(0) as f64;
        let hosts = |way: &Vec<usize>| {
            let legs = way.iter().filter_map(|arc| self.legs.get(*arc));
            legs.map(|leg| leg.to).collect()
        };
        Ok(WholeFiles {
            slots: loads.slots(),
            splittable,
            bound: splittable + largest / slowest.max(1) as f64,
            via: ways.iter().map(hosts).collect(),
        })
    }

    /// The destination, if there is one only.
    fn alone(&self) -> Option<u32> {
        self.demands.first().filter(|_| self.demands.len() == 1).map(|demand| demand.0)
    }

    fn of_files(&self, files: &[(u32, u64)], to: u32) -> Result<Self, PlanError> {
        let mut amounts = vec![0_u64; self.hosts as usize];
        for (host, units) in files {
            let amount = amounts.get_mut(*host as usize).ok_or(PlanError::NoPath(*host))?;
            *amount = amount.saturating_add(*units);
        }
        let problem = Self::collect(&amounts, to, &self.legs).map_err(|_| PlanError::TooFine)?;
        Ok(Self { limits: self.limits.clone(), ..problem })
    }
}

impl<'a> Loads<'a> {
    fn new(
        rounding: &'a Rounding,
        per_slot: Vec<Option<u64>>,
        files: &[(u32, u64)],
        ways: &[Vec<usize>],
    ) -> Self {
        let mut loads = Self { rounding, load: vec![0; per_slot.len()], per_slot };
        for (way, file) in ways.iter().zip(files) {
            way.iter().for_each(|arc| loads.load[*arc] += file.1);
        }
        loads
    }

    /// How long an arc takes with so much more, in slots.
    fn takes(&self, arc: usize, more: u64) -> f64 {
        self.per_slot[arc].map_or(0.0, |per_slot| {
            let units = (self.load[arc] + more) as f64;
            if units > 0.0 { units / per_slot as f64 } else { 0.0 }
        })
    }

    fn slots(&self) -> f64 {
        (0..self.load.len()).map(|arc| self.takes(arc, 0)).fold(0.0, f64::max)
    }

    /// The least capacity of arcs that are used.
    fn slowest(&self) -> u64 {
        let used = self.load.iter().zip(&self.per_slot).filter(|(load, _)| **load > 0);
        used.filter_map(|(_, per_slot)| *per_slot).min().unwrap_or(1)
    }

    /// Takes files from the arc that ends last, as long as that helps.
    fn improve(&mut self, files: &[(u32, u64)], to: u32, ways: &mut [Vec<usize>]) {
        // Each step is an improvement; the bound keeps large problems quick.
        for _ in 0..files.len() {
            let last = |a: &usize, b: &usize| self.takes(*a, 0).total_cmp(&self.takes(*b, 0));
            let Some(worst) = (0..self.load.len()).max_by(last) else { return };
            let mut on: Vec<usize> =
                (0..ways.len()).filter(|file| ways[*file].contains(&worst)).collect();
            on.sort_by_key(|file| files[*file].1);
            if !on.into_iter().any(|file| self.moves(files[file], to, &mut ways[file])) {
                return;
            }
        }
    }

    /// Moves a file to where it ends soonest, if the makespan falls.
    fn moves(&mut self, (host, units): (u32, u64), to: u32, way: &mut Vec<usize>) -> bool {
        let before = self.slots();
        way.iter().for_each(|arc| self.load[*arc] -= units);
        let found = self.rounding.soonest(host, to, |arc| self.takes(arc, units));
        let better = found.filter(|found| {
            let own = found.iter().map(|arc| self.takes(*arc, units)).fold(0.0, f64::max);
            own.max(self.slots()) < before * (1.0 - 1e-9)
        });
        let moved = better.is_some();
        if let Some(found) = better {
            *way = found;
        }
        way.iter().for_each(|arc| self.load[*arc] += units);
        moved
    }
}
