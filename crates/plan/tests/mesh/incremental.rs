//! Scores that are updated as legs change equal those of the whole graph.

use super::meshes::{cell, cells, mesh, seeded};
use proptest::prelude::*;
use rand_core::Rng;
use thalweg_plan::{
    Graph,
    ranking::{Incremental, Ranking},
};
use thalweg_units::Rate;

proptest! {
    #[test]
    fn after_each_change_the_ranking_equals_that_of_the_whole_graph(
        (start, changes) in cells(8).prop_flat_map(|m| {
            let n = m.len();
            (Just(m), prop::collection::vec((0..n + 1, 0..n + 1, cell()), 0..40))
        }),
    ) {
        let mut kept = Incremental::new(Graph::from_matrix(&start));
        let mut graph = kept.graph().clone();
        for (i, j, rate) in changes {
            prop_assert_eq!(kept.set(i, j, rate), graph.set(i, j, rate));
            prop_assert_eq!(kept.graph(), &graph);
            // Equal to the last bit.
            prop_assert_eq!(kept.ranking(), Ranking::oblivious(&graph));
        }
        for s in kept.ranking().scores() {
            prop_assert_eq!(kept.score(s.relay), Some(*s));
        }
    }
}

#[test]
fn thousands_of_changes_leave_no_trace() {
    let mut random = seeded(11);
    let whole = mesh(60, &mut random);
    let mut kept = Incremental::new(Graph::new(60));
    for ((i, j), rate) in whole.legs() {
        let other = Rate::from_bps(random.next_u64() >> 20);
        kept.set(i, j, Some(other));
        kept.set(i, j, None);
        kept.set(i, j, Some(rate));
    }
    assert_eq!(kept.ranking(), Ranking::oblivious(&whole));
}
