//! Tests of liars in the completed ranking.

use crate::world::{rates, seeded, unit};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    completion::{self, MOST_GAIN},
    ranking::Ranking,
};
use thalweg_units::Rate;

const NODES: usize = 40;
const SEEDS: std::ops::Range<u64> = 50..70;

fn whole(rates: &[Vec<Rate>]) -> Graph {
    let cells = |row: &Vec<Rate>| row.iter().copied().map(Some).collect();
    Graph::from_matrix(&rates.iter().map(cells).collect::<Vec<_>>())
}

/// Three legs in ten, drawn at random.
fn part(rates: &[Vec<Rate>], random: &mut Xoshiro256PlusPlus) -> Graph {
    let mut graph = Graph::new(rates.len());
    for ((i, j), rate) in whole(rates).legs() {
        if unit(random) < 0.3 {
            graph.set(i, j, Some(rate));
        }
    }
    graph
}

/// The mean of the true scores of the first five.
fn worth(ranking: &Ranking, truth: &Ranking) -> f64 {
    let score = |l: usize| truth.scores().iter().find(|s| s.relay == l).map_or(0.0, |s| s.score);
    ranking.top(5).into_iter().map(score).sum::<f64>() / 5.0
}

/// The liars report high rates of each other's legs, and no legs to others.
fn in_league(graph: &Graph, liars: &[usize]) -> Graph {
    let mut lied = Graph::new(graph.nodes());
    for ((i, j), rate) in graph.legs().filter(|((i, _), _)| !liars.contains(i)) {
        lied.set(i, j, Some(rate));
    }
    for (a, b) in liars.iter().flat_map(|a| liars.iter().map(move |b| (*a, *b))) {
        lied.set(a, b, Some(Rate::from_mbps(90_000.0)));
    }
    lied
}

#[test]
fn the_bounds_cost_honest_meshes_little() {
    let (mut plain, mut bounded) = (0.0, 0.0);
    for seed in SEEDS {
        let mut random = seeded(seed);
        let rates = rates(NODES, 0.4, &mut random);
        let (truth, graph) = (Ranking::oblivious(&whole(&rates)), part(&rates, &mut random));
        plain += worth(&completion::ranking(&graph, None), &truth);
        bounded += worth(&completion::bounded(&graph, None), &truth);
    }
    assert!(bounded >= 0.9 * plain, "{bounded} against {plain}");
}

#[test]
fn a_league_of_bad_relays_is_seldom_among_the_best_of_the_bounded_ranking() {
    let mut taken = (0, 0);
    for seed in SEEDS {
        let mut random = seeded(seed);
        let rates = rates(NODES, 0.4, &mut random);
        let truth = Ranking::oblivious(&whole(&rates));
        let liars: Vec<usize> = truth.scores().iter().rev().take(3).map(|s| s.relay).collect();
        let lied = in_league(&part(&rates, &mut random), &liars);
        let liars: BTreeSet<usize> = liars.into_iter().collect();
        let among =
            |ranking: &Ranking| ranking.top(5).into_iter().filter(|l| liars.contains(l)).count();
        let plain = among(&completion::ranking(&lied, None));
        let bounded = among(&completion::bounded(&lied, None));
        taken = (taken.0 + plain, taken.1 + bounded);
    }
    // The league's measured legs are believed, so it is not always left out.
    assert!(taken.1 * 5 <= taken.0, "{} places, in the plain ranking {}", taken.1, taken.0);
    assert!(taken.0 > 0, "the league had no effect on the plain ranking: this shows nothing");
}

#[test]
fn one_accomplice_does_not_lift_a_relay() {
    for seed in SEEDS {
        let mut random = seeded(seed);
        let rates = rates(NODES, 0.4, &mut random);
        let honest = part(&rates, &mut random);
        let worst = Ranking::oblivious(&whole(&rates)).scores()[NODES - 1].relay;
        let mut lied = honest.clone();
        let friend = (worst + 1) % NODES;
        lied.set(worst, friend, Some(Rate::from_mbps(90_000.0)));
        lied.set(friend, worst, Some(Rate::from_mbps(90_000.0)));
        let score = |graph: &Graph| {
            let ranking = completion::bounded(graph, None);
            ranking.scores().iter().find(|s| s.relay == worst).map_or(0.0, |s| s.score)
        };
        // Measured legs are believed: of its pairs, about two in 2·(n−1) have one.
        let most = 2.0 * MOST_GAIN / (NODES as f64 - 2.0);
        let (before, after) = (score(&honest), score(&lied));
        assert!(after <= before + most, "{before} became {after}, by {most} at most");
    }
}
