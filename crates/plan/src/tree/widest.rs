//! The widest-path tree (ROMA §VI-C).

use super::{Overlay, Tree};
use rand_core::Rng;
use std::{cmp::Reverse, collections::BinaryHeap};
use thalweg_units::Rate;

/// The widest-path tree, and the width of each path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WidestTree {
    /// The tree, without relays that are on no receiver's path.
    pub tree: Tree,
    /// By node, the rate of its slowest hop, Eq. (2); zero without a path, the largest rate at the source. Pruned nodes
    /// have one as well.
    pub width: Vec<Rate>,
}

/// The rank of a path: wide, then by lot, then short, then with a wide last leg, then from a low index, then to a low
/// index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PathRank {
    width: u64,
    /// The same for all paths if ties are not broken by lot.
    lot: u64,
    hops: Reverse<usize>,
    leg: u64,
    from: Reverse<usize>,
    to: Reverse<usize>,
}

/// See [`Overlay::widest`].
pub(super) fn widest(overlay: &Overlay<'_>) -> WidestTree {
    widest_with(overlay, || 0)
}

/// See [`Overlay::widest_by_lot`].
pub(super) fn widest_by_lot(overlay: &Overlay<'_>, random: &mut (impl Rng + ?Sized)) -> WidestTree {
    widest_with(overlay, || random.next_u64())
}

fn widest_with(overlay: &Overlay<'_>, mut lot: impl FnMut() -> u64) -> WidestTree {
    let mut tree = Tree::new(overlay.nodes(), overlay.source);
    let mut width = vec![0; overlay.nodes()];
    let mut ways = BinaryHeap::new();
    let start = (overlay.source, u64::MAX, 0);
    let mut reached = Some(start).filter(|_| overlay.source < overlay.nodes());
    while let Some((node, wide, hops)) = reached {
        width[node] = wide;
        for (to, leg) in overlay.outs(node).filter(|(to, _)| width[*to] == 0) {
            let leg = leg as u64;
            let hops = Reverse(hops + 1);
            let (from, to) = (Reverse(node), Reverse(to));
            ways.push(PathRank { width: wide.min(leg), lot: lot(), hops, leg, from, to });
        }
        reached = None;
        while let Some(way) = ways.pop() {
            if width[way.to.0] == 0 && way.width > 0 {
                tree.hang(way.to.0, Some(way.from.0));
                reached = Some((way.to.0, way.width, way.hops.0));
                break;
            }
        }
    }
    tree.prune(|node| overlay.receives(node));
    WidestTree { tree, width: width.into_iter().map(Rate::from_bps).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::{Host, overlay::Role, table::table_1};
    use super::*;
    use crate::Graph;
    use proptest::prelude::*;
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The best of all paths without cycles from the source: its width and, for that, its fewest hops.
    fn best(
        overlay: &Overlay<'_>,
        at: usize,
        seen: u32,
        wide: u64,
        hops: usize,
        to: usize,
    ) -> (u64, usize) {
        if at == to {
            return (wide, usize::MAX - hops);
        }
        let next = overlay.outs(at).filter(|(next, _)| seen >> next & 1 == 0);
        let ways = next.map(|(next, leg)| {
            best(overlay, next, seen | 1 << next, wide.min(leg as u64), hops + 1, to)
        });
        ways.max().unwrap_or((0, 0))
    }

    fn graph(nodes: usize, most: u64) -> impl Strategy<Value = Graph> {
        let leg =
            prop_oneof![1 => Just(None), 5 => (0..most).prop_map(|x| Some(Rate::from_bps(x)))];
        let row = prop::collection::vec(leg, nodes);
        prop::collection::vec(row, nodes).prop_map(|rows| Graph::from_matrix(&rows))
    }

    fn hosts(nodes: usize) -> impl Strategy<Value = Vec<Host>> {
        let role =
            prop_oneof![4 => Just(Role::Receiver), 2 => Just(Role::Relay), 1 => Just(Role::Absent)];
        let host = (role, prop::bool::weighted(0.8), prop::option::of(1_u64..30));
        let host = host.prop_map(|(role, forwards, egress)| Host {
            role,
            forwards,
            ..Host::RECEIVER.with_access(egress.map(Rate::from_bps), None)
        });
        prop::collection::vec(host, nodes)
    }

    proptest! {
        #[test]
        fn every_receiver_has_the_widest_way(
            graph in graph(6, 20), hosts in hosts(6), source in 0_usize..6, lot in prop::option::of(any::<u64>()),
        ) {
            let overlay = Overlay { graph: &graph, source, hosts: &hosts };
            let WidestTree { tree, width } = match lot {
                Some(seed) => overlay.widest_by_lot(&mut Xoshiro256PlusPlus::seed_from_u64(seed)),
                None => overlay.widest(),
            };
            for node in (0..6).filter(|node| *node != source) {
                let (wide, _) = best(&overlay, source, 1 << source, u64::MAX, 0, node);
                prop_assert_eq!(width[node].as_bps(), wide);
                prop_assert!(tree.has(node) || wide == 0 || !overlay.receives(node));
                let Some(parent) = tree.parent(node) else { continue };
                let slowest = width[parent].as_bps().min(overlay.leg(parent, node) as u64);
                prop_assert_eq!(slowest, wide, "the tree has the width");
            }
        }

        /// With few different rates there are many ties.
        #[test]
        fn no_other_parent_is_as_wide_and_nearer(graph in graph(6, 4), hosts in hosts(6)) {
            let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
            let WidestTree { tree, width } = overlay.widest();
            for node in 1..6 {
                let Some(depth) = tree.depth(node) else { continue };
                for (from, leg) in overlay.ins(node).filter(|(from, _)| tree.has(*from)) {
                    let as_wide = width[from].as_bps().min(leg as u64) == width[node].as_bps();
                    prop_assert!(!as_wide || tree.depth(from).unwrap() + 1 >= depth);
                }
            }
        }
    }

    /// All legs tie: by fewest hops this is a star, by lot one of many trees, the same for the same seed.
    #[test]
    fn ties_by_lot_do_not_hang_all_on_the_source() {
        let graph = Graph::from_matrix(&vec![vec![Some(Rate::from_mbps(100.0)); 40]; 40]);
        let hosts = [Host::RECEIVER; 40];
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let star = overlay.widest();
        assert!((1..40).all(|node| star.tree.parent(node) == Some(0)));
        let by_lot = |seed| overlay.widest_by_lot(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let (one, other) = (by_lot(1), by_lot(2));
        assert_eq!((&one, &one.width), (&by_lot(1), &star.width));
        assert_ne!(one.tree, other.tree);
        for found in [one, other] {
            let below = (1..40).filter(|node| found.tree.parent(*node) == Some(0)).count();
            assert!(below < 20, "{below} hang on the source");
        }
    }

    #[test]
    fn ties_go_to_fewer_hops_then_the_wider_leg_then_the_lower_index() {
        let rate = |mbps: u32| Some(Rate::from_mbps(mbps.into()));
        let mut graph = Graph::new(5);
        // 3 is reached at 5 over 1 or 2 (last legs 9, 10) or over both; 4 over 1 or 2 alike.
        let legs = [(0, 1, 5), (0, 2, 5), (1, 3, 9), (2, 3, 10), (1, 2, 20), (1, 4, 7), (2, 4, 7)];
        for (i, j, mbps) in legs {
            graph.set(i, j, rate(mbps));
        }
        let hosts = [Host::RECEIVER; 5];
        let tree = Overlay { graph: &graph, source: 0, hosts: &hosts }.widest().tree;
        assert_eq!([1, 2, 3, 4].map(|node| tree.parent(node)), [0, 0, 2, 1].map(Some));
    }

    /// Table 1 rooted at UW, in the steps of §VI-C: UCLA at 39, and Berkeley by UCLA or UW at 38.4; all others by legs
    /// of about 21 from these two, "higher than any other available bandwidth from UW".
    #[test]
    fn the_paper_s_tree_from_washington() {
        let graph = table_1(1.0);
        let hosts = [Host::RECEIVER; 9];
        let WidestTree { tree, width } =
            Overlay { graph: &graph, source: 8, hosts: &hosts }.widest();
        let width: Vec<f64> = width.iter().take(8).map(|rate| rate.as_mbps()).collect();
        assert_eq!(width, [21.7, 39.0, 21.7, 21.7, 21.7, 21.7, 21.7, 38.4]);
        assert_eq!([1, 7].map(|node| tree.parent(node)), [Some(8), Some(8)]);
        assert_eq!([3, 4].map(|node| tree.parent(node)), [Some(1), Some(3)]);
    }
}
