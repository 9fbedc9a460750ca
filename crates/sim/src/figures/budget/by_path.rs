//! The random approach of UKAIRO §4.3 by another reading: end-points are drawn through paths.

use crate::random;
use rand_core::Rng;
use thalweg_plan::schedule::{Pair, Schedule, ScheduleInput};

/// The number of draws before any path that is left is taken.
const DRAWS: usize = 2000;

/// "We uniformly choose a node i that is the end-point of a path in P": the path is drawn uniformly, then one of its
/// ends, so that nodes with many measured paths get more. [`Random`](thalweg_plan::schedule::Random) draws the node
/// uniformly from all end-points: after some hundred paths every node is one, and that is only a uniform draw of paths.
///
/// Only for worlds in which a requested path is measured at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByPath;

impl Schedule for ByPath {
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        let nodes = known.graph.nodes();
        let measured: Vec<Pair> = known.graph.legs().map(|(pair, _)| pair).collect();
        if measured.is_empty() {
            let first = random::index(random, nodes);
            return pick_pair(remaining_pairs(known, first), random).into_iter().collect();
        }
        let drawn = (0..DRAWS).find_map(|_| {
            let (from, to) = measured[random::index(random, measured.len())];
            pick_pair(
                remaining_pairs(known, if random.next_u64() >> 63 == 0 { from } else { to }),
                random,
            )
        });
        let any = || (0..nodes).find_map(|node| remaining_pairs(known, node).first().copied());
        drawn.or_else(any).into_iter().collect()
    }
}

/// The paths from a node that are not measured and may be.
fn remaining_pairs(known: &ScheduleInput<'_>, from: usize) -> Vec<Pair> {
    let open = |&(i, j): &Pair| {
        i != j && known.graph.rate(i, j).is_none() && !known.excluded.contains((i, j))
    };
    (0..known.graph.nodes()).map(|to| (from, to)).filter(open).collect()
}

/// A random one of the pairs.
fn pick_pair(pairs: Vec<Pair>, random: &mut dyn Rng) -> Option<Pair> {
    pairs.get(random::index(random, pairs.len().max(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::{Graph, schedule::ExcludedLegs};
    use thalweg_units::Rate;

    #[test]
    fn it_measures_all_paths_and_some_nodes_more_than_others() {
        let (excluded, mut graph) = (ExcludedLegs::default(), Graph::new(30));
        let mut random = random::stream(1, "by path", 0);
        let mut uneven = 0;
        while graph.measured() < 30 * 29 {
            let now = ScheduleInput {
                graph: &graph,
                excluded: &excluded,
                age_s: None,
                rtt_s: None,
                ranges: None,
            };
            let [(i, j)] = ByPath.next(&now, &mut random)[..] else { panic!("one path a step") };
            assert_eq!(graph.set(i, j, Some(Rate::from_mbps(1.0))), None, "measured twice");
            if graph.measured() == 200 {
                let degrees = (0..30).map(|node| graph.out_degree(node));
                uneven = degrees.clone().max().unwrap() - degrees.min().unwrap();
            }
        }
        // 6.7 each on average; uniform draws would be within about 10.
        assert!(uneven >= 12, "{uneven}");
        let now = ScheduleInput {
            graph: &graph,
            excluded: &excluded,
            age_s: None,
            rtt_s: None,
            ranges: None,
        };
        assert_eq!(ByPath.next(&now, &mut random), []);
    }
}
