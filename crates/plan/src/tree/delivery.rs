//! When each receiver will be done: simulates a delivery down a tree, event by event.
//!
//! Between events rates are constant. A node gets what its leg and its share of the parent's egress give, as long as
//! the parent has data that it lacks: a store that is ahead of it, or any node that is done (ROMA §IV: "encoding
//! symbols of its own from the full content"). Other parents only pass on what they receive meanwhile. A node that is
//! done takes no share any more, so its siblings get more. Events are: a node joins, is done, or has caught up with its
//! parent.
//!
//! Simplified: a parent that is behind its child (after a switch) passes on all that it gets; what it has already
//! counts as known to the child. Delays of legs are left out: children in step are done together.

use super::{
    Layout, Overlay, Storage, Tree,
    depth::{ArrivingFlow, ChainLoss},
    rates::LegOffer,
};
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// A node's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeProgress {
    /// The amount that it has.
    pub has: ByteSize,
    /// The time until it joins; zero: it is there. [`Duration::MAX`]: never.
    pub joins: Duration,
}

/// A delivery under way. Times are since its start.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Bits.
    length: f64,
    /// Seconds.
    now: f64,
    nodes: Vec<DeliveryNode>,
}

#[derive(Clone, Copy, Debug)]
struct DeliveryNode {
    /// Bits.
    has: f64,
    /// Seconds.
    joins: f64,
    /// When it had everything, s; `None` until then.
    done: Option<f64>,
    /// Bits received since the start.
    got: f64,
    /// Bits sent since the start.
    sent: f64,
}

/// Differences in bits that are only the rounding of rates times times.
const SLACK: f64 = 1.0;

impl Delivery {
    /// Creates a delivery of an object of this length with each node's progress. Nodes without an entry have nothing,
    /// and are there.
    pub fn new(length: ByteSize, nodes: usize, progress: &[NodeProgress]) -> Self {
        let length = length.as_bits() as f64;
        let node = |at: usize| {
            let NodeProgress { has, joins } = progress.get(at).copied().unwrap_or_default();
            let has = (has.as_bits() as f64).min(length);
            let joins = if joins == Duration::MAX { f64::INFINITY } else { joins.as_secs_f64() };
            let done = (has >= length).then_some(0.0);
            DeliveryNode { has, joins, done, got: 0.0, sent: 0.0 }
        };
        Self { length, now: 0.0, nodes: (0..nodes).map(node).collect() }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        Duration::try_from_secs_f64(self.now).unwrap_or(Duration::MAX)
    }

    /// When the node had everything; `None` if it has not.
    pub fn done(&self, node: usize) -> Option<Duration> {
        let done = self.nodes.get(node)?.done?;
        Some(Duration::try_from_secs_f64(done).unwrap_or(Duration::MAX))
    }

    /// The amount of the object that the node has.
    pub fn has(&self, node: usize) -> ByteSize {
        bytes(self.nodes.get(node).map_or(0.0, |node| node.has))
    }

    /// The amounts that the node has received and sent since the start.
    pub fn moved(&self, node: usize) -> (ByteSize, ByteSize) {
        self.nodes.get(node).map_or_else(Default::default, |n| (bytes(n.got), bytes(n.sent)))
    }

    /// The present rate of each node, by node.
    pub fn rates(&self, overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> Vec<Rate> {
        let flows = self.flows(overlay, &tree.layout(), model);
        flows.into_iter().map(|flow| Rate::from_bps(flow.rate.round() as u64)).collect()
    }

    /// Continues until nothing more happens or `until`. Events that are no farther apart than `grain` count as one,
    /// which makes them wrong by at most that for each hop; zero is exact. O(n log n) for each event.
    pub fn run(
        &mut self,
        overlay: &Overlay<'_>,
        tree: &Tree,
        model: &ChainLoss,
        until: Duration,
        grain: Duration,
    ) {
        let until = until.as_secs_f64();
        let layout = tree.layout();
        while self.now < until && self.step(overlay, tree, &layout, model, until, grain) {}
    }

    /// The approximate time of the whole object, s, at the rate of the slowest receiver that gets anything now.
    fn whole(&self, overlay: &Overlay<'_>, tree: &Tree, model: &ChainLoss) -> f64 {
        let flows = self.flows(overlay, &tree.layout(), model);
        let rates = overlay.receivers().map(|node| flows[node].rate).filter(|rate| *rate > 0.0);
        self.length / rates.fold(f64::INFINITY, f64::min)
    }

    /// Advances to the next event; `false` if there is none.
    fn step(
        &mut self,
        overlay: &Overlay<'_>,
        tree: &Tree,
        layout: &Layout,
        model: &ChainLoss,
        until: f64,
        grain: Duration,
    ) -> bool {
        let flows = self.flows(overlay, layout, model);
        let next = self.next(overlay, tree, &flows);
        if next.is_infinite() {
            return false;
        }
        let to = (self.now + next.max(grain.as_secs_f64())).min(until);
        self.advance(to, overlay, tree, &flows);
        true
    }

    /// The present flow to each node.
    fn flows(
        &self,
        overlay: &Overlay<'_>,
        layout: &Layout,
        model: &ChainLoss,
    ) -> Vec<ArrivingFlow> {
        let wants = self.wants(overlay, layout);
        overlay.flows_of(layout, model, |parent, child| {
            let there = parent == overlay.source || self.is_there(parent);
            (wants[child] && there).then(|| self.offer(overlay, parent, child))
        })
    }

    fn offer(&self, overlay: &Overlay<'_>, parent: usize, child: usize) -> LegOffer {
        let stores = overlay.host(parent).keeps == Storage::Store;
        let ahead = stores && self.nodes[parent].has > self.nodes[child].has + SLACK;
        let whole = parent == overlay.source || self.nodes[parent].done.is_some();
        if whole || ahead { LegOffer::All } else { LegOffer::Fresh }
    }

    fn is_there(&self, node: usize) -> bool {
        self.nodes[node].joins <= self.now
    }

    /// The nodes that are there and lack something, or have a descendant that does.
    fn wants(&self, overlay: &Overlay<'_>, layout: &Layout) -> Vec<bool> {
        let mut wants = vec![false; self.nodes.len()];
        for node in layout.order().iter().rev().copied() {
            let lacks = overlay.receives(node) || layout.children(node).iter().any(|c| wants[*c]);
            wants[node] = lacks && self.nodes[node].done.is_none() && self.is_there(node);
        }
        wants
    }

    /// Seconds until something changes; infinite if nothing will.
    fn next(&self, overlay: &Overlay<'_>, tree: &Tree, flows: &[ArrivingFlow]) -> f64 {
        let mut next = f64::INFINITY;
        for (at, node) in self.nodes.iter().enumerate() {
            if node.joins > self.now {
                next = next.min(node.joins - self.now);
            }
            let rate = flows[at].rate;
            if rate <= 0.0 {
                continue;
            }
            next = next.min((self.length - node.has) / rate);
            let Some(parent) = tree.parent(at).filter(|parent| *parent != overlay.source) else {
                continue;
            };
            let (gap, closing) = (self.nodes[parent].has - node.has, rate - flows[parent].rate);
            if gap > SLACK && closing > 0.0 {
                next = next.min(gap / closing);
            }
        }
        next
    }

    fn advance(&mut self, to: f64, overlay: &Overlay<'_>, tree: &Tree, flows: &[ArrivingFlow]) {
        let took = to - self.now;
        let mut sent = vec![0.0; self.nodes.len()];
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let rate = flows[at].rate;
            let got = (rate * took).min(self.length - node.has).max(0.0);
            node.got += got;
            node.has += got;
            if let Some(parent) = tree.parent(at) {
                sent[parent] += got;
            }
            if node.done.is_none() && rate > 0.0 && self.length - node.has <= SLACK {
                // It may have been done before the end of the grain.
                node.done = Some((to - took + (self.length - node.has + got) / rate).min(to));
                node.has = self.length;
            }
            // A ring has no older data to fall back on, and its gaps do not fill: what it has does not matter.
            let ring = overlay.host(at).keeps != Storage::Store && at != overlay.source;
            if ring && !overlay.receives(at) {
                (node.has, node.done) = (0.0, None);
            }
        }
        self.nodes.iter_mut().zip(sent).for_each(|(node, sent)| node.sent += sent);
        self.now = to;
    }
}

/// See [`Overlay::forecast`].
pub(super) fn forecast(
    overlay: &Overlay<'_>,
    tree: &Tree,
    model: &ChainLoss,
    length: ByteSize,
    progress: &[NodeProgress],
) -> Vec<Option<Duration>> {
    let mut delivery = Delivery::new(length, overlay.nodes(), progress);
    if let Some(source) = delivery.nodes.get_mut(overlay.source) {
        (source.has, source.done) = (delivery.length, Some(0.0));
    }
    let grain =
        if overlay.nodes() <= EXACT { 0.0 } else { delivery.whole(overlay, tree, model) / 1e3 };
    let grain = Duration::try_from_secs_f64(grain).unwrap_or(Duration::ZERO);
    delivery.run(overlay, tree, model, Duration::MAX, grain);
    (0..overlay.nodes()).map(|node| delivery.done(node)).collect()
}

/// Up to this many nodes, forecasts are exact: there are some events per node, and a rate for each node at each event.
const EXACT: usize = 300;

fn bytes(bits: f64) -> ByteSize {
    ByteSize::from_bytes((bits / 8.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;
    use crate::Graph;
    use proptest::prelude::*;

    /// 100 Mbit.
    const LENGTH: ByteSize = ByteSize::from_bytes(12_500_000);

    fn mbps(x: f64) -> Option<Rate> {
        Some(Rate::from_mbps(x))
    }

    fn line(rates: &[f64]) -> (Graph, Tree) {
        let nodes = rates.len() + 1;
        let mut graph = Graph::new(nodes);
        for (from, rate) in rates.iter().enumerate() {
            graph.set(from, from + 1, mbps(*rate));
        }
        let parents = (0..nodes).map(|node| node.checked_sub(1)).collect();
        (graph, Tree::from_parents(0, parents))
    }

    fn seconds(times: &[Option<Duration>]) -> Vec<Option<u64>> {
        times
            .iter()
            .map(|time| time.map(|time| (time.as_secs_f64() * 1e3).round() as u64))
            .collect()
    }

    fn late(joins: u64) -> NodeProgress {
        NodeProgress { joins: Duration::from_secs(joins), ..NodeProgress::default() }
    }

    #[test]
    fn a_late_joiner_catches_up_with_a_store_and_not_with_a_ring() {
        let (graph, tree) = line(&[10.0, 30.0]);
        let times = |keeps: Storage| {
            let hosts = [Host { keeps, ..Host::RECEIVER }; 3];
            let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
            let progress = [late(0), late(0), late(4)];
            seconds(&overlay.forecast(&tree, &ChainLoss::NONE, LENGTH, &progress))
        };
        // From 4 s it gets 30 Mbit/s and is level at 6 s; then with its parent until 10 s.
        assert_eq!(times(Storage::Store), [Some(0), Some(10_000), Some(10_000)]);
        // From a ring, 60 Mbit until 10 s; then its parent has everything: 40 more at 30 Mbit/s.
        let ring = Storage::Ring(ByteSize::from_bytes(1 << 20));
        assert_eq!(times(ring), [Some(0), Some(10_000), Some(11_333)]);
    }

    #[test]
    fn a_node_that_is_done_leaves_its_share_to_the_others() {
        let graph = Graph::from_matrix(&[vec![None, mbps(50.0), mbps(50.0)], vec![], vec![]]);
        let mut hosts = [Host::RECEIVER; 3];
        hosts[0] = hosts[0].with_access(mbps(50.0), None);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let tree = Tree::from_parents(0, vec![None, Some(0), Some(0)]);
        let half = NodeProgress { has: ByteSize::from_bytes(6_250_000), ..NodeProgress::default() };
        let times = overlay.forecast(&tree, &ChainLoss::NONE, LENGTH, &[half, half]);
        // Both at 25: node 1 gets its other half in 2 s; then node 2 gets its other 50 Mbit at 50.
        assert_eq!(seconds(&times), [Some(0), Some(2_000), Some(3_000)]);
    }

    #[test]
    fn rates_may_change_and_absent_nodes_are_never_done() {
        let (mut graph, tree) = line(&[10.0, 10.0, 10.0]);
        let hosts = [Host::RECEIVER; 4];
        let none = ChainLoss::NONE;
        let mut delivery = Delivery::new(LENGTH, 4, &[late(0), late(0), late(0), late(u64::MAX)]);
        let run = |delivery: &mut Delivery, graph: &Graph, until: u64| {
            let overlay = Overlay { graph, source: 0, hosts: &hosts };
            delivery.run(&overlay, &tree, &none, Duration::from_secs(until), Duration::ZERO);
        };
        run(&mut delivery, &graph, 5);
        assert_eq!(delivery.has(2), ByteSize::from_bytes(6_250_000));
        graph.set(1, 2, mbps(2.0));
        run(&mut delivery, &graph, 1000);
        let done = [1, 2, 3].map(|node| delivery.done(node).map(|time| time.as_secs()));
        assert_eq!(done, [Some(10), Some(30), None], "50 Mbit at 10, 50 at 2");
        assert_eq!(delivery.moved(1), (LENGTH, LENGTH));
    }

    proptest! {
        /// If all start at once, each node's mean rate in the end is at least the tree's rate, and no more than its
        /// path alone gives.
        #[test]
        fn finishes_lie_between_the_bounds(
            rates in prop::collection::vec(1.0..100.0_f64, 5), parents in prop::collection::vec(0_usize..5, 5),
            egress in prop::collection::vec(5.0..150.0_f64, 6),
        ) {
            let parents = (1..6).map(|node| Some(parents[node - 1] % node));
            let tree = Tree::from_parents(0, [None].into_iter().chain(parents).collect());
            let mut graph = Graph::new(6);
            for node in 1..6 {
                graph.set(tree.parent(node).unwrap(), node, mbps(rates[node - 1]));
            }
            let hosts: Vec<Host> =
                egress.iter().map(|x| Host::RECEIVER.with_access(mbps(*x), None)).collect();
            let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
            let steady = overlay.rates(&tree, &ChainLoss::NONE);
            let most = overlay.min_hop(&tree);
            let times = overlay.forecast(&tree, &ChainLoss::NONE, LENGTH, &[]);
            for node in 1..6 {
                let mean = LENGTH.as_bits() as f64 / times[node].unwrap().as_secs_f64() / 1e6;
                prop_assert!(mean >= steady[node].as_mbps() * 0.999, "{node}: {mean} < {}", steady[node]);
                prop_assert!(mean <= most[node].as_mbps() * 1.001, "{node}: {mean} > {}", most[node]);
            }
        }
    }
}
