//! The hosts for which a tree is planned, and what they can do.

use super::{
    Layout, PlannedTree, Share, Tree, bounded, candidates,
    delivery::{self, NodeProgress},
    depth::{ArrivingFlow, ChainLoss},
    rates::{self, LegOffer},
    several::{self, SeveralError, SeveralParents},
    widest::{self, WidestTree},
};
use crate::Graph;
use rand_core::Rng;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// A host's role in the cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It wants the object.
    Receiver,
    /// It only forwards data, if that helps others.
    Relay,
    /// It does not take part.
    Absent,
}

/// What a host stores of the data that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Everything: a child gets later what it could not take.
    Store,
    /// A ring of this many bytes, and its children's socket buffers; what does not fit is lost to the child.
    Ring(ByteSize),
}

/// The limits of a host's access, over all its legs; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The most it sends.
    pub egress: Option<Rate>,
    /// The most it receives.
    pub ingress: Option<Rate>,
}

impl Access {
    /// The known limits, and otherwise an estimate: the largest rate of one leg seen from and to the host, or the rate
    /// of several at once (`at_once`) if that was more.
    ///
    /// The estimate is a lower bound, because one connection seldom fills an access line. A host of which nothing is
    /// known has no limit.
    pub fn estimate(graph: &Graph, host: usize, known: Self, at_once: Self) -> Self {
        let egress = graph.outs(host).map(|leg| leg.1).max().max(at_once.egress);
        let ingress = graph.ins(host).map(|leg| leg.1).max().max(at_once.ingress);
        Self { egress: known.egress.or(egress), ingress: known.ingress.or(ingress) }
    }
}

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub role: Role,
    /// What it stores. For the source it does not matter, because it has everything.
    pub keeps: Storage,
    /// Whether it may forward data.
    pub forwards: bool,
    /// The limits of its access.
    pub access: Access,
}

impl Host {
    /// A receiver that stores and forwards, without limits.
    pub const RECEIVER: Self = Self {
        role: Role::Receiver,
        keeps: Storage::Store,
        forwards: true,
        access: Access { egress: None, ingress: None },
    };
    /// A host that does not take part.
    pub const ABSENT: Self = Self { role: Role::Absent, ..Self::RECEIVER };

    /// A relay with a ring of this many bytes, without limits.
    pub const fn ring(buffer: ByteSize) -> Self {
        Self { role: Role::Relay, keeps: Storage::Ring(buffer), ..Self::RECEIVER }
    }

    /// The same host with this access.
    pub const fn with_access(self, egress: Option<Rate>, ingress: Option<Rate>) -> Self {
        Self { access: Access { egress, ingress }, ..self }
    }

    /// The same host as a leaf, if it sends less than `least` (§VI: hosts limited to 10 Mbit/s were leaves only).
    pub fn leaf_below(mut self, least: Rate) -> Self {
        self.forwards &= self.access.egress.is_none_or(|egress| egress >= least);
        self
    }
}

/// What a tree is planned on: the rates of legs, and the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a> {
    /// The rate of each leg when it is alone; legs that are not measured are not used.
    pub graph: &'a Graph,
    /// The host that has the object: an index of the graph.
    pub source: usize,
    /// By index of the graph; missing hosts do not take part. The source's role does not matter.
    pub hosts: &'a [Host],
}

impl Overlay<'_> {
    /// The number of nodes in the graph.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    pub(super) fn host(&self, node: usize) -> Host {
        self.hosts.get(node).copied().unwrap_or(Host::ABSENT)
    }

    /// Whether the node wants the object.
    pub fn receives(&self, node: usize) -> bool {
        node != self.source && self.host(node).role == Role::Receiver
    }

    /// The receivers, ascending.
    pub fn receivers(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes()).filter(|node| self.receives(*node))
    }

    /// Whether the node can be in the tree, below the source.
    pub(super) fn takes_part(&self, node: usize) -> bool {
        node != self.source && self.host(node).role != Role::Absent
    }

    /// Whether the node can have children.
    pub(super) fn sends(&self, node: usize) -> bool {
        node == self.source || (self.takes_part(node) && self.host(node).forwards)
    }

    /// The rate of a leg when nothing else moves, bit/s: at most that of the hosts at its ends. 0 if there is no such
    /// leg.
    pub(super) fn leg(&self, from: usize, to: usize) -> f64 {
        let usable = self.sends(from) && self.takes_part(to);
        let rate = self.graph.rate(from, to).filter(|_| usable);
        let ends = self.egress(from).min(self.ingress(to));
        rate.map_or(0.0, |rate| ends.min(rate.as_bps() as f64))
    }

    /// Bit/s; infinite without limit.
    pub(super) fn egress(&self, node: usize) -> f64 {
        bps(self.host(node).access.egress)
    }

    /// Bit/s; infinite without limit.
    pub(super) fn ingress(&self, node: usize) -> f64 {
        bps(self.host(node).access.ingress)
    }

    /// The usable legs from a node as (receiver, bit/s above 0), ascending.
    pub(super) fn outs(&self, from: usize) -> impl Iterator<Item = (usize, f64)> {
        let leg = move |(to, _)| (to, self.leg(from, to));
        self.graph.outs(from).map(leg).filter(|(_, rate)| *rate > 0.0)
    }

    /// The usable legs to a node as (sender, bit/s above 0), ascending.
    pub(super) fn ins(&self, to: usize) -> impl Iterator<Item = (usize, f64)> {
        let leg = move |(from, _)| (from, self.leg(from, to));
        self.graph.ins(to).map(leg).filter(|(_, rate)| *rate > 0.0)
    }

    /// Plans a tree for hosts with bounded egress. `effort` bounds the work: about the number of node rates computed
    /// and legs looked at; see [`EFFORT`](super::EFFORT).
    pub fn bounded(&self, model: &ChainLoss, effort: u64) -> PlannedTree {
        bounded::bounded(self, model, effort)
    }

    /// By node, up to `count` parents with the rate expected of each: the tree's own first, then those that have most
    /// to spare for one more child beside what the tree asks of them.
    ///
    /// The spare rate is the least of the leg, of what the parent gets itself, and of the egress that its children
    /// leave, or an equal share with them if that is more. Descendants of the node are left out, because their data
    /// came from it. The source is always included if it has a leg to the node. O(legs · (depth + log legs)).
    pub fn candidates(&self, planned: &PlannedTree, count: usize) -> Vec<Vec<Share>> {
        candidates::candidates(self, planned, count)
    }

    /// By node, the time from now until it has everything if the tree and its legs' rates stay as they are; `None` for
    /// never. The source is done already.
    ///
    /// After rates have changed, pass a graph with the new ones: what a leg gives now, not what arrived over it when
    /// the parent had no more. In large graphs, events within a thousandth of the whole count as one.
    pub fn forecast(
        &self,
        tree: &Tree,
        model: &ChainLoss,
        length: ByteSize,
        progress: &[NodeProgress],
    ) -> Vec<Option<Duration>> {
        delivery::forecast(self, tree, model, length, progress)
    }

    /// The rate of each node in the tree, by node; zero for nodes outside of it, and for the source.
    ///
    /// Children share their parent's egress max-min fairly, none above its leg, its own ingress, or what the parent
    /// gets. Behind a ring, a child loses what `model` says; behind a store, which keeps what a child could not take,
    /// it loses nothing in the long run. Capacities that legs share, other than their ends' access, are not known here.
    /// O(n log n).
    pub fn rates(&self, tree: &Tree, model: &ChainLoss) -> Vec<Rate> {
        rates::rates(self, tree, model)
    }

    /// Each node's slowest hop in the tree, Eq. (2), if no leg slows another: the "min-hop bandwidth" beside which
    /// rates are shown. Zero as in [`rates`](Self::rates).
    pub fn min_hop(&self, tree: &Tree) -> Vec<Rate> {
        rates::min_hop(self, tree)
    }

    /// [`rates`](Self::rates) as flows in bit/s.
    pub(super) fn flows(&self, tree: &Tree, model: &ChainLoss) -> Vec<ArrivingFlow> {
        rates::flows(self, tree, model)
    }

    /// The flow to each node, where `offer` says what a parent has for a child; `None` if the child takes no share.
    pub(super) fn flows_of(
        &self,
        layout: &Layout,
        model: &ChainLoss,
        offer: impl Fn(usize, usize) -> Option<LegOffer>,
    ) -> Vec<ArrivingFlow> {
        rates::flows_of(self, layout, model, offer)
    }

    /// The best simultaneous rates, and what each node gets from which parents. For each node, the widest `keep` legs
    /// are used, the source's, and that of `tree`, which thus is one of the possible answers. With all legs, this is a
    /// bound for every way to deliver.
    ///
    /// # Errors
    ///
    /// [`SeveralError::TooLarge`] beyond [`MOST_LEGS`](super::several::MOST_LEGS); [`SeveralError::Unsolved`] if the
    /// solver gives up.
    pub fn several(
        &self,
        keep: usize,
        tree: Option<&Tree>,
    ) -> Result<SeveralParents, SeveralError> {
        several::several(self, keep, tree)
    }

    /// The rate that each receiver could have alone, by node: its maximum flow from the source under all capacities.
    pub fn alone(&self) -> Vec<Rate> {
        several::alone(self)
    }

    /// The tree in which each node's slowest hop is as fast as possible, by §VI-C's variant of Dijkstra's
    /// algorithm, if no hop slows another.
    ///
    /// A leg is never faster than its ends' access. Differs: of several widest paths it takes the one with the fewest
    /// hops, then the wider last leg, then the lower parent's index, where §VI-C "broke most ties arbitrarily". That
    /// matters: if equal accesses bound most legs, nearly all paths tie, and this hangs nearly all nodes on the source.
    /// [`widest_by_lot`](Self::widest_by_lot) is the paper's method. O(legs · log legs).
    pub fn widest(&self) -> WidestTree {
        widest::widest(self)
    }

    /// The same widths by a tree whose ties are broken by lot, among the widest paths that are known when a node is
    /// next. "The widest path tree is not typically unique" (§VI-C).
    pub fn widest_by_lot(&self, random: &mut (impl Rng + ?Sized)) -> WidestTree {
        widest::widest_by_lot(self, random)
    }
}

fn bps(rate: Option<Rate>) -> f64 {
    rate.map_or(f64::INFINITY, |rate| rate.as_bps() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_the_known_limit_or_the_most_that_was_seen() {
        let rate = Rate::from_bps;
        let mut graph = Graph::new(3);
        graph.set(0, 1, Some(rate(5)));
        graph.set(0, 2, Some(rate(7)));
        let none = Access::default();
        let seen = Access { egress: Some(rate(7)), ingress: None };
        assert_eq!(Access::estimate(&graph, 0, none, none), seen);
        let sum = Access { egress: Some(rate(9)), ingress: None };
        assert_eq!(Access::estimate(&graph, 0, none, sum), sum);
        let known = Access { egress: Some(rate(6)), ingress: Some(rate(1)) };
        assert_eq!(Access::estimate(&graph, 0, known, sum), known);
    }

    #[test]
    fn a_leg_needs_a_sender_and_a_receiver_and_is_bounded_by_both() {
        let rate = |bps| Some(Rate::from_bps(bps));
        let graph = Graph::from_matrix(&vec![vec![rate(50); 4]; 4]);
        let slow = Host::RECEIVER.with_access(rate(20), rate(30)).leaf_below(Rate::from_bps(21));
        let hosts = [Host::ABSENT, Host::RECEIVER, slow, Host::ABSENT];
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        assert_eq!((overlay.leg(0, 1), overlay.leg(1, 2), overlay.leg(2, 1)), (50.0, 30.0, 0.0));
        assert_eq!((overlay.leg(0, 3), overlay.leg(1, 0), overlay.leg(9, 1)), (0.0, 0.0, 0.0));
        assert_eq!(overlay.receivers().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(overlay.outs(1).collect::<Vec<_>>(), [(2, 30.0)]);
    }
}
