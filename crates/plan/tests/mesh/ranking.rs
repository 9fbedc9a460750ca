//! Tests of Eq. (3) and (4), of draws from the better half, and of ties.

use super::meshes::{cells, matrix, mesh, seeded};
use proptest::prelude::*;
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    ranking::{End, MOST_GAIN, Ranking, Score},
};
use thalweg_units::Rate;

/// The mean gain by `l` over the given pairs, straight from the definition.
fn plain(g: &Graph, l: usize, pair: impl Fn(usize, usize) -> bool) -> (f64, u64) {
    let n = g.nodes();
    let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    let gains: Vec<f64> = pairs
        .filter(|&(i, j)| i != j && i != l && j != l && pair(i, j))
        .filter_map(|(i, j)| Some(g.detour_gain(i, l, j)?.min(MOST_GAIN)))
        .collect();
    let mean = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
    (mean, gains.len() as u64)
}

fn assert_is(ranking: &Ranking, g: &Graph, pair: impl Fn(usize, usize) -> bool) {
    for s in ranking.scores() {
        let (mean, evidence) = plain(g, s.relay, &pair);
        assert!((s.score - mean).abs() < 1e-9, "{s:?}, by hand {mean}");
        assert_eq!(s.evidence, evidence, "{s:?}");
    }
    let order = |w: &[Score]| (w[0].score, w[1].relay) >= (w[1].score, w[0].relay);
    assert!(ranking.scores().windows(2).all(order), "{ranking:?}");
}

proptest! {
    #[test]
    fn equations_3_and_4_are_means_over_measured_triples(m in cells(10)) {
        let g = Graph::from_matrix(&m);
        let ranking = Ranking::oblivious(&g);
        prop_assert_eq!(ranking.scores().len(), m.len());
        assert_is(&ranking, &g, |_, _| true);
        for client in 0..m.len() {
            let sends = Ranking::specific(&g, client);
            let receives = Ranking::specific_as(&g, client, End::Sink);
            prop_assert_eq!(sends.scores().len(), m.len() - 1);
            assert_is(&sends, &g, |i, _| i == client);
            assert_is(&receives, &g, |_, j| j == client);
        }
    }

    /// A few nodes know nearly all legs, and all others only those to the few: long rows meet short ones.
    #[test]
    fn hubs_and_leaves_are_ranked_by_the_definition(seed in any::<u64>(), hubs in 1_usize..4, leaves in 20_usize..60) {
        let mut random = seeded(seed);
        let whole = mesh(hubs + leaves, &mut random);
        let mut g = Graph::new(hubs + leaves);
        for ((i, j), rate) in whole.legs().filter(|((i, j), _)| *i < hubs || *j < hubs) {
            g.set(i, j, Some(rate));
        }
        g.set(hubs, hubs + 1, Some(Rate::from_mbps(1.0)));
        assert_is(&Ranking::oblivious(&g), &g, |_, _| true);
    }

    #[test]
    fn the_better_half_is_drawn_from_without_repeats(
        seed in any::<u64>(), n in 1_usize..40, m in 0_usize..25,
    ) {
        let mut random = seeded(seed);
        let ranking = Ranking::oblivious(&mesh(n, &mut random));
        let half: BTreeSet<usize> = ranking.top(n.div_ceil(2)).into_iter().collect();
        let drawn = ranking.balanced(m, &mut random);
        prop_assert_eq!(drawn.len(), m.min(half.len()));
        prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
        prop_assert!(drawn.iter().all(|l| half.contains(l)));
    }
}

#[test]
fn a_small_mesh_agrees_with_a_calculation_by_hand() {
    // By 2, over (0,1) and (1,0): min(10, 6) against 4 gains 0.5, min(9, 12) against 3
    // gains 2: 1.25 on average. By 0, over (1,2): min(3, 10) against 9, nothing; over
    // (2,1): min(12, 4) against 6, nothing. By 1 likewise: 4, 9 → 4 of 10; 6, 3 → 3 of 12.
    let g = matrix(&[&[0, 4, 10], &[3, 0, 9], &[12, 6, 0]]);
    let score = |relay, score| Score { relay, score, evidence: 2 };
    assert_eq!(Ranking::oblivious(&g).scores(), [score(2, 1.25), score(0, 0.0), score(1, 0.0)]);
    let only = |relay, score| Score { relay, score, evidence: 1 };
    assert_eq!(Ranking::specific(&g, 0).scores(), [only(2, 0.5), only(1, 0.0)]);
    assert_eq!(Ranking::specific_as(&g, 0, End::Sink).scores(), [only(2, 2.0), only(1, 0.0)]);
}

#[test]
fn a_dead_direct_path_counts_as_the_most_and_not_as_infinite() {
    let mut g = matrix(&[&[0, 4, 10], &[3, 0, 9], &[12, 6, 0]]);
    g.set(0, 1, Some(Rate::ZERO));
    assert_eq!(Ranking::oblivious(&g).scores()[0].score, f64::midpoint(MOST_GAIN, 2.0));
    assert_eq!(Ranking::specific(&g, 0).scores()[0].score, MOST_GAIN);
}

#[test]
fn relays_of_the_better_half_are_drawn_equally_often() {
    let mut random = seeded(7);
    let ranking = Ranking::oblivious(&mesh(21, &mut random));
    let mut drawn = [0_u32; 21];
    (0..11_000).for_each(|_| ranking.balanced(5, &mut random).iter().for_each(|l| drawn[*l] += 1));
    for l in ranking.top(11) {
        // 5,000 expected of each, standard deviation 52.
        assert!(drawn[l].abs_diff(5_000) < 300, "relay {l} was drawn {} times", drawn[l]);
    }
}

#[test]
fn ties_fall_to_the_lowest_index_or_at_random() {
    let mut random = seeded(3);
    let ranking = Ranking::oblivious(&Graph::new(12));
    assert_eq!(ranking.top(3), [0, 1, 2]);
    let drawn: BTreeSet<usize> =
        (0..100).flat_map(|_| ranking.top_of_ties(3, &mut random)).collect();
    assert_eq!(drawn.len(), 12, "some relay of equals was never drawn");
    let clear = Ranking::oblivious(&mesh(12, &mut random));
    let gaining = clear.scores().iter().filter(|s| s.score > 0.0).count();
    assert!(gaining >= 3, "{clear:?}");
    assert_eq!(clear.top_of_ties(3, &mut random), clear.top(3));
    assert_eq!(clear.top_of_ties(99, &mut random).len(), 12);
}

#[test]
fn a_discount_ranks_anew() {
    let ranking = Ranking::oblivious(&mesh(12, &mut seeded(5)));
    let first = ranking.scores()[0];
    let less = ranking.clone().discounted(|l| if l == first.relay { 0.0 } else { 1.0 });
    assert_eq!(less.top(2), ranking.scores()[1..3].iter().map(|s| s.relay).collect::<Vec<_>>());
    assert_eq!(ranking.clone().discounted(|_| 7.0), ranking, "weights are 1 at most");
    assert!(ranking.discounted(|_| f64::NAN).scores().iter().all(|s| s.score == 0.0));
}
