//! The timetable for small graphs in which sets of legs share capacities.
//!
//! §III: "one could use Linear Programming to obtain an optimal flow under those constraints". Over the time-expanded
//! graph, its optimum is not in whole units. Our method:
//!
//! 1. the linear program says what each leg of a set carries in each slot;
//! 2. each set's capacity in a slot is shared out in whole units, so that every leg keeps up with its sum so far;
//! 3. with these capacities, the ordinary cheapest flow is found, in whole units, for as much data as fits;
//! 4. each unit left over goes where it arrives first (`leftover.rs`).
//!
//! The result keeps all capacities; T may be a few slots above the linear program's.

use super::{
    Objective, PlanError, Problem, TimedPath, Timetable, decompose::decompose, horizon,
    leftover::Leftover, time_expanded::TimeExpandedNetwork,
};
use crate::mincost::{Arc, Network};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, solvers::microlp::microlp,
    variable,
};

/// The maximum number of variables; with more, the solver takes minutes.
const MOST_VARIABLES: usize = 5_000;

/// Capacities in whole units, by slot and leg; legs outside all sets keep their own.
type Allotted = Vec<Vec<u64>>;

/// See [`Problem::timetable_shared`].
pub(super) fn timetable_shared(problem: &Problem) -> Result<Timetable, PlanError> {
    // No schedule ends before the plan of constant rates.
    let bound = problem.fluid_shared()?.slots;
    let first = horizon::smallest(problem)?.max((bound * (1.0 - 1e-9)).ceil() as u32);
    // Staging takes at most one slot for each host, if rates fit.
    let last = 2 * first + problem.hosts;
    for slots in first..=last {
        if let Some(plan) = shared_within(problem, slots, Objective::Paper)? {
            return Ok(plan);
        }
    }
    Err(PlanError::Unsolved(format!("no solution with {first} to {last} slots")))
}

/// See [`Problem::shared_within`].
pub(super) fn shared_within(
    problem: &Problem,
    slots: u32,
    objective: Objective,
) -> Result<Option<Timetable>, PlanError> {
    let variables = problem.legs.len() * slots as usize;
    if variables > MOST_VARIABLES {
        return Err(PlanError::TooLarge { variables, most: MOST_VARIABLES });
    }
    let mut expanded = TimeExpandedNetwork::new(problem, slots, objective)?;
    let Some(carried) = carried(problem, &expanded.network, slots) else { return Ok(None) };
    let allotted = allot(problem, &carried);
    let arcs = expanded.network.arcs().len();
    expanded.network = narrowed(problem, &expanded, &allotted)?;
    let flow = expanded.network.cheapest();
    let mut flow = flow.map_err(|why| PlanError::TooShort { slots, stranded: why.stranded })?;
    let stays = flow.on.split_off(arcs);
    let paths = decompose(problem, &expanded, &flow);
    let mut leftover = Leftover::new(problem, &paths);
    let paths = paths.into_iter().chain(leftover.paths(&stays)?).collect::<Vec<_>>();
    let slots = paths.iter().map(TimedPath::end).max().unwrap_or(0).max(slots);
    Ok(Some(Timetable { slots, paths }))
}

/// What each leg carries in each slot by the linear program; `None` if it has no solution.
fn carried(problem: &Problem, network: &Network, slots: u32) -> Option<Vec<Vec<f64>>> {
    let mut variables = ProblemVariables::new();
    let units = problem.units().max(1) as f64;
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
    let legs = problem.legs.len();
    for slot in 0..slots as usize {
        for set in &problem.shared {
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

/// Allots whole units to the legs of sets; in each slot, the legs that are furthest behind come first.
fn allot(problem: &Problem, carried: &[Vec<f64>]) -> Allotted {
    let inside: Vec<Vec<usize>> = (0..problem.legs.len())
        .map(|leg| {
            (0..problem.shared.len()).filter(|s| problem.shared[*s].legs.contains(&leg)).collect()
        })
        .collect();
    let mut behind = vec![0.0; problem.legs.len()];
    carried.iter().map(|slot| allot_slot(problem, slot, &inside, &mut behind)).collect()
}

fn allot_slot(
    problem: &Problem,
    carried: &[f64],
    inside: &[Vec<usize>],
    behind: &mut [f64],
) -> Vec<u64> {
    let mut room: Vec<u64> = problem.shared.iter().map(|set| set.per_slot).collect();
    let mut allotted: Vec<u64> = problem.legs.iter().map(|leg| leg.per_slot).collect();
    let bound = || (0..problem.legs.len()).filter(|leg| !inside[*leg].is_empty());
    let mut give = |leg: usize, wanted: u64, allotted: &mut [u64]| {
        let free = inside[leg].iter().map(|set| room[*set]).min().unwrap_or(0);
        let given = wanted.min(free).min(problem.legs[leg].per_slot - allotted[leg]);
        inside[leg].iter().for_each(|set| room[*set] -= given);
        allotted[leg] += given;
        given
    };
    bound().for_each(|leg| {
        allotted[leg] = 0;
        behind[leg] += carried[leg];
        // First the whole units of what this slot carries.
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

/// The network with the allotted capacities. Its first arcs are the legs, slot by slot. Its last arcs, one for each
/// supply and destination, take units for which there is no room; they cost more than any path.
fn narrowed(
    problem: &Problem,
    expanded: &TimeExpandedNetwork,
    allotted: &Allotted,
) -> Result<Network, PlanError> {
    let network = &expanded.network;
    let mut arcs: Vec<Arc> = network.arcs().to_vec();
    let capacities = allotted.iter().flatten();
    arcs.iter_mut().zip(capacities).for_each(|(arc, most)| arc.capacity = arc.capacity.min(*most));
    let dear = arcs.iter().map(|arc| arc.cost.abs()).max().unwrap_or(0) + 1;
    let dear = dear.saturating_mul(i64::from(expanded.slots) + 2);
    let (homes, ends) = (expanded.homes(problem), expanded.ends(problem));
    for (home, supply) in homes.iter().zip(&problem.supplies) {
        let arc = |end: &u32| Arc { from: *home, to: *end, capacity: supply.units, cost: dear };
        arcs.extend(ends.iter().map(arc));
    }
    Ok(Network::new(network.supply().to_vec(), arcs)?)
}
