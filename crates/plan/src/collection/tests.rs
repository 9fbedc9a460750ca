//! Tests of plans: against the paper's example, brute force, and the rules of a schedule.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn leg(from: u32, to: u32, per_slot: u64) -> Leg {
    Leg { from, to, per_slot }
}

/// Up to five hosts, of which the last is the destination; every host has a path to it.
fn problem() -> impl Strategy<Value = Problem> {
    (2_u32..6).prop_flat_map(|hosts| {
        let legs = prop::collection::vec((0..hosts, 0..hosts, 0_u64..7), 0..14);
        let amounts = prop::collection::vec(0_u64..25, hosts as usize);
        let direct = prop::collection::vec(1_u64..5, hosts as usize - 1);
        (amounts, legs, direct).prop_map(move |(amounts, legs, direct)| {
            let mut legs: Vec<Leg> = legs.into_iter().map(|(a, b, c)| leg(a, b, c)).collect();
            legs.sort_by_key(|leg| (leg.from, leg.to));
            legs.dedup_by_key(|leg| (leg.from, leg.to));
            for (host, per_slot) in (0..hosts - 1).zip(direct) {
                if !legs.iter().any(|l| (l.from, l.to) == (host, hosts - 1) && l.per_slot > 0) {
                    legs.retain(|l| (l.from, l.to) != (host, hosts - 1));
                    legs.push(leg(host, hosts - 1, per_slot));
                }
            }
            Problem::collect(&amounts, hosts - 1, &legs).unwrap()
        })
    })
}

/// Checks every rule of a schedule, independently of how it was made.
fn keeps_the_rules(problem: &Problem, plan: &Timetable) -> Result<(), TestCaseError> {
    let mut sent: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
    let mut moved: BTreeMap<u32, u64> = BTreeMap::new();
    for path in &plan.paths {
        prop_assert!(path.units > 0 && path.end() <= plan.slots, "{path:?}");
        prop_assert!(problem.is_destination(path.last()), "{path:?}");
        *moved.entry(path.source).or_default() += path.units;
        for hop in path.transfers() {
            *sent.entry(hop).or_default() += path.units;
        }
    }
    for ((slot, from, to), units) in sent {
        let room: u64 = problem
            .legs
            .iter()
            .filter(|leg| (leg.from, leg.to) == (from, to))
            .map(|leg| leg.per_slot)
            .sum();
        prop_assert!(units <= room, "{units} of {room} from {from} to {to} in slot {slot}");
    }
    for supply in &problem.supplies {
        prop_assert_eq!(moved.get(&supply.host).copied().unwrap_or(0), supply.units);
    }
    Ok(())
}

/// Whether all data can be at the destination after `slots` slots if hosts store without limit. Tries all ways to send
/// whole units from hosts, breadth first over what each host holds.
fn reachable_within(problem: &Problem, slots: u32) -> bool {
    let hosts = problem.hosts as usize;
    let mut start = vec![0; hosts];
    problem.supplies.iter().for_each(|supply| start[supply.host as usize] += supply.units);
    let mut states = std::collections::BTreeSet::from([start]);
    for _ in 0..slots {
        states = states.iter().flat_map(|held| after_a_slot(problem, held)).collect();
    }
    let there = |held: &Vec<u64>| held[hosts - 1] == problem.units();
    states.iter().any(there)
}

fn after_a_slot(problem: &Problem, held: &[u64]) -> Vec<Vec<u64>> {
    let mut ways = vec![(held.to_vec(), held.to_vec())];
    for leg in &problem.legs {
        let mut more = Vec::new();
        for (left, next) in &ways {
            for units in 1..=leg.per_slot.min(left[leg.from as usize]) {
                let (mut left, mut next) = (left.clone(), next.clone());
                left[leg.from as usize] -= units;
                next[leg.from as usize] -= units;
                next[leg.to as usize] += units;
                more.push((left, next));
            }
        }
        ways.extend(more);
    }
    let mut after: Vec<Vec<u64>> = ways.into_iter().map(|way| way.1).collect();
    after.sort();
    after.dedup();
    after
}

proptest! {
    #[test]
    fn a_plan_keeps_the_rules_and_no_shorter_one_exists(problem in problem()) {
        let plan = problem.timetable().unwrap();
        keeps_the_rules(&problem, &plan)?;
        let expanded = time_expanded::TimeExpandedNetwork::new(&problem, plan.slots, Objective::Paper).unwrap();
        prop_assert!(expanded.network.cheapest().unwrap().is_optimal_for(&expanded.network));
        if plan.slots > 0 {
            let shorter = problem.timetable_within(plan.slots - 1, Objective::Paper);
            prop_assert!(matches!(shorter, Err(PlanError::TooShort { .. })), "{shorter:?}");
        }
    }

    #[test]
    fn the_fluid_plan_is_a_bound_and_keeps_capacities(problem in problem()) {
        let (fluid, plan) = (problem.fluid().unwrap(), problem.timetable().unwrap());
        prop_assert!(fluid.slots <= f64::from(plan.slots) + 1e-6, "{fluid:?}");
        // Rounded up, two slots for each host, and half as much again.
        let most = fluid.slots.ceil() + f64::from(problem.hosts) * 2.0;
        prop_assert!(f64::from(plan.slots) <= most * 1.5, "{} > {most}", plan.slots);
        let mut on: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut moved: BTreeMap<u32, f64> = BTreeMap::new();
        for path in &fluid.paths {
            let from = std::iter::once(&path.source).chain(&path.via);
            for (from, to) in from.zip(&path.via) {
                *on.entry((*from, *to)).or_default() += path.per_slot;
            }
            *moved.entry(path.source).or_default() += path.per_slot * fluid.slots;
        }
        for leg in &problem.legs {
            let used = on.get(&(leg.from, leg.to)).copied().unwrap_or(0.0);
            prop_assert!(used <= leg.per_slot as f64 * (1.0 + 1e-9), "{leg:?} {used}");
        }
        for supply in &problem.supplies {
            let moved = moved.get(&supply.host).copied().unwrap_or(0.0);
            prop_assert!((moved - supply.units as f64).abs() < 1e-3, "{supply:?}: {moved}");
        }
    }

    #[test]
    fn any_objective_and_limit_keeps_the_rules(problem in problem(), most in 1_u64..4) {
        let limits = HostLimits { egress: Some(most), ingress: None, storage: Some(most) };
        let limited = problem.clone().with_limits(0, limits);
        let plan = limited.timetable().unwrap();
        keeps_the_rules(&limited, &plan)?;
        prop_assert!(plan.slots >= problem.smallest_horizon().unwrap());
        prop_assert!(plan.storage(limited.hosts)[0] <= most);
        let mut sent = BTreeMap::<u32, u64>::new();
        for path in &plan.paths {
            let own = path.transfers().filter(|(_, from, _)| *from == 0);
            own.for_each(|(slot, ..)| *sent.entry(slot).or_default() += path.units);
        }
        prop_assert!(sent.values().all(|units| *units <= most), "{sent:?}");
        let by_mean = limited.timetable_within(plan.slots, Objective::MeanCompletion).unwrap();
        keeps_the_rules(&limited, &by_mean)?;
        let late = |plan: &Timetable| -> u64 {
            plan.paths.iter().map(|path| u64::from(path.end()) * path.units).sum()
        };
        prop_assert!(late(&by_mean) <= late(&plan));
    }
}

/// At most three hosts and five units: larger problems have too many ways to try.
#[test]
fn t_is_the_smallest_by_brute_force() {
    let mut tried = 0;
    for amounts in [[1, 2], [3, 1], [4, 0], [0, 3], [2, 3]] {
        for capacities in [[1, 1, 1, 1], [2, 1, 0, 1], [1, 2, 2, 0], [1, 0, 3, 2], [3, 1, 1, 0]] {
            let [a, b, c, d] = capacities;
            let legs = [leg(0, 2, a), leg(1, 2, b), leg(0, 1, c), leg(1, 0, d)];
            let problem = Problem::collect(&[amounts[0], amounts[1], 0], 2, &legs).unwrap();
            let Ok(slots) = problem.smallest_horizon() else { continue };
            assert!(reachable_within(&problem, slots), "{problem:?} {slots}");
            assert!(slots == 0 || !reachable_within(&problem, slots - 1), "{problem:?} {slots}");
            tried += 1;
        }
    }
    assert!(tried > 20);
}

/// Fig. 1(b): 12, 15 and 14 units at S1, S2, S3; S3 reaches D best by S2 or S1.
#[test]
fn staging_over_another_source_ends_sooner_than_direct() {
    let legs = [leg(0, 3, 4), leg(1, 3, 4), leg(2, 3, 2), leg(2, 0, 4), leg(2, 1, 4)];
    let problem = Problem::collect(&[12, 15, 14, 0], 3, &legs).unwrap();
    let plan = problem.timetable().unwrap();
    // 41 units at 10 a slot; directly, S3 alone would take 7 slots.
    assert_eq!(plan.slots, 5);
    assert!(plan.paths.iter().any(|path| path.source == 2 && path.via.len() == 2));
    assert_eq!(plan.paths.iter().map(|path| path.units).sum::<u64>(), 41);
}

#[test]
fn data_is_sent_as_soon_as_possible_over_the_widest_leg() {
    let legs = [leg(0, 1, 5)];
    let problem = Problem::collect(&[12, 0], 1, &legs).unwrap();
    let plan = problem.timetable().unwrap();
    let mut sent: Vec<_> = plan.paths.iter().map(|path| (path.start, path.units)).collect();
    sent.sort_unstable();
    assert_eq!((plan.slots, sent), (3, vec![(0, 5), (1, 5), (2, 2)]));
}

#[test]
fn later_data_waits_until_it_is_ready() {
    let supply = Supply { host: 0, units: 6, ready: 4 };
    let problem = Problem::new(2, &[leg(0, 1, 3)], vec![supply], vec![(1, 6)]).unwrap();
    let plan = problem.timetable().unwrap();
    assert_eq!(plan.slots, 6);
    assert!(plan.paths.iter().all(|path| path.start >= 4), "{plan:?}");
}

#[test]
fn several_destinations_get_their_shares() {
    let supplies = vec![Supply { host: 0, units: 9, ready: 0 }];
    let legs = [leg(0, 1, 3), leg(1, 2, 2)];
    let problem = Problem::new(3, &legs, supplies, vec![(1, 5), (2, 4)]).unwrap();
    let plan = problem.timetable().unwrap();
    let to = |host| plan.paths.iter().filter(|p| p.last() == host).map(|p| p.units).sum::<u64>();
    assert_eq!((plan.slots, to(1), to(2)), (3, 5, 4));
}

#[test]
fn the_cheap_way_is_used_if_there_is_time() {
    let legs = [leg(0, 2, 4), leg(0, 1, 4), leg(1, 2, 4)];
    let problem = Problem::collect(&[8, 0, 0], 2, &legs).unwrap();
    let direct_is_dear = Objective::Price(&[9, 1, 1]);
    let price = |slots| {
        let plan = problem.timetable_within(slots, direct_is_dear).unwrap();
        let of = |p: &TimedPath| p.units * if p.via.len() == 1 { 9 } else { 2 };
        plan.paths.iter().map(of).sum::<u64>()
    };
    assert_eq!((price(2), price(3), price(4)), (44, 16, 16));
}

#[test]
fn the_best_path_is_each_hosts_own() {
    let legs = [leg(0, 3, 1), leg(0, 1, 5), leg(1, 3, 4), leg(2, 3, 2), leg(2, 1, 2)];
    let problem = Problem::collect(&[4, 4, 4, 0], 3, &legs).unwrap();
    let paths = problem.best_paths().unwrap();
    let of: Vec<_> = paths.iter().map(|path| (path.via.clone(), path.per_slot)).collect();
    assert_eq!(of, [(vec![1, 3], 4), (vec![3], 4), (vec![3], 2)]);
}

#[test]
fn impossible_problems_are_refused_with_a_reason() {
    let cut_off = Problem::collect(&[1, 1, 0], 2, &[leg(0, 2, 1)]).unwrap();
    assert_eq!(cut_off.timetable(), Err(PlanError::NoPath(1)));
    assert_eq!(cut_off.fluid(), Err(PlanError::NoPath(1)));
    let unknown = Problem::collect(&[1, 0], 1, &[leg(0, 7, 1)]);
    assert_eq!(unknown, Err(ProblemError::NoSuchHost(7)));
    let many = Problem::collect(&[1 << 51, 0], 1, &[leg(0, 1, 1)]);
    assert_eq!(many, Err(ProblemError::TooManyUnits));
    let slow = Problem::collect(&[1 << 40, 0], 1, &[leg(0, 1, 1)]).unwrap();
    assert!(matches!(slow.timetable(), Err(PlanError::TooLong { .. })));
}

#[test]
fn ten_terabytes_are_planned_without_overflow() {
    let unit = 64 * 1024;
    let amount = (10_u64 << 40) / unit;
    let legs: Vec<Leg> = (0..7).map(|host| leg(host, 7, amount / 100)).collect();
    let problem = Problem::collect(&[amount; 8], 7, &legs).unwrap();
    let plan = problem.timetable().unwrap();
    assert_eq!(plan.paths.iter().map(|path| path.units).sum::<u64>(), 7 * amount);
    assert!(plan.slots >= 100);
}

/// The legs are far faster than the data is large, so constant rates end within a part of a slot.
#[test]
fn a_small_collection_takes_less_than_a_slot() {
    let problem = Problem::collect(&[1, 1, 0], 2, &[leg(0, 2, 4), leg(1, 2, 8)]).unwrap();
    let fluid = problem.fluid().unwrap();
    assert!((fluid.slots - 0.25).abs() < 1e-9, "{fluid:?}");
    assert_eq!(problem.timetable().unwrap().slots, 1);
}
