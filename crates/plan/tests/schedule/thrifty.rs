//! Tests of the thrifty schedule against Algorithm 1.

use crate::world::{asked, rates, run, seeded};
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph, completion,
    ranking::Ranking,
    schedule::{Biased, Design, ExcludedLegs, Thrifty},
};

#[test]
fn half_of_algorithm_1s_measurements_find_relays_as_good() {
    let mut random = seeded(41);
    let (mut ours, mut theirs, mut best) = (0.0, 0.0, 0.0);
    for _ in 0..10 {
        let rates = rates(40, 0.5, &mut random);
        let mut biased = Biased::new(Biased::T, 0.4);
        let all = ExcludedLegs::default();
        let measured = run(&mut biased, &rates, &all, 40 * 39, &mut random);
        let half = run(&mut Thrifty::new(0.2), &rates, &all, measured.measured() / 2, &mut random);
        assert!(half.measured() <= measured.measured() / 2);
        let truth = run(&mut Biased::new(25, 1.0), &rates, &all, 40 * 39, &mut random);
        let truth = Ranking::oblivious(&truth);
        let worth = |top: &[usize]| -> f64 {
            truth.scores().iter().filter(|s| top.contains(&s.relay)).map(|s| s.score).sum()
        };
        ours += worth(&completion::ranking(&half, None).top(5));
        theirs += worth(&Ranking::oblivious(&measured).top(5));
        best += worth(&truth.top(5));
    }
    println!("of the best five: ours {}, Algorithm 1 {}", ours / best, theirs / best);
    assert!(ours >= 0.97 * theirs, "{ours} with half, {theirs} with all, {best} at best");
}

#[test]
fn every_node_is_measured_before_any_is_preferred() {
    let mut random = seeded(42);
    let rates = rates(30, 0.5, &mut random);
    for design in [Design::Even, Design::Focused, Design::Thompson] {
        let mut schedule = Thrifty::designed(0.3, design);
        let first = run(&mut schedule, &rates, &ExcludedLegs::default(), 90, &mut random);
        let degrees = (0..30).map(|i| (first.out_degree(i), first.in_degree(i)));
        assert!(
            degrees.clone().all(|(out, into)| out.min(into) >= 2),
            "{:?}",
            degrees.collect::<Vec<_>>()
        );
        let whole = run(
            &mut Thrifty::designed(0.3, design),
            &rates,
            &ExcludedLegs::default(),
            999,
            &mut random,
        );
        assert_eq!(whole.measured(), 261, "0.3 of 870");
    }
}

#[test]
fn promising_relays_get_most_of_the_later_measurements() {
    let mut random = seeded(43);
    let rates = rates(40, 0.3, &mut random);
    let graph = run(&mut Thrifty::new(0.2), &rates, &ExcludedLegs::default(), 999, &mut random);
    let legs = |l: usize| graph.out_degree(l) + graph.in_degree(l);
    let ranking = completion::ranking(&graph, None);
    let order: Vec<usize> = ranking.scores().iter().map(|s| s.relay).collect();
    let mean =
        |some: &[usize]| some.iter().map(|l| legs(*l)).sum::<usize>() as f64 / some.len() as f64;
    assert!(
        mean(&order[..8]) > 1.25 * mean(&order[20..]),
        "{} {}",
        mean(&order[..8]),
        mean(&order[20..])
    );
}

#[test]
fn it_ends_whatever_is_excluded_and_asks_for_nothing_twice() {
    let mut random = seeded(44);
    let rates = rates(10, 0.5, &mut random);
    let excluded = ExcludedLegs { nodes: BTreeSet::from([2, 5]), pairs: BTreeSet::from([(0, 1)]) };
    let graph = run(&mut Thrifty::new(1.0), &rates, &excluded, 999, &mut random);
    assert_eq!(graph.measured(), 8 * 7 - 1);
    assert_eq!(asked(&mut Thrifty::new(1.0), &Graph::new(10), 200, &mut random).len(), 90);
    for n in 0..4 {
        let rates = crate::world::rates(n, 0.5, &mut random);
        let graph = run(&mut Thrifty::new(0.2), &rates, &ExcludedLegs::default(), 999, &mut random);
        assert_eq!(graph.measured(), n * n.saturating_sub(1));
    }
}
