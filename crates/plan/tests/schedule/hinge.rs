//! Tests of which legs TCP must measure because trains leave an order open.

use crate::world::seeded;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::{
    Graph,
    schedule::{
        ExcludedLegs, LegAges, LegRanges, Pair, Plan, Random, Schedule, ScheduleInput, Upkeep,
    },
};
use thalweg_units::Rate;

const HOUR: f64 = 3600.0;

/// All legs were measured `age_s` ago, except for younger ones; trains have found some ranges since.
#[derive(Debug, Default)]
struct Facts {
    age_s: f64,
    younger: BTreeMap<Pair, f64>,
    ranges: BTreeMap<Pair, (f64, f64)>,
}

impl LegAges for Facts {
    fn age_s(&self, pair: Pair) -> Option<f64> {
        Some(self.younger.get(&pair).copied().unwrap_or(self.age_s))
    }
}

impl LegRanges for Facts {
    fn range(&self, pair: Pair) -> Option<(f64, f64)> {
        self.ranges.get(&pair).map(|(low, high)| (low * 1e6, high * 1e6))
    }
}

/// From 0 to 3: directly 2 Mbit/s, by 1 `first`, by 2 10. Other legs are far faster, and the best ways between their
/// ends.
fn graph(first: f64) -> Graph {
    let mut graph = Graph::new(4);
    for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|(i, j)| i != j) {
        let mbps = match (i, j) {
            (0, 3) => 2.0,
            (0, 1) => first,
            (0, 2) => 10.0,
            _ => 500.0,
        };
        graph.set(i, j, Some(Rate::from_mbps(mbps)));
    }
    graph
}

fn facts(ranges: &[(Pair, (f64, f64))]) -> Facts {
    Facts { age_s: 2.0 * HOUR, ranges: ranges.iter().copied().collect(), ..Facts::default() }
}

fn plan() -> Plan {
    let days = Duration::from_secs(14 * 24 * 3600);
    Plan::new(Box::new(Random::new(0.0)), Upkeep::new(days))
}

fn asked(plan: &mut Plan, graph: &Graph, facts: &Facts, excluded: &ExcludedLegs) -> Vec<Pair> {
    let known =
        ScheduleInput { graph, excluded, age_s: Some(facts), rtt_s: None, ranges: Some(facts) };
    plan.next(&known, &mut seeded(7))
}

fn asked_after_probes(graph: &Graph, facts: &Facts, excluded: &ExcludedLegs) -> Vec<Pair> {
    let mut plan = plan();
    facts.ranges.keys().for_each(|pair| plan.record_probe(*pair));
    asked(&mut plan, graph, facts, excluded)
}

#[test]
fn a_leg_is_asked_for_if_either_of_two_ways_may_be_better() {
    let none = ExcludedLegs::default();
    // By 1 between 8 and 13, by 2 at 10.
    let open = facts(&[((0, 1), (8.0, 13.0)), ((0, 2), (9.0, 11.0))]);
    assert_eq!(asked_after_probes(&graph(10.5), &open, &none), [(0, 1)]);
    let clear = facts(&[((0, 1), (14.0, 16.0)), ((0, 2), (9.0, 11.0))]);
    assert_eq!(asked_after_probes(&graph(15.0), &clear, &none), []);
    // A lower bound means any rate above it.
    let bound = facts(&[((0, 1), (8.0, f64::INFINITY)), ((0, 2), (9.0, 11.0))]);
    assert_eq!(asked_after_probes(&graph(8.0), &bound, &none), [(0, 1)]);
}

#[test]
fn a_leg_that_is_no_way_s_bottleneck_is_not_asked_for() {
    let none = ExcludedLegs::default();
    // The leg from 1 to 3 is so much faster than the one to 1 that its range says nothing about 0 to 3; and between 1
    // and 3, no other way is as fast.
    let wide = facts(&[((1, 3), (400.0, 440.0)), ((0, 1), (14.0, 16.0))]);
    let mut graph = graph(15.0);
    for other in [0, 2] {
        graph.set(1, other, Some(Rate::from_mbps(100.0)));
    }
    assert_eq!(asked_after_probes(&graph, &wide, &none), []);
}

#[test]
fn a_leg_is_asked_for_once_and_not_within_an_hour_of_its_measurement() {
    let none = ExcludedLegs::default();
    let (graph, mut facts) = (graph(10.5), facts(&[((0, 1), (8.0, 13.0))]));
    let mut plan = plan();
    assert_eq!(asked(&mut plan, &graph, &facts, &none), [], "trains have told nothing yet");
    plan.record_probe((0, 1));
    assert_eq!(asked(&mut plan, &graph, &facts, &none), [(0, 1)]);
    plan.record_probe((0, 1));
    assert_eq!(asked(&mut plan, &graph, &facts, &none), [], "it is under way");
    facts.younger.insert((0, 1), HOUR / 2.0);
    plan.record_probe((0, 1));
    assert_eq!(asked(&mut plan, &graph, &facts, &none), [], "TCP has told");
    facts.younger.insert((0, 1), HOUR);
    plan.record_probe((0, 1));
    assert_eq!(asked(&mut plan, &graph, &facts, &none), [(0, 1)]);
    let down = ExcludedLegs { nodes: [1].into(), ..ExcludedLegs::default() };
    assert_eq!(asked_after_probes(&graph, &facts, &down), []);
}

#[test]
fn other_legs_get_turns_as_well() {
    let (none, mut graph) = (ExcludedLegs::default(), graph(10.5));
    let late: Vec<Pair> = (1..4).flat_map(|i| (0..i).map(move |j| (i, j))).collect();
    let mut facts = facts(&[((0, 1), (8.0, 13.0)), ((0, 2), (8.0, 13.0))]);
    late.iter().for_each(|pair| _ = facts.younger.insert(*pair, 13.0 * 24.0 * HOUR));
    graph.set(0, 2, Some(Rate::from_mbps(10.4)));
    let mut plan = plan();
    [(0, 1), (0, 2)].into_iter().for_each(|pair| plan.record_probe(pair));
    let all: Vec<Pair> = (0..6).flat_map(|_| asked(&mut plan, &graph, &facts, &none)).collect();
    assert_eq!(all[0], (0, 1), "first");
    assert!(all[1..5].iter().all(|pair| late.contains(pair)), "{all:?}");
    assert_eq!(all[5], (0, 2), "after four of the others'");
}
