//! Tests of the graph: lookups, detours, and graphs from tables of estimates.

use super::meshes::{cell, cells, matrix};
use proptest::prelude::*;
use std::time::Duration;
use thalweg_measure::{Bound, Estimate, Interface, Method, Metric, NodeIndex, Subject, Table};
use thalweg_plan::{
    Graph,
    graph::{Detour, MAX_AGE},
};
use thalweg_units::{Rate, Time};

const NOW: Time = Time::from_nanos(5_000_000_000);

fn estimate(from: u32, to: u32, mbps: f64, age_s: u64, bound: Bound) -> Estimate {
    Estimate {
        subject: Subject::leg(from, to),
        metric: Metric::Throughput,
        value: mbps * 1e6,
        spread: None,
        method: Method::Transfer,
        age: Duration::from_secs(age_s),
        reporter: NodeIndex(from),
        bound,
    }
}

fn graph(estimates: &[Estimate]) -> Graph {
    let mut table = Table::new(3, 100);
    for e in estimates {
        table.insert(e.clone(), NOW).unwrap();
    }
    Graph::from_table(&table, NOW)
}

#[test]
fn equation_1_agrees_with_a_calculation_by_hand() {
    // 0 → 1 direct: 4. By 2: min(10, 6) = 6, gain (6 − 4)/4 = 0.5.
    // By 3: min(20, 3) = 3 < 4, gain 0. By 4: min(9, 9) = 9, gain 1.25.
    let g = matrix(&[
        &[0, 4, 10, 20, 9],
        &[5, 0, 1, 1, 1],
        &[7, 6, 0, 1, 1],
        &[1, 3, 1, 0, 1],
        &[1, 9, 1, 1, 0],
    ]);
    assert_eq!(g.detour_gain(0, 2, 1), Some(0.5));
    assert_eq!(g.detour_gain(0, 3, 1), Some(0.0));
    assert_eq!(g.detour_gain(0, 4, 1), Some(1.25));
    assert_eq!(g.best_detour(0, 1), Some(Detour { via: 4, gain: 1.25 }));
    // The other way: 1 → 0 direct is 5; by 2: min(1, 7) = 1. Directions differ.
    assert_eq!(g.best_detour(1, 0), None);
    assert_eq!(g.detour_rate(0, 3, 1), Some(Rate::from_mbps(3.0)));
}

#[test]
fn the_ends_are_no_detours_and_unmeasured_legs_give_none() {
    let g = matrix(&[&[0, 4, 10], &[4, 0, 4], &[4, 0, 0]]);
    assert_eq!(g.detour_gain(0, 2, 0), Some(0.0));
    assert_eq!(g.detour_gain(0, 0, 1), Some(0.0));
    assert_eq!(g.detour_gain(0, 1, 1), Some(0.0));
    assert_eq!(g.detour_gain(0, 2, 1), None, "2 → 1 is unmeasured");
    assert_eq!(g.best_detour(0, 1), None);
    assert_eq!((g.rate(0, 9), g.detour_gain(0, 9, 1)), (None, None));
}

#[test]
fn any_detour_beats_a_dead_direct_path() {
    let mut rows = vec![vec![Some(Rate::from_mbps(2.0)); 3]; 3];
    rows[0][1] = Some(Rate::ZERO);
    let g = Graph::from_matrix(&rows);
    assert_eq!(g.best_detour(0, 1), Some(Detour { via: 2, gain: f64::INFINITY }));
    rows[2][1] = Some(Rate::ZERO);
    assert_eq!(Graph::from_matrix(&rows).detour_gain(0, 2, 1), Some(0.0));
}

#[test]
fn around_a_dead_direct_path_the_fastest_detour_wins() {
    let mut rows = vec![vec![Some(Rate::from_mbps(2.0)); 5]; 5];
    rows[0][1] = Some(Rate::ZERO);
    rows[3][1] = Some(Rate::from_mbps(50.0));
    // By 2: min(2, 2). By 3: min(9, 50) = 9. By 4: min(20, 2) = 2.
    rows[0][3] = Some(Rate::from_mbps(9.0));
    rows[0][4] = Some(Rate::from_mbps(20.0));
    let best = Graph::from_matrix(&rows).best_detour(0, 1);
    assert_eq!(best, Some(Detour { via: 3, gain: f64::INFINITY }));
}

#[test]
fn among_equals_the_first_detour_wins() {
    let g = matrix(&[&[0, 1, 5, 5], &[1, 0, 1, 1], &[1, 5, 0, 1], &[1, 5, 1, 0]]);
    assert_eq!(g.best_detour(0, 1), Some(Detour { via: 2, gain: 4.0 }));
}

#[test]
fn a_lower_bound_alone_is_no_measurement_and_may_raise_an_older_one() {
    let rate = |g: Graph| g.rate(0, 1).map(|r| r.as_mbps());
    assert_eq!(rate(graph(&[estimate(0, 1, 1.0, 0, Bound::AtLeast)])), None);
    let exact = estimate(0, 1, 10.0, 60, Bound::Exact);
    assert_eq!(rate(graph(&[exact.clone(), estimate(0, 1, 1.0, 0, Bound::AtLeast)])), Some(10.0));
    assert_eq!(rate(graph(&[exact.clone(), estimate(0, 1, 15.0, 0, Bound::AtLeast)])), Some(15.0));
    // A rate reached before the exact measurement says nothing about now.
    assert_eq!(rate(graph(&[exact, estimate(0, 1, 15.0, 90, Bound::AtLeast)])), Some(10.0));
}

#[test]
fn only_fresh_throughput_of_legs_counts_and_the_best_interface() {
    let old = MAX_AGE.as_secs() + 1;
    assert_eq!(graph(&[estimate(0, 1, 5.0, old, Bound::Exact)]).rate(0, 1), None);
    let rtt = Estimate { metric: Metric::RoundTrip, ..estimate(0, 1, 5.0, 0, Bound::Exact) };
    assert_eq!(graph(&[rtt]).rate(0, 1), None);
    let second = Interface { node: NodeIndex(0), interface: 1 };
    let fast = Estimate {
        subject: Subject::Leg { from: second, to: NodeIndex(1) },
        ..estimate(0, 1, 8.0, 0, Bound::Exact)
    };
    let g = graph(&[estimate(0, 1, 5.0, 0, Bound::Exact), fast]);
    assert_eq!((g.nodes(), g.rate(0, 1)), (3, Some(Rate::from_mbps(8.0))));
    assert_eq!(g.rate(1, 0), None);
}

#[test]
fn exact_values_and_lower_bounds_of_many_legs_are_combined_by_leg() {
    // The table yields them by leg, in whatever order they came.
    let ten = |from, to, bound, age| estimate(from, to, f64::from(10 * from + to), age, bound);
    let g = graph(&[
        ten(2, 1, Bound::Exact, 5),
        ten(0, 1, Bound::AtLeast, 1),
        ten(0, 2, Bound::Exact, 9),
        ten(2, 1, Bound::AtLeast, 1),
        ten(1, 0, Bound::Exact, 3),
    ]);
    let legs: Vec<_> = g.legs().map(|(leg, rate)| (leg, rate.as_mbps())).collect();
    assert_eq!(legs, [((0, 2), 2.0), ((1, 0), 10.0), ((2, 1), 21.0)]);
}

proptest! {
    /// Rows with cells for all nodes, short rows, and rows that change from one to the other agree with a plain matrix.
    #[test]
    fn a_graph_equals_the_matrix_that_was_set(
        (mut plain, changes) in cells(24).prop_flat_map(|m| {
            let n = m.len();
            let change = (0..n, 0..n, cell());
            (Just(m), prop::collection::vec(change, 0..200))
        }),
    ) {
        let mut g = Graph::from_matrix(&plain);
        let n = plain.len();
        (0..n).for_each(|i| plain[i][i] = None);
        for (i, j, rate) in changes {
            prop_assert_eq!(g.set(i, j, rate), plain[i][j]);
            plain[i][j] = rate.filter(|_| i != j);
        }
        prop_assert_eq!(&g, &Graph::from_matrix(&plain));
        let mut legs = vec![];
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            prop_assert_eq!(g.rate(i, j), plain[i][j]);
            legs.extend(plain[i][j].map(|rate| ((i, j), rate)));
            let relays = (0..n).filter_map(|l| Some((l, plain[i][l]?.min(plain[l][j]?))));
            let relays: Vec<_> = if i == j { vec![] } else { relays.collect() };
            if i != j {
                prop_assert_eq!(g.detours(i, j).collect::<Vec<_>>(), relays);
            }
        }
        prop_assert_eq!(g.measured(), legs.len());
        prop_assert_eq!(g.legs().collect::<Vec<_>>(), legs);
        for (i, row) in plain.iter().enumerate() {
            let outs: Vec<_> = (0..n).filter_map(|j| Some((j, row[j]?))).collect();
            let ins: Vec<_> = (0..n).filter_map(|j| Some((j, plain[j][i]?))).collect();
            prop_assert_eq!((g.out_degree(i), g.in_degree(i)), (outs.len(), ins.len()));
            prop_assert_eq!(g.outs(i).collect::<Vec<_>>(), outs);
            prop_assert_eq!(g.ins(i).collect::<Vec<_>>(), ins);
        }
    }

    #[test]
    fn the_best_detour_is_the_best_of_all(m in cells(9)) {
        let g = Graph::from_matrix(&m);
        for (i, j) in (0..m.len()).flat_map(|i| (0..m.len()).map(move |j| (i, j))) {
            let best = g.best_detour(i, j);
            let gains = (0..m.len()).filter_map(|l| g.detour_gain(i, l, j));
            let most = gains.fold(0.0, f64::max);
            prop_assert_eq!(best.map_or(0.0, |d| d.gain), most);
            prop_assert!(best.is_none_or(|d| g.detour_gain(i, d.via, j) == Some(d.gain)));
        }
    }
}

#[test]
fn unknown_nodes_and_equal_ends_are_ignored() {
    let mut g = Graph::new(2);
    assert_eq!(g.set(0, 0, Some(Rate::ZERO)), None);
    assert_eq!(g.set(0, 2, Some(Rate::ZERO)), None);
    assert_eq!(g.set(2, 0, Some(Rate::ZERO)), None);
    assert_eq!((g.measured(), g.outs(7).count(), g.ins(7).count()), (0, 0, 0));
    assert_eq!((g.detours(0, 7).count(), g.best_detour(7, 0)), (0, None));
}
