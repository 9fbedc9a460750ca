//! Tests of plans with prices: against the linear program, the shape of the curve, and by hand.

use super::{lp, *};
use proptest::prelude::*;

fn leg(from: u32, to: u32, per_slot: u64) -> Leg {
    Leg { from, to, per_slot }
}

/// Three sources and one destination, with random amounts, capacities and prices.
fn problem() -> impl Strategy<Value = (Problem, Vec<u32>)> {
    let amounts = prop::collection::vec(1_u64..30, 3);
    let capacities = prop::collection::vec(1_u64..9, 9);
    (amounts, capacities, prop::collection::vec(0_u32..20, 9)).prop_map(
        |(mut amounts, capacities, prices)| {
            amounts.push(0);
            let pairs = [(0, 3), (1, 3), (2, 3), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
            let legs = pairs.iter().zip(capacities).map(|((from, to), c)| leg(*from, *to, c));
            let legs: Vec<Leg> = legs.collect();
            (Problem::collect(&amounts, 3, &legs).unwrap(), prices)
        },
    )
}

fn prices(problem: &Problem, on: &[u32]) -> Prices {
    let at = |from, to| problem.legs().iter().position(|leg| (leg.from, leg.to) == (from, to));
    Prices::of(problem, |from, to| at(from, to).map_or(0.0, |leg| f64::from(on[leg])))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #[test]
    fn the_cheapest_plan_within_a_deadline_equals_the_linear_program(
        (problem, on) in problem(), later in 0.0_f64..3.0,
    ) {
        let prices = prices(&problem, &on);
        let slots = problem.fluid().unwrap().slots * (1.0 + later);
        let plan = problem.fluid_within(slots, &prices).unwrap();
        let on: Vec<f64> = on.iter().map(|price| f64::from(*price)).collect();
        let goal = lp::Goal::Cheapest(&on, slots);
        let other = lp::solve(&problem, &[lp::Commodity::of(&problem)], goal);
        // At the least T itself, the program may fail by its tolerance.
        if let Ok(other) = other {
            let other = prices.fluid(&problem, &other.fluid(&problem));
            prop_assert!(close(plan.price, other), "{} {other}", plan.price);
        } else {
            prop_assert!(later < 1e-6, "{later}");
        }
        let moved: f64 = plan.plan.paths.iter().map(|path| path.per_slot * slots).sum();
        prop_assert!(close(moved, problem.units() as f64));
    }

    #[test]
    fn the_fastest_plan_within_a_budget_equals_the_linear_program(
        (problem, on) in problem(), share in 0.0_f64..1.2,
    ) {
        let prices = prices(&problem, &on);
        let fast = problem.fluid_within(problem.fluid().unwrap().slots, &prices).unwrap();
        let least = problem.least_price(&prices).unwrap();
        prop_assume!(least > 0.0);
        let budget = least + share * (fast.price - least);
        let plan = problem.fluid_for(budget, &prices).unwrap();
        prop_assert!(plan.price <= budget * (1.0 + 1e-6), "{} {budget}", plan.price);
        let on: Vec<f64> = on.iter().map(|price| f64::from(*price)).collect();
        let goal = lp::Goal::Within(&on, budget * (1.0 + 1e-9));
        let other = lp::solve(&problem, &[lp::Commodity::of(&problem)], goal).unwrap();
        prop_assert!(close(plan.plan.slots, other.slots), "{} {}", plan.plan.slots, other.slots);
        let nothing = problem.fluid_for(least * 0.9, &prices);
        let refused = matches!(nothing, Err(PriceError::OverBudget { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn the_curve_falls_is_convex_and_has_all_corners((problem, on) in problem()) {
        let prices = prices(&problem, &on);
        let curve = problem.fluid_curve(&prices).unwrap();
        prop_assert!(close(curve[0].slots, problem.fluid().unwrap().slots));
        let last = curve.last().unwrap().price;
        prop_assert!(close(last, problem.least_price(&prices).unwrap()), "{curve:?}");
        for pair in curve.windows(2) {
            prop_assert!(pair[0].slots < pair[1].slots, "{curve:?}");
            prop_assert!(pair[1].price <= pair[0].price + 1e-6, "{curve:?}");
            let middle = f64::midpoint(pair[0].slots, pair[1].slots);
            let between = problem.fluid_within(middle, &prices).unwrap().price;
            let chord = f64::midpoint(pair[0].price, pair[1].price);
            prop_assert!(close(between, chord), "{between} {chord} {curve:?}");
        }
    }

    #[test]
    fn a_timetable_within_a_budget_is_the_shortest((problem, on) in problem(), share in 0.0_f64..1.2) {
        let prices = prices(&problem, &on);
        let fast = problem.timetable_cheapest(problem.smallest_horizon().unwrap(), &prices).unwrap();
        let least = problem.least_price(&prices).unwrap();
        let budget = least + share * (fast.price - least);
        let plan = problem.timetable_for(budget, &prices).unwrap();
        prop_assert!(plan.price <= budget * (1.0 + 1e-6) + 1e-9);
        if plan.plan.slots > fast.plan.slots {
            let sooner = problem.timetable_cheapest(plan.plan.slots - 1, &prices).unwrap();
            prop_assert!(sooner.price > budget, "{} {budget}", sooner.price);
        }
        // The slots of constant rates are a lower bound.
        let fluid = problem.fluid_for(budget.max(plan.price), &prices).unwrap();
        prop_assert!(fluid.plan.slots <= f64::from(plan.plan.slots) * (1.0 + 1e-6));
    }
}

/// 8 units: the direct leg carries 4 a slot at 9 each, the detour 4 a slot at 2 each.
#[test]
fn the_cheap_detour_is_used_as_far_as_time_allows() {
    let legs = [leg(0, 2, 4), leg(0, 1, 4), leg(1, 2, 4)];
    let problem = Problem::collect(&[8, 0, 0], 2, &legs).unwrap();
    let prices = Prices::of(&problem, |from, to| if (from, to) == (0, 2) { 9.0 } else { 1.0 });
    let curve = problem.fluid_curve(&prices).unwrap();
    let points: Vec<_> = curve.iter().map(|at| (at.slots.round(), at.price.round())).collect();
    assert_eq!(points, [(1.0, 44.0), (2.0, 16.0)]);
    let half = problem.fluid_for(30.0, &prices).unwrap();
    assert!(close(half.plan.slots, 1.5) && close(half.price, 30.0), "{half:?}");
    let soon = problem.fluid_within(0.5, &prices);
    assert!(matches!(soon, Err(PriceError::TooSoon { slots }) if close(slots, 1.0)), "{soon:?}");
    let cheap = problem.timetable_for(16.0, &prices).unwrap();
    assert_eq!((cheap.plan.slots, cheap.price), (3, 16.0));
}

#[test]
fn shared_capacities_have_a_curve_too() {
    let legs = [leg(0, 2, 4), leg(0, 1, 4), leg(1, 2, 4)];
    let problem = Problem::collect(&[8, 0, 0], 2, &legs).unwrap();
    let problem = problem.with_shared(&[(0, 2), (0, 1)], 4);
    let prices = Prices::of(&problem, |from, to| if (from, to) == (0, 2) { 9.0 } else { 1.0 });
    // The dear leg makes the plan no faster than the cheap one, so the first point is the last.
    let curve = problem.fluid_curve(&prices).unwrap();
    assert!(close(curve[0].slots, 2.0) && close(curve[0].price, 16.0), "{curve:?}");
}

/// Regression: the curve had 64 points, because the slopes of two points on one straight part differed by rounding.
#[test]
fn a_straight_part_has_no_corner() {
    let legs =
        [(0, 3, 8), (1, 3, 6), (2, 3, 1), (0, 1, 1), (0, 2, 1), (1, 0, 1), (1, 2, 1), (2, 0, 4)];
    let mut legs: Vec<Leg> = legs.iter().map(|(from, to, c)| leg(*from, *to, *c)).collect();
    legs.push(leg(2, 1, 1));
    let problem = Problem::collect(&[16, 13, 13, 0], 3, &legs).unwrap();
    let curve = problem.fluid_curve(&prices(&problem, &[16, 1, 18, 15, 7, 0, 0, 1, 2])).unwrap();
    let slope =
        |pair: &[CurvePoint]| (pair[1].price - pair[0].price) / (pair[1].slots - pair[0].slots);
    let slopes: Vec<f64> = curve.windows(2).map(slope).collect();
    assert!(slopes.windows(2).all(|pair| pair[1] > pair[0] + 0.01), "{slopes:?}");
    assert!(curve.len() < 10, "{curve:?}");
}
