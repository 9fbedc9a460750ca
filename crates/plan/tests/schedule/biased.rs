//! Tests of UKAIRO's Algorithm 1 against a second reading of its text.

use crate::world::{asked, known, rates, run, seeded};
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    ranking::Ranking,
    schedule::{Biased, ExcludedLegs, Schedule},
};

/// "The count of measured paths (a, b) where (a, l) and (l, b) are both measured", one by one.
fn frequency(graph: &Graph, l: usize) -> u64 {
    let pairs = graph.legs().filter(|((a, b), _)| {
        *a != l && *b != l && graph.rate(*a, l).is_some() && graph.rate(l, *b).is_some()
    });
    pairs.count() as u64
}

fn fully_measured(graph: &Graph, l: usize) -> bool {
    graph.in_degree(l) + graph.out_degree(l) == 2 * (graph.nodes() - 1)
}

#[test]
fn each_step_measures_a_triple_of_the_node_that_the_algorithm_names() {
    let mut random = seeded(11);
    let rates = rates(20, 0.5, &mut random);
    let excluded = ExcludedLegs::default();
    let mut schedule = Biased::new(Biased::T, 0.8);
    let mut graph = Graph::new(20);
    let mut steps = [0, 0];
    loop {
        let pairs = schedule.next(&known(&graph, &excluded), &mut random);
        if pairs.is_empty() {
            break;
        }
        let nodes: BTreeSet<usize> = pairs.iter().flat_map(|(i, j)| [*i, *j]).collect();
        let least = (0..20).map(|l| frequency(&graph, l)).min().unwrap();
        assert!(nodes.len() <= 3, "{pairs:?} are no triple's");
        if least < Biased::T {
            steps[0] += 1;
            let named = |l: &usize| frequency(&graph, *l) == least;
            let missing = |l: usize| {
                let others: Vec<usize> = nodes.iter().copied().filter(|n| *n != l).collect();
                others.iter().any(|o| pairs.contains(&(l, *o)) || pairs.contains(&(*o, l)))
            };
            // The triple may only lack the path between the other two.
            let is_named = nodes.iter().any(named) || nodes.len() == 2;
            assert!(is_named && nodes.iter().any(|l| missing(*l)), "{pairs:?}, least {least}");
        } else {
            steps[1] += 1;
            let ranking = Ranking::oblivious(&graph);
            let best = ranking.scores().iter().map(|s| s.relay);
            let best = best.into_iter().find(|l| !fully_measured(&graph, *l)).unwrap();
            assert!(nodes.contains(&best) || nodes.len() == 2, "{pairs:?} without {best}");
        }
        for (i, j) in pairs {
            assert_eq!(graph.set(i, j, Some(rates[i][j])), None, "measured twice");
        }
    }
    assert!(steps[0] > 10 && steps[1] > 10, "both phases were seen: {steps:?}");
    assert!((304..=309).contains(&graph.measured()), "0.8 of 380, and a triple more at most");
    assert!(schedule.is_phase_two());
}

#[test]
fn all_six_paths_of_a_new_triple_are_measured() {
    let mut random = seeded(12);
    let mut schedule = Biased::new(25, 0.4);
    let (graph, excluded) = (Graph::new(10), ExcludedLegs::default());
    let pairs = schedule.next(&known(&graph, &excluded), &mut random);
    let nodes: BTreeSet<usize> = pairs.iter().flat_map(|(i, j)| [*i, *j]).collect();
    assert_eq!((pairs.len(), nodes.len()), (6, 3));
}

#[test]
fn p_bounds_only_phase_two() {
    let mut random = seeded(13);
    let rates = rates(30, 0.5, &mut random);
    let graph = run(&mut Biased::new(25, 0.0), &rates, &ExcludedLegs::default(), 870, &mut random);
    assert!((0..30).all(|l| frequency(&graph, l) >= 25));
    assert!(graph.measured() < 870 * 3 / 4, "{} are far more than needed", graph.measured());
}

#[test]
fn small_meshes_are_measured_whole_and_then_it_ends() {
    let mut random = seeded(14);
    for n in 0..=8 {
        let rates = rates(n, 0.5, &mut random);
        let graph =
            run(&mut Biased::new(25, 1.0), &rates, &ExcludedLegs::default(), 999, &mut random);
        assert_eq!(graph.measured(), n * n.saturating_sub(1), "{n} nodes");
    }
    // Too few nodes for t: phase one measures everything.
    let rates = rates(6, 0.5, &mut random);
    let graph = run(&mut Biased::new(25, 0.1), &rates, &ExcludedLegs::default(), 999, &mut random);
    assert_eq!(graph.measured(), 30);
}

#[test]
fn a_node_that_is_down_does_not_hold_up_the_schedule() {
    let mut random = seeded(15);
    let rates = rates(12, 0.5, &mut random);
    let excluded =
        ExcludedLegs { nodes: BTreeSet::from([3]), pairs: BTreeSet::from([(0, 1), (1, 0)]) };
    let graph = run(&mut Biased::new(25, 1.0), &rates, &excluded, 999, &mut random);
    assert_eq!(graph.measured(), 11 * 10 - 2);
    assert_eq!(graph.in_degree(3) + graph.out_degree(3), 0);
}

#[test]
fn it_does_not_wait_for_legs_that_it_asked_for() {
    let mut random = seeded(16);
    let mut schedule = Biased::new(25, 1.0);
    let all = asked(&mut schedule, &Graph::new(12), 200, &mut random);
    assert_eq!(all.len(), 12 * 11);
}

#[test]
fn a_forgotten_leg_is_measured_again() {
    let mut random = seeded(17);
    let rates = rates(12, 0.5, &mut random);
    let mut schedule = Biased::new(25, 1.0);
    let excluded = ExcludedLegs::default();
    let mut graph = run(&mut schedule, &rates, &excluded, 999, &mut random);
    assert_eq!(schedule.next(&known(&graph, &excluded), &mut random), []);
    graph.set(4, 7, None);
    assert_eq!(schedule.next(&known(&graph, &excluded), &mut random), [(4, 7)]);
}
