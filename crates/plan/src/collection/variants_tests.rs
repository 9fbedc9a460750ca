//! Tests of shared capacities, several destinations and whole files; and of T by an independent linear program.

use super::*;
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, solvers::microlp::microlp,
    variable,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn leg(from: u32, to: u32, per_slot: u64) -> Leg {
    Leg { from, to, per_slot }
}

/// Three sources and one destination, with all legs.
fn problem() -> impl Strategy<Value = Problem> {
    let amounts = prop::collection::vec(0_u64..25, 3);
    (amounts, prop::collection::vec(1_u64..7, 9)).prop_map(|(mut amounts, capacities)| {
        amounts.push(0);
        let pairs = [(0, 3), (1, 3), (2, 3), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let legs = pairs.iter().zip(capacities).map(|((from, to), c)| leg(*from, *to, c));
        Problem::collect(&amounts, 3, &legs.collect::<Vec<_>>()).unwrap()
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

/// The most units that can be at the destination after `slots` slots, by an independent program in which hosts hold
/// data at any time, not only at their first vertex.
fn most_within(problem: &Problem, slots: usize) -> f64 {
    let mut variables = ProblemVariables::new();
    let hosts = problem.hosts as usize;
    let free = |variables: &mut ProblemVariables| variables.add(variable().min(0.0));
    let held: Vec<Vec<Variable>> =
        (0..=slots).map(|_| (0..hosts).map(|_| free(&mut variables)).collect()).collect();
    let sent: Vec<Vec<Variable>> = (0..slots)
        .map(|_| {
            let most = problem.legs.iter().map(|leg| leg.per_slot as f64);
            most.map(|most| variables.add(variable().min(0.0).max(most))).collect()
        })
        .collect();
    let end = problem.demands[0].0 as usize;
    let mut model = variables.maximise(held[slots][end]).using(microlp);
    for (host, start) in held[0].iter().enumerate() {
        let own = problem.supplies.iter().filter(|supply| supply.host as usize == host);
        let own: u64 = own.map(|supply| supply.units).sum();
        model.add_constraint(Expression::from(*start).eq(own as f64));
    }
    for slot in 0..slots {
        for (host, (now, then)) in held[slot].iter().zip(&held[slot + 1]).enumerate() {
            let mut left = Expression::from(*now);
            let mut next = Expression::from(0.0);
            for (leg, x) in problem.legs.iter().zip(&sent[slot]) {
                if leg.from as usize == host {
                    left.add_mul(-1.0, *x);
                }
                if leg.to as usize == host {
                    next.add_mul(1.0, *x);
                }
            }
            // A host only sends what it had before the slot.
            model.add_constraint(left.clone().geq(0.0));
            model.add_constraint((left + next - *then).eq(0.0));
        }
    }
    let answer = model.solve().unwrap();
    answer.value(held[slots][end])
}

/// The units on each leg in each slot.
fn sent(plan: &Timetable) -> BTreeMap<(u32, u32, u32), u64> {
    let mut sent = BTreeMap::new();
    for path in &plan.paths {
        path.transfers().for_each(|hop| *sent.entry(hop).or_default() += path.units);
    }
    sent
}

fn keeps_shared(problem: &Problem, plan: &Timetable) -> Result<(), TestCaseError> {
    let sent = sent(plan);
    let on = |slot: u32, leg: &Leg| sent.get(&(slot, leg.from, leg.to)).copied().unwrap_or(0);
    for slot in 0..plan.slots {
        for leg in &problem.legs {
            prop_assert!(on(slot, leg) <= leg.per_slot, "{leg:?} in slot {slot}");
        }
        for set in &problem.shared {
            let all: u64 = set.legs.iter().map(|leg| on(slot, &problem.legs[*leg])).sum();
            prop_assert!(all <= set.per_slot, "{all} in slot {slot}: {set:?}");
        }
    }
    let moved: u64 = plan.paths.iter().map(|path| path.units).sum();
    prop_assert_eq!(moved, problem.units());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn t_is_the_smallest_by_a_linear_program(problem in problem()) {
        let slots = problem.smallest_horizon().unwrap() as usize;
        prop_assert!(close(most_within(&problem, slots), problem.units() as f64));
        if slots > 0 {
            let most = most_within(&problem, slots - 1);
            prop_assert!(most < problem.units() as f64 - 0.5, "{most}");
        }
    }

    #[test]
    fn the_paths_sum_up_to_the_flow(problem in problem()) {
        let slots = problem.smallest_horizon().unwrap();
        let expanded = time_expanded::TimeExpandedNetwork::new(&problem, slots, Objective::Paper).unwrap();
        let flow = expanded.network.cheapest().unwrap();
        prop_assert!(flow.is_optimal_for(&expanded.network));
        let mut on = BTreeMap::new();
        for (slot, leg, units) in expanded.sent(&flow) {
            let leg = &problem.legs[leg];
            *on.entry((slot, leg.from, leg.to)).or_default() += units;
        }
        let paths = decompose::decompose(&problem, &expanded, &flow);
        let plan = Timetable { slots, paths };
        prop_assert_eq!(sent(&plan), on);
        let mut held = BTreeMap::new();
        for (supply, slot, units) in expanded.held(&flow) {
            *held.entry((problem.supplies[supply].host, slot)).or_insert(0) += units;
        }
        for path in plan.paths.iter().filter(|path| path.start > 0) {
            *held.entry((path.source, path.start)).or_insert(0) -= path.units;
        }
        prop_assert!(held.values().all(|left| *left == 0), "{held:?}");
    }

    #[test]
    fn the_linear_program_of_constant_rates_agrees_with_maximum_flows(problem in problem()) {
        let (flows, program) = (problem.fluid().unwrap(), problem.fluid_shared().unwrap());
        prop_assert!(close(flows.slots, program.slots), "{} {}", flows.slots, program.slots);
        let moved: f64 = program.paths.iter().map(|path| path.per_slot * program.slots).sum();
        prop_assert!(close(moved, problem.units() as f64));
    }

    #[test]
    fn a_set_of_all_legs_into_a_host_is_its_limit(problem in problem(), most in 1_u64..9) {
        let into = problem.clone().with_shared(&[(0, 3), (1, 3), (2, 3)], most);
        let ingress = HostLimits { ingress: Some(most), ..HostLimits::default() };
        let limited = problem.with_limits(3, ingress);
        let (a, b) = (into.fluid().unwrap().slots, limited.fluid().unwrap().slots);
        prop_assert!(close(a, b), "{a} {b}");
        let (a, b) = (into.timetable().unwrap(), limited.timetable().unwrap());
        keeps_shared(&into, &a)?;
        prop_assert!(a.slots >= b.slots && a.slots <= b.slots + 2, "{} {}", a.slots, b.slots);
    }

    #[test]
    fn overlapping_sets_are_respected(problem in problem(), a in 1_u64..9, b in 1_u64..9) {
        let problem = problem
            .with_shared(&[(0, 3), (1, 3), (0, 1)], a)
            .with_shared(&[(1, 3), (2, 3), (2, 1), (7, 7)], b);
        let fluid = problem.fluid().unwrap();
        let plan = problem.timetable().unwrap();
        keeps_shared(&problem, &plan)?;
        let (low, high) = (fluid.slots.floor(), fluid.slots.ceil() + 6.0);
        prop_assert!((low..=high).contains(&f64::from(plan.slots)), "{} {}", plan.slots, fluid.slots);
    }

    #[test]
    fn an_exchange_with_one_destination_is_a_collection(problem in problem()) {
        let parcel = |from: &Supply| Parcel { from: from.host, to: 3, units: from.units };
        let parcels: Vec<Parcel> = problem.supplies.iter().map(parcel).collect();
        let exchange = Exchange::new(4, &problem.legs, &parcels).unwrap();
        prop_assert!(close(exchange.fluid().unwrap().slots, problem.fluid().unwrap().slots));
    }

    #[test]
    fn whole_files_stay_within_their_bound(
        problem in problem(), files in prop::collection::vec((0_u32..3, 1_u64..20), 1..20),
    ) {
        let plan = problem.whole_files(&files).unwrap();
        prop_assert!(plan.slots >= plan.splittable * (1.0 - 1e-6), "{plan:?}");
        prop_assert!(plan.slots <= plan.bound * (1.0 + 1e-6), "{plan:?}");
        let mut load = BTreeMap::<(u32, u32), u64>::new();
        for ((host, units), via) in files.iter().zip(&plan.via) {
            prop_assert_eq!(via.last(), Some(&3));
            for (from, to) in std::iter::once(host).chain(via).zip(via) {
                *load.entry((*from, *to)).or_default() += units;
            }
        }
        let takes = |(ends, units): (&(u32, u32), &u64)| {
            let leg = problem.legs.iter().find(|leg| (leg.from, leg.to) == *ends).unwrap();
            *units as f64 / leg.per_slot as f64
        };
        prop_assert!(close(load.iter().map(takes).fold(0.0, f64::max), plan.slots));
    }
}

/// Two sources and two destinations on either side of a common middle leg.
#[test]
fn each_parcel_goes_to_its_destination() {
    let legs = [leg(0, 2, 6), leg(1, 2, 6), leg(2, 3, 4), leg(3, 4, 6), leg(3, 5, 6), leg(0, 4, 1)];
    let parcels = [
        Parcel { from: 0, to: 4, units: 10 },
        Parcel { from: 1, to: 5, units: 10 },
        Parcel { from: 5, to: 5, units: 9 },
    ];
    let plan = Exchange::new(6, &legs, &parcels).unwrap().fluid().unwrap();
    // 4 by the middle leg and 1 by the direct leg: 20 units at 5 a slot.
    assert!(close(plan.slots, 4.0), "{plan:?}");
    let to = |from, to| {
        let own = plan.paths.iter().filter(|p| p.source == from && p.via.last() == Some(&to));
        own.map(|path| path.per_slot * plan.slots).sum::<f64>()
    };
    assert!(close(to(0, 4), 10.0) && close(to(1, 5), 10.0), "{plan:?}");
    let cut_off = Exchange::new(6, &legs, &[Parcel { from: 4, to: 5, units: 1 }]).unwrap();
    assert_eq!(cut_off.fluid(), Err(PlanError::NoPath(4)));
    let nothing = Exchange::new(2, &[], &[]).unwrap().fluid().unwrap();
    assert_eq!(nothing, Fluid { slots: 0.0, paths: Vec::new() });
    let many = [Parcel { from: 0, to: 1, units: u64::MAX }, Parcel { from: 2, to: 1, units: 9 }];
    assert_eq!(Exchange::new(3, &legs[..1], &many), Err(ProblemError::TooManyUnits));
}

#[test]
fn a_set_without_capacity_is_refused_with_a_reason() {
    let problem = Problem::collect(&[5, 0], 1, &[leg(0, 1, 3)]).unwrap();
    let shut = problem.clone().with_shared(&[(0, 1)], 0);
    assert_eq!(shut.fluid(), Err(PlanError::Shut));
    assert_eq!(shut.timetable(), Err(PlanError::Shut));
    // Without data, the set does not matter.
    let idle = Problem::collect(&[0, 0], 1, &[leg(0, 1, 3)]).unwrap().with_shared(&[(0, 1)], 0);
    assert_eq!(idle.fluid().unwrap().slots, 0.0);
    assert_eq!(idle.timetable().unwrap().slots, 0);
    let large = Problem::collect(&[1 << 20, 0], 1, &[leg(0, 1, 3)]).unwrap();
    let large = large.with_shared(&[(0, 1)], 2).timetable();
    assert!(matches!(large, Err(PlanError::TooLarge { .. } | PlanError::TooLong { .. })));
    let two = Problem::new(3, &[leg(0, 1, 3)], vec![], vec![(1, 0), (2, 0)]).unwrap();
    assert_eq!(two.whole_files(&[(0, 1)]), Err(PlanError::OneDestination));
    assert_eq!(problem.whole_files(&[(9, 1)]), Err(PlanError::NoPath(9)));
}

#[test]
fn ten_terabytes_in_units_of_a_byte_do_not_overflow() {
    let amount = 10_u64 << 40;
    let legs = [leg(0, 2, amount / 60), leg(1, 2, amount / 50), leg(0, 1, amount / 40)];
    let problem = Problem::collect(&[amount, amount, 0], 2, &legs).unwrap();
    let plan = problem.timetable().unwrap();
    assert_eq!(plan.paths.iter().map(|path| path.units).sum::<u64>(), 2 * amount);
    let fluid = problem.fluid().unwrap();
    assert!(close(fluid.slots, 600.0 / 11.0), "{}", fluid.slots);
    assert!((fluid.slots..fluid.slots + 2.0).contains(&f64::from(plan.slots)));
    let shared = problem.clone().with_shared(&[(0, 2), (1, 2)], amount / 100);
    assert!(close(shared.fluid().unwrap().slots, 200.0));
    let prices = Prices::of(&problem, |_, to| f64::from(to));
    assert!(close(problem.least_price(&prices).unwrap(), 4.0 * amount as f64));
    let whole = problem.whole_files(&[(0, amount), (1, amount)]).unwrap();
    assert!(whole.slots <= whole.bound && whole.slots >= 54.0, "{whole:?}");
}
