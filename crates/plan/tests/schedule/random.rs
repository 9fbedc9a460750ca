//! Tests of the random schedule of UKAIRO §4.3.

use crate::world::{asked, known, rates, run, seeded};
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    schedule::{ExcludedLegs, Random, Schedule},
};

#[test]
fn each_path_begins_where_a_measured_one_ends_or_begins() {
    let mut random = seeded(21);
    let (mut schedule, excluded) = (Random::new(0.5), ExcludedLegs::default());
    let rates = rates(15, 0.5, &mut random);
    let mut graph = Graph::new(15);
    let mut ends: BTreeSet<usize> = BTreeSet::new();
    loop {
        let pairs = schedule.next(&known(&graph, &excluded), &mut random);
        let [(i, j)] = pairs[..] else { break };
        assert!(ends.is_empty() || ends.contains(&i), "{i} is no end-point of a path in P");
        assert_eq!(graph.set(i, j, Some(rates[i][j])), None);
        ends.extend([i, j]);
    }
    assert_eq!((graph.measured(), ends.len()), (105, 15));
}

#[test]
fn it_measures_all_available_paths_and_ends() {
    let mut random = seeded(22);
    let rates = rates(9, 0.5, &mut random);
    let excluded = ExcludedLegs { nodes: BTreeSet::from([0]), ..ExcludedLegs::default() };
    let graph = run(&mut Random::new(1.0), &rates, &excluded, 999, &mut random);
    assert_eq!(graph.measured(), 8 * 7);
    assert_eq!(asked(&mut Random::new(1.0), &Graph::new(9), 100, &mut random).len(), 72);
}
