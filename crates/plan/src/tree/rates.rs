//! The rate of each node of a tree when all nodes receive at once.

use super::{
    Layout, Overlay, Storage, Tree,
    depth::{ArrivingFlow, ChainLoss},
};
use thalweg_units::Rate;

/// See [`Overlay::rates`].
pub(super) fn rates(overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> Vec<Rate> {
    let rates = flows(overlay, tree, model).into_iter();
    rates.map(|flow| Rate::from_bps(flow.rate.round() as u64)).collect()
}

/// See [`Overlay::min_hop`].
pub(super) fn min_hop(overlay: &Overlay<'_>, tree: &Tree) -> Vec<Rate> {
    let mut slowest = vec![0.0; tree.nodes()];
    for node in tree.layout().order().iter().copied() {
        let Some(parent) = tree.parent(node) else { continue };
        let above = if parent == tree.source() { f64::INFINITY } else { slowest[parent] };
        slowest[node] = overlay.leg(parent, node).min(above);
    }
    slowest.into_iter().map(|bps| Rate::from_bps(bps as u64)).collect()
}

/// See [`Overlay::flows`].
pub(super) fn flows(overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> Vec<ArrivingFlow> {
    flows_of(overlay, &tree.layout(), model, |parent, _| {
        Some(if parent == overlay.source { LegOffer::All } else { LegOffer::Fresh })
    })
}

/// See [`Overlay::flows_of`].
pub(super) fn flows_of(
    overlay: &Overlay<'_>,
    layout: &Layout,
    model: &ChainLoss,
    offer: impl Fn(usize, usize) -> Option<LegOffer>,
) -> Vec<ArrivingFlow> {
    let mut flows = vec![ArrivingFlow::first(0.0); overlay.nodes()];
    let mut takers = Vec::new();
    for node in layout.order().iter().copied() {
        let children = layout.children(node).iter();
        let taker = |child: &usize| {
            let offer = offer(node, *child)?;
            Some(LegDemand { child: *child, leg: overlay.leg(node, *child), offer })
        };
        takers.extend(children.filter_map(taker));
        if !takers.is_empty() {
            let got = child_flows(overlay, node, flows[node], &takers, model);
            takers.drain(..).zip(got).for_each(|(taker, flow)| flows[taker.child] = flow);
        }
    }
    flows
}

/// The flows to a node's children if `up` flows to the node.
fn child_flows(
    overlay: &Overlay<'_>,
    node: usize,
    up: ArrivingFlow,
    takers: &[LegDemand],
    model: &ChainLoss,
) -> Vec<ArrivingFlow> {
    let egress = overlay.egress(node);
    let wanted: Vec<f64> = takers.iter().map(|taker| taker.wants(up.rate)).collect();
    let shares_now = shares(egress, &wanted);
    let ring = match overlay.host(node).keeps {
        Storage::Ring(ring) if takers.iter().any(|taker| taker.offer == LegOffer::Fresh) => ring,
        _ => return shares_now.into_iter().map(ArrivingFlow::first).collect(),
    };
    // The rate of each child if there were always something to send.
    let legs: Vec<f64> = takers.iter().map(|taker| taker.leg).collect();
    let alone = shares(egress, &legs).into_iter().zip(shares_now);
    let flow = |(taker, (alone, share)): (&LegDemand, (f64, f64))| match taker.offer {
        LegOffer::All => ArrivingFlow::first(share),
        LegOffer::Fresh => model.behind(ring, up, alone.max(share)),
    };
    takers.iter().zip(alone).map(flow).collect()
}

/// What a parent has for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LegOffer {
    /// More data than it can send.
    All,
    /// Only the data that arrives at it meanwhile.
    Fresh,
}

#[derive(Clone, Copy)]
struct LegDemand {
    child: usize,
    leg: f64,
    offer: LegOffer,
}

impl LegDemand {
    fn wants(&self, up: f64) -> f64 {
        if self.offer == LegOffer::All { self.leg } else { self.leg.min(up) }
    }
}

/// Max-min fair shares of a capacity, none above what it wants ("water-filling").
pub(super) fn shares(capacity: f64, wanted: &[f64]) -> Vec<f64> {
    if wanted.iter().sum::<f64>() <= capacity {
        return wanted.to_vec();
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let (mut left, mut level, mut many) = (capacity, 0.0, wanted.len() as f64);
    for at in order {
        level = left / many;
        if wanted[at] >= level {
            break;
        }
        left -= wanted[at];
        many -= 1.0;
    }
    wanted.iter().map(|wanted| wanted.min(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Host, depth::Shape};
    use super::*;
    use crate::Graph;
    use proptest::prelude::*;
    use thalweg_units::ByteSize;

    fn full(nodes: usize, bps: u64) -> Graph {
        Graph::from_matrix(&vec![vec![Some(Rate::from_bps(bps)); nodes]; nodes])
    }

    fn bps(rates: &[Rate]) -> Vec<u64> {
        rates.iter().map(|rate| rate.as_bps()).collect()
    }

    #[test]
    fn children_share_their_parent_s_egress_and_get_no_more_than_it_does() {
        let mut graph = full(5, 100);
        graph.set(1, 4, Some(Rate::from_bps(10)));
        let limited = |egress| Host::RECEIVER.with_access(Some(Rate::from_bps(egress)), None);
        let hosts = [limited(150), limited(60), limited(1000), Host::RECEIVER, Host::RECEIVER];
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        // 0 → 1 (→ 3, 4), 2: 75 each; of 1's 60, 4 takes 10 and 3 the rest.
        let tree = Tree::from_parents(0, vec![None, Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(bps(&overlay.rates(&tree, &ChainLoss::NONE)), [0, 75, 75, 50, 10]);
        assert_eq!(bps(&overlay.min_hop(&tree)), [0, 100, 100, 60, 10]);
    }

    #[test]
    fn rings_lose_by_depth_and_stores_do_not() {
        let graph = full(4, 1_000_000);
        let model = ChainLoss {
            shape: Shape::Exponential,
            dispersion: ChainLoss::dispersion(0.1, ByteSize::from_bytes(1 << 20)),
        };
        let tree = Tree::from_parents(0, vec![None, Some(0), Some(1), Some(2)]);
        let ring = Host { keeps: Storage::Ring(ByteSize::from_bytes(1 << 20)), ..Host::RECEIVER };
        let rates = |hosts: [Host; 4]| {
            let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
            bps(&overlay.rates(&tree, &model))
                .into_iter()
                .map(|bps| (bps + 50) / 100)
                .collect::<Vec<_>>()
        };
        assert_eq!(rates([ring; 4]), [0, 10_000, 9_000, 8_100]);
        assert_eq!(rates([Host::RECEIVER; 4]), [0, 10_000, 10_000, 10_000]);
        assert_eq!(rates([ring, ring, Host::RECEIVER, ring]), [0, 10_000, 9_000, 9_000]);
    }

    proptest! {
        #[test]
        fn shares_are_max_min_fair(
            capacity in 0.0..100.0_f64, wanted in prop::collection::vec(0.0..50.0_f64, 0..9),
        ) {
            let got = shares(capacity, &wanted);
            let sum: f64 = got.iter().sum();
            let all: f64 = wanted.iter().sum();
            prop_assert!((sum - all.min(capacity)).abs() < 1e-9, "{sum}");
            let most = got.iter().copied().fold(0.0, f64::max);
            for (got, wanted) in got.iter().zip(&wanted) {
                prop_assert!(got == wanted || (got < wanted && *got >= most - 1e-9));
            }
        }
    }
}
