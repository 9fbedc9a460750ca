//! The parents that a receiver can turn to, in the order in which to try them, for graphs of any size.

use super::{Overlay, PlannedTree, Share};
use thalweg_units::Rate;

/// See [`Overlay::candidates`].
pub(super) fn candidates(
    overlay: &Overlay<'_>,
    planned: &PlannedTree,
    count: usize,
) -> Vec<Vec<Share>> {
    let spare = spare(overlay, planned);
    (0..overlay.nodes()).map(|node| candidates_of(overlay, planned, &spare, node, count)).collect()
}

fn candidates_of(
    overlay: &Overlay<'_>,
    planned: &PlannedTree,
    spare: &[f64],
    node: usize,
    count: usize,
) -> Vec<Share> {
    let Some(own) = planned.tree.parent(node) else { return Vec::new() };
    let other = |leg: &(usize, f64)| {
        let inside = leg.0 != own && planned.tree.has(leg.0);
        inside && !planned.tree.is_above(node, leg.0)
    };
    let gives = |(parent, leg): (usize, f64)| (leg.min(spare[parent]), parent);
    let mut others: Vec<(f64, usize)> = overlay.ins(node).filter(other).map(gives).collect();
    others.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let more = count.saturating_sub(1);
    // The source exists as long as the cast does.
    if let Some(at) = others.iter().position(|other| other.1 == overlay.source)
        && more > 0
        && at >= more
    {
        others.swap(at, more - 1);
    }
    others.truncate(more);
    let first = Share { parent: own, rate: planned.rates[node] };
    let share =
        |(bps, parent): (f64, usize)| Share { parent, rate: Rate::from_bps(bps.round() as u64) };
    std::iter::once(first).chain(others.into_iter().map(share)).take(count).collect()
}

/// The rate that each node could give one more child, bit/s.
fn spare(overlay: &Overlay<'_>, planned: &PlannedTree) -> Vec<f64> {
    let layout = planned.tree.layout();
    let bps = |node: usize| planned.rates[node].as_bps() as f64;
    let of = |node: usize| {
        let children = layout.children(node);
        let sent: f64 = children.iter().map(|child| bps(*child)).sum();
        let egress = overlay.egress(node);
        let has = if node == overlay.source { f64::INFINITY } else { bps(node) };
        has.min((egress - sent).max(egress / (children.len() + 1) as f64))
    };
    (0..overlay.nodes()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Graph,
        tree::{Host, Tree, depth::ChainLoss},
    };

    #[test]
    fn the_tree_s_parent_comes_first_and_descendants_are_left_out() {
        let mbps = |x: f64| Some(Rate::from_mbps(x));
        let graph = Graph::from_matrix(&vec![vec![mbps(50.0); 5]; 5]);
        let mut hosts = [Host::RECEIVER.with_access(mbps(60.0), None); 5];
        hosts[3] = Host::RECEIVER.with_access(mbps(100.0), None);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        // 0 → 1 → 2 → 4 and 0 → 3.
        let tree = Tree::from_parents(0, vec![None, Some(0), Some(1), Some(0), Some(2)]);
        let rates = overlay.rates(&tree, &ChainLoss::NONE);
        let ceilings = overlay.widest().width;
        let planned = PlannedTree { tree, rates, ceilings };
        let of = |count: usize| -> Vec<Vec<(usize, f64)>> {
            let all = overlay.candidates(&planned, count).into_iter();
            all.map(|own| own.iter().map(|share| (share.parent, share.rate.as_mbps())).collect())
                .collect()
        };
        assert_eq!(of(9)[0], []);
        assert_eq!(of(9)[1], [(0, 30.0), (3, 30.0)], "2 and 4 are below it");
        // One more child would get an equal share of the egress: 20 from the source, 30 from 1.
        assert_eq!(of(9)[4], [(2, 30.0), (1, 30.0), (3, 30.0), (0, 20.0)]);
        assert_eq!(of(2)[4], [(2, 30.0), (0, 20.0)], "the source is always among them");
        assert_eq!(of(1)[4], [(2, 30.0)]);
        assert_eq!(of(0)[4], []);
    }
}
