//! The timetable where sets of legs share capacities: for small graphs.
//!
//! §III: "one could use Linear Programming to obtain an optimal flow under those constraints". Over the
//! time-expanded graph its optimum is not in whole units. So, ours:
//!
//! 1. the linear program says what each leg of a set carries in each slot;
//! 2. each set's slot is shared out in whole units so that every leg keeps up with its sum so far;
//! 3. with these as capacities the ordinary cheapest flow is found, in whole units, of as much as goes;
//! 4. what is left over goes one by one where it arrives first (`leftover.rs`).
//!
//! What comes out keeps all capacities; T may be a few slots above the linear program's.

use super::{
    Objective, PlanError, Problem, TimedPath, Timetable, decompose::decompose, expanded::Expanded,
    horizon, leftover::Leftover,
};
use crate::mincost::{Arc, Network};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, solvers::microlp::microlp,
    variable,
};

/// Unknowns beyond which the solver takes minutes.
const MOST_VARIABLES: usize = 5_000;

/// A slot's capacities in whole units, by slot and leg; legs of no set have their own.
type Allotted = Vec<Vec<u64>>;

impl Problem {
    /// [`timetable`](Self::timetable) with capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::Shut`] or [`PlanError::NoPath`] if there is no way, [`PlanError::TooLarge`] beyond
    /// 5,000 legs times slots, [`PlanError::Unsolved`] if the solver gives up.
    pub(super) fn timetable_shared(&self) -> Result<Timetable, PlanError> {
        // No schedule ends before the constant rates do.
        let bound = self.fluid_shared()?.slots;
        let first = horizon::smallest(self)?.max((bound * (1.0 - 1e-9)).ceil() as u32);
        // Staging takes a slot for each host at most, if rates fit.
        let last = 2 * first + self.hosts;
        for slots in first..=last {
            if let Some(plan) = self.shared_within(slots, Objective::Paper)? {
                return Ok(plan);
            }
        }
        Err(PlanError::Unsolved(format!("no answer with {first} to {last} slots")))
    }

    /// A plan by the program within `slots`, whose whole units may need more; `None` if it has no answer.
    pub(super) fn shared_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Option<Timetable>, PlanError> {
        let variables = self.legs.len() * slots as usize;
        if variables > MOST_VARIABLES {
            return Err(PlanError::TooLarge { variables, most: MOST_VARIABLES });
        }
        let mut expanded = Expanded::new(self, slots, objective)?;
        let Some(carried) = self.carried(&expanded.network, slots) else { return Ok(None) };
        let allotted = self.allot(&carried);
        let arcs = expanded.network.arcs().len();
        expanded.network = self.narrowed(&expanded, &allotted)?;
        let flow = expanded.network.cheapest();
        let mut flow = flow.map_err(|why| PlanError::TooShort { slots, stranded: why.stranded })?;
        let stays = flow.on.split_off(arcs);
        let paths = decompose(self, &expanded, &flow);
        let mut leftover = Leftover::new(self, &paths);
        let paths = paths.into_iter().chain(leftover.paths(&stays)?).collect::<Vec<_>>();
        let slots = paths.iter().map(TimedPath::end).max().unwrap_or(0).max(slots);
        Ok(Some(Timetable { slots, paths }))
    }

    /// What each leg carries in each slot by the linear program; `None` if it has no answer.
    fn carried(&self, network: &Network, slots: u32) -> Option<Vec<Vec<f64>>> {
        let mut variables = ProblemVariables::new();
        let units = self.units().max(1) as f64;
        let dearest = network.arcs().iter().map(|arc| arc.cost.abs()).max()?.max(1) as f64;
        let on: Vec<Variable> = network
            .arcs()
            .iter()
            .map(|arc| variables.add(variable().min(0.0).max(arc.capacity as f64 / units)))
            .collect();
        let mut cost = Expression::from(0.0);
        let mut nodes = vec![Expression::from(0.0); network.supply().len()];
        for (arc, x) in network.arcs().iter().zip(&on) {
            cost.add_mul(arc.cost as f64 / dearest, *x);
            nodes[arc.from as usize].add_mul(1.0, *x);
            nodes[arc.to as usize].add_mul(-1.0, *x);
        }
        let mut model = variables.minimise(cost).using(microlp);
        for (node, supply) in nodes.into_iter().zip(network.supply()) {
            model.add_constraint(node.eq(*supply as f64 / units));
        }
        let legs = self.legs.len();
        for slot in 0..slots as usize {
            for set in &self.shared {
                let mut sum = Expression::from(0.0);
                set.legs.iter().for_each(|leg| sum.add_mul(1.0, on[slot * legs + leg]));
                model.add_constraint(sum.leq(set.per_slot as f64 / units));
            }
        }
        let answer = model.solve().ok()?;
        let value = |x: &Variable| answer.value(*x).max(0.0) * units;
        let slot = |slot: usize| on[slot * legs..(slot + 1) * legs].iter().map(value).collect();
        Some((0..slots as usize).map(slot).collect())
    }

    /// Whole units for the legs of sets: in each slot first what a leg is behind by most.
    fn allot(&self, carried: &[Vec<f64>]) -> Allotted {
        let inside: Vec<Vec<usize>> = (0..self.legs.len())
            .map(|leg| {
                (0..self.shared.len()).filter(|s| self.shared[*s].legs.contains(&leg)).collect()
            })
            .collect();
        let mut behind = vec![0.0; self.legs.len()];
        carried.iter().map(|slot| self.allot_slot(slot, &inside, &mut behind)).collect()
    }

    fn allot_slot(&self, carried: &[f64], inside: &[Vec<usize>], behind: &mut [f64]) -> Vec<u64> {
        let mut room: Vec<u64> = self.shared.iter().map(|set| set.per_slot).collect();
        let mut allotted: Vec<u64> = self.legs.iter().map(|leg| leg.per_slot).collect();
        let bound = || (0..self.legs.len()).filter(|leg| !inside[*leg].is_empty());
        let mut give = |leg: usize, wanted: u64, allotted: &mut [u64]| {
            let free = inside[leg].iter().map(|set| room[*set]).min().unwrap_or(0);
            let given = wanted.min(free).min(self.legs[leg].per_slot - allotted[leg]);
            inside[leg].iter().for_each(|set| room[*set] -= given);
            allotted[leg] += given;
            given
        };
        bound().for_each(|leg| {
            allotted[leg] = 0;
            behind[leg] += carried[leg];
            // The whole units first, of what this slot carries.
            let whole = carried[leg].floor() as u64;
            behind[leg] -= give(leg, whole, &mut allotted) as f64;
        });
        let mut order: Vec<usize> = bound().collect();
        order.sort_by(|a, b| behind[*b].total_cmp(&behind[*a]));
        for leg in order {
            let wanted = behind[leg].max(0.0).ceil() as u64;
            behind[leg] -= give(leg, wanted, &mut allotted) as f64;
        }
        allotted
    }

    /// The network with the allotted capacities; its first arcs are the legs, slot by slot. Last an arc
    /// for each supply and destination, for what finds no way: dearer than any.
    fn narrowed(&self, expanded: &Expanded, allotted: &Allotted) -> Result<Network, PlanError> {
        let network = &expanded.network;
        let mut arcs: Vec<Arc> = network.arcs().to_vec();
        let capacities = allotted.iter().flatten();
        arcs.iter_mut()
            .zip(capacities)
            .for_each(|(arc, most)| arc.capacity = arc.capacity.min(*most));
        let dear = arcs.iter().map(|arc| arc.cost.abs()).max().unwrap_or(0) + 1;
        let dear = dear.saturating_mul(i64::from(expanded.slots) + 2);
        let (homes, ends) = (expanded.homes(self), expanded.ends(self));
        for (home, supply) in homes.iter().zip(&self.supplies) {
            let arc = |end: &u32| Arc { from: *home, to: *end, capacity: supply.units, cost: dear };
            arcs.extend(ends.iter().map(arc));
        }
        Ok(Network::new(network.supply().to_vec(), arcs)?)
    }
}
