//! Tests of what liars can do to the ranking.

use super::meshes::{cell, cells, mesh, seeded};
use proptest::prelude::*;
use thalweg_plan::{
    Graph,
    ranking::{ROBUST_MOST_GAIN, Ranking, robust_scores, touched},
};
use thalweg_units::Rate;

const MOST: f64 = ROBUST_MOST_GAIN;

fn score(ranking: &Ranking, relay: usize) -> f64 {
    ranking.scores().iter().find(|s| s.relay == relay).unwrap().score
}

/// No node alone vouches for a leg.
fn both(_: usize, _: usize) -> Option<usize> {
    None
}

/// Sets all legs of `liar` to its claims.
fn lie(g: &Graph, liar: usize, mut claim: impl FnMut() -> Option<Rate>) -> Graph {
    let mut g = g.clone();
    for other in 0..g.nodes() {
        g.set(liar, other, claim());
        g.set(other, liar, claim());
    }
    g
}

fn claims() -> impl Strategy<Value = Vec<Option<Rate>>> {
    prop::collection::vec(cell(), 40)
}

proptest! {
    #[test]
    fn a_changed_leg_moves_only_the_relays_that_it_touches(
        m in cells(9), at in (0_usize..9, 0_usize..9), rate in cell(),
    ) {
        let before = Graph::from_matrix(&m);
        let mut after = before.clone();
        after.set(at.0, at.1, rate);
        let score = |g: &Graph, l: usize| robust_scores(g, &[l], MOST, both)[0];
        let moved: Vec<usize> = touched(&before, at).chain(touched(&after, at)).collect();
        for l in (0..m.len()).filter(|l| !moved.contains(l)) {
            prop_assert_eq!(score(&before, l), score(&after, l));
        }
        let all = (0..m.len()).map(|l| score(&after, l)).collect();
        prop_assert_eq!(Ranking::from_scores(all), Ranking::robust(&after, MOST, both));
    }

    #[test]
    fn a_relay_s_unconfirmed_reports_do_not_move_its_score(
        m in cells(9), lies in claims(),
    ) {
        let honest = Graph::from_matrix(&m);
        for liar in 0..m.len() {
            // For every second other node, only the relay vouches.
            let alone = |i: usize, j: usize| {
                let other = if i == liar { j } else { i };
                ((i == liar || j == liar) && other % 2 == 0).then_some(liar)
            };
            let mut lied = honest.clone();
            for (other, rate) in (0..m.len()).step_by(2).zip(lies.iter()) {
                lied.set(liar, other, *rate);
                lied.set(other, liar, rate.map(|r| Rate::from_bps(r.as_bps() / 2)));
            }
            let before = score(&Ranking::robust(&honest, MOST, alone), liar);
            prop_assert_eq!(score(&Ranking::robust(&lied, MOST, alone), liar), before);
        }
    }

    /// Whatever a node says of all its legs, with the relay as its accomplice or without: the relay gets no further
    /// than with only those pairs that the node is no end of.
    #[test]
    fn no_other_node_lifts_a_relay(m in cells(9), lies in claims()) {
        let honest = Graph::from_matrix(&m);
        prop_assume!(m.len() >= 4);
        for liar in 0..m.len() {
            let mut claim = lies.iter().copied();
            let lied = Ranking::robust(&lie(&honest, liar, || claim.next().flatten()), MOST, both);
            let bound = without(&honest, liar);
            for relay in (0..m.len()).filter(|l| *l != liar) {
                prop_assert!(score(&lied, relay) <= bound[relay] + 1e-9);
            }
        }
    }

    /// In a fully measured mesh, false rates move others' scores by at most 2/(n−2) of the maximum.
    #[test]
    fn one_node_moves_others_by_its_share_at_most(
        seed in any::<u64>(), n in 5_usize..12, liar in 0_usize..5, lies in claims(),
    ) {
        let honest = mesh(n, &mut seeded(seed));
        let mut claim = lies.iter().map(|r| r.or(Some(Rate::ZERO)));
        let lied = Ranking::robust(&lie(&honest, liar, || claim.next().flatten()), MOST, both);
        let before = Ranking::robust(&honest, MOST, both);
        for relay in (0..n).filter(|l| *l != liar) {
            let moved = (score(&lied, relay) - score(&before, relay)).abs();
            prop_assert!(moved <= MOST * 2.0 / (n - 2) as f64 + 1e-9, "relay {} by {}", relay, moved);
        }
    }

    #[test]
    fn the_robust_score_is_no_more_than_the_plain_one_and_bounded(m in cells(9)) {
        let g = Graph::from_matrix(&m);
        let (robust, plain) = (Ranking::robust(&g, MOST, both), Ranking::oblivious(&g));
        for relay in 0..m.len() {
            let s = score(&robust, relay);
            prop_assert!((0.0..=MOST).contains(&s) && s <= score(&plain, relay) + 1e-9);
        }
    }
}

/// Each relay's mean over the pairs that the node is no end of, straight from the definition.
fn without(honest: &Graph, node: usize) -> Vec<f64> {
    let n = honest.nodes();
    let of = |relay| {
        let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let theirs = pairs.filter(|(i, j)| i != j && ![i, j].contains(&&node));
        let gains: Vec<f64> = theirs
            .filter(|(i, j)| ![i, j].contains(&&relay))
            .filter_map(|(i, j)| Some(honest.detour_gain(i, relay, j)?.min(MOST)))
            .collect();
        gains.iter().sum::<f64>() / gains.len().max(1) as f64
    };
    (0..n).map(of).collect()
}

#[test]
fn a_relay_that_claims_wonders_does_not_lead() {
    let honest = mesh(20, &mut seeded(23));
    let last = Ranking::robust(&honest, MOST, both).scores().last().unwrap().relay;
    let lied = lie(&honest, last, || Some(Rate::from_mbps(100_000.0)));
    let alone = |i, j| (i == last || j == last).then_some(last);
    assert_eq!(Ranking::oblivious(&lied).top(1), [last], "the plain ranking believes it");
    let robust = Ranking::robust(&lied, MOST, alone);
    assert_eq!(score(&robust, last), 0.0);
    // One accomplice that confirms its two legs gains nothing for it.
    let friend = (last + 1) % 20;
    let confirmed = |i, j| alone(i, j).filter(|_| i != friend && j != friend);
    assert_eq!(score(&Ranking::robust(&lied, MOST, confirmed), last), 0.0);
}

#[test]
fn honest_meshes_keep_their_order_by_and_large() {
    let honest = mesh(40, &mut seeded(29));
    let plain = Ranking::oblivious(&honest).top(10);
    let robust = Ranking::robust(&honest, MOST, both).top(10);
    let kept = plain.iter().filter(|l| robust.contains(l)).count();
    assert!(kept >= 7, "{plain:?} became {robust:?}");
}

#[test]
fn with_three_nodes_no_node_is_left_out() {
    let g = mesh(3, &mut seeded(31));
    let robust = Ranking::robust(&g, 1e9, both);
    assert!(robust.scores().iter().all(|s| s.evidence == 2));
}
