//! Plans for files that are not split: each goes over one path.
//!
//! §IV: "if we do not want to allow any splitting of the data, we could consider formulating the problem as an
//! unsplittable flow problem. Unfortunately, unsplittable flow problems are NP-complete. Good heuristics for these have
//! been developed recently". This is the algorithm of Dinitz, Garg and Goemans, *On the single source unsplittable flow
//! problem* (1999), applied from the destination, because here the sources are many:
//!
//! - the best splittable flow is rounded; each leg gets less than the largest file more than its flow: makespan <
//!   splittable T* + largest file / slowest leg in use;
//! - then, ours, files move from the legs that end last to the paths on which they end soonest, as long as the makespan
//!   falls.

use super::{PlanError, Problem, prices::whole_flow, rounding::Rounding};

/// A plan of constant rates in which each file has one path.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeFiles {
    /// The makespan in slots, which the leg or host limit with the most to carry for its capacity sets.
    pub slots: f64,
    /// T* if files could be split; no plan is faster.
    pub splittable: f64,
    /// A proven upper bound on the makespan, in slots.
    pub bound: f64,
    /// By file: the hosts to which it is sent, in order; empty if it is at its destination.
    pub via: Vec<Vec<u32>>,
}

/// A network's arcs with their capacities and the files on them.
struct Loads<'a> {
    rounding: &'a Rounding,
    /// Files' units by arc.
    load: Vec<u64>,
    /// Capacity by arc, in data units a slot; `None` is no limit.
    per_slot: Vec<Option<u64>>,
}

/// See [`Problem::whole_files`].
pub(super) fn whole_files(
    problem: &Problem,
    files: &[(u32, u64)],
) -> Result<WholeFiles, PlanError> {
    let (Some(to), true) = (alone(problem), problem.shared.is_empty()) else {
        return Err(PlanError::OneDestination);
    };
    let problem = of_files(problem, files, to)?;
    let splittable = problem.fluid()?.slots;
    if splittable <= 0.0 {
        let via = vec![Vec::new(); files.len()];
        return Ok(WholeFiles { slots: 0.0, splittable, bound: 0.0, via });
    }
    let flow = whole_flow(&problem, splittable)?;
    let sizes: Vec<(u32, u64)> =
        files.iter().map(|(host, units)| (*host, units * flow.fine)).collect();
    let rounding = Rounding::run(3 * problem.hosts, to, &flow.arcs, flow.on, &sizes);
    let limits = problem.limits.iter().flat_map(|at| [at.ingress, at.egress]);
    let per_slot = problem.legs.iter().map(|leg| Some(leg.per_slot)).chain(limits).collect();
    let mut ways = rounding.ways.clone();
    let mut loads = Loads::new(&rounding, per_slot, files, &ways);
    let slowest = loads.slowest();
    loads.improve(files, to, &mut ways);
    let largest = files.iter().map(|file| file.1).max().unwrap_or(0) as f64;
    let hosts = |way: &Vec<usize>| {
        let legs = way.iter().filter_map(|arc| problem.legs.get(*arc));
        legs.map(|leg| leg.to).collect()
    };
    Ok(WholeFiles {
        slots: loads.slots(),
        splittable,
        bound: splittable + largest / slowest.max(1) as f64,
        via: ways.iter().map(hosts).collect(),
    })
}

/// The destination, if there is only one.
fn alone(problem: &Problem) -> Option<u32> {
    problem.demands.first().filter(|_| problem.demands.len() == 1).map(|demand| demand.0)
}

fn of_files(problem: &Problem, files: &[(u32, u64)], to: u32) -> Result<Problem, PlanError> {
    let mut amounts = vec![0_u64; problem.hosts as usize];
    for (host, units) in files {
        let amount = amounts.get_mut(*host as usize).ok_or(PlanError::NoPath(*host))?;
        *amount = amount.saturating_add(*units);
    }
    let problem = Problem::collect(&amounts, to, &problem.legs).map_err(|_| PlanError::TooFine)?;
    Ok(Problem { limits: problem.limits.clone(), ..problem })
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

    /// The time that an arc takes with `more` additional units, in slots.
    fn takes(&self, arc: usize, more: u64) -> f64 {
        self.per_slot[arc].map_or(0.0, |per_slot| {
            let units = (self.load[arc] + more) as f64;
            if units > 0.0 { units / per_slot as f64 } else { 0.0 }
        })
    }

    fn slots(&self) -> f64 {
        (0..self.load.len()).map(|arc| self.takes(arc, 0)).fold(0.0, f64::max)
    }

    /// The smallest capacity of the arcs in use.
    fn slowest(&self) -> u64 {
        let used = self.load.iter().zip(&self.per_slot).filter(|(load, _)| **load > 0);
        used.filter_map(|(_, per_slot)| *per_slot).min().unwrap_or(1)
    }

    /// Moves files away from the arc that ends last, as long as that helps.
    fn improve(&mut self, files: &[(u32, u64)], to: u32, ways: &mut [Vec<usize>]) {
        // Each step is an improvement; the bound keeps large problems quick.
        for _ in 0..files.len() {
            let last = |a: &usize, b: &usize| self.takes(*a, 0).total_cmp(&self.takes(*b, 0));
            let Some(worst) = (0..self.load.len()).max_by(last) else { return };
            let mut on: Vec<usize> =
                (0..ways.len()).filter(|file| ways[*file].contains(&worst)).collect();
            on.sort_by_key(|file| files[*file].1);
            if !on.into_iter().any(|file| self.try_move(files[file], to, &mut ways[file])) {
                return;
            }
        }
    }

    /// Moves a file to the path on which it ends soonest, if the makespan falls. Returns whether it did.
    fn try_move(&mut self, (host, units): (u32, u64), to: u32, way: &mut Vec<usize>) -> bool {
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
