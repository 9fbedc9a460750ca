//! Meshes for tests of schedules.

#[path = "../mesh/draws.rs"]
mod draws;

pub use draws::{normal, seeded};
pub use thalweg_plan::draw::unit;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    schedule::{ExcludedLegs, Pair, Schedule, ScheduleInput},
};
use thalweg_units::Rate;

/// The rates of a mesh that depend mostly on nodes' own factors, and otherwise on the pairs' luck.
pub fn rates(nodes: usize, luck: f64, random: &mut impl Rng) -> Vec<Vec<Rate>> {
    let mut factors = || (0..nodes).map(|_| 0.7 * normal(random)).collect::<Vec<f64>>();
    let (out, into) = (factors(), factors());
    let rate = |i: usize, j: usize, z: f64| Rate::from_mbps(20.0 * (out[i] + into[j] + z).exp());
    (0..nodes).map(|i| (0..nodes).map(|j| rate(i, j, luck * normal(random))).collect()).collect()
}

pub fn known<'a>(graph: &'a Graph, excluded: &'a ExcludedLegs) -> ScheduleInput<'a> {
    ScheduleInput { graph, excluded, age_s: None, rtt_s: None, ranges: None }
}

/// Measures what is asked for, at once, until nothing is asked for or `most` legs are measured. Asserts that no leg is
/// asked for twice, nor an excluded one.
pub fn run(
    schedule: &mut dyn Schedule,
    rates: &[Vec<Rate>],
    excluded: &ExcludedLegs,
    most: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Graph {
    let mut graph = Graph::new(rates.len());
    while graph.measured() < most {
        let pairs = schedule.next(&known(&graph, excluded), random);
        if pairs.is_empty() {
            break;
        }
        for (i, j) in pairs {
            assert!(i != j && !excluded.contains((i, j)), "({i},{j}) cannot be measured");
            assert_eq!(graph.set(i, j, Some(rates[i][j])), None, "({i},{j}) is measured twice");
        }
    }
    graph
}

/// Asks this many times without measuring anything. Asserts that no pair comes twice.
pub fn asked(
    schedule: &mut dyn Schedule,
    graph: &Graph,
    times: usize,
    random: &mut Xoshiro256PlusPlus,
) -> BTreeSet<Pair> {
    let excluded = ExcludedLegs::default();
    let mut all = BTreeSet::new();
    for pair in (0..times).flat_map(|_| schedule.next(&known(graph, &excluded), random)) {
        assert!(all.insert(pair), "{pair:?} is asked for twice");
    }
    all
}
