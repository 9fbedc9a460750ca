//! The hosts that a tree is planned for, and what they can do.

use super::{
    Layout, Planned, Share, Tree, bounded, candidates,
    delivery::{self, Progress},
    depth::{ChainLoss, Flow},
    rates::{self, Offer},
    several::{self, Several, SeveralError},
    widest::{self, Widest},
};
use crate::Graph;
use rand_core::Rng;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// What a host is to the cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It wants the object.
    Receiver,
    /// It only hands data on, where that helps others.
    Relay,
    /// It has no part.
    Absent,
}

/// What a host keeps of what it hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Everything: what a child could not take it gets later.
    Store,
    /// A ring of so many bytes, and its children's socket buffers; what does not fit is lost to the child.
    Ring(ByteSize),
}

/// What a host's access takes, over all its legs; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The most it sends.
    pub egress: Option<Rate>,
    /// The most it receives.
    pub ingress: Option<Rate>,
}

impl Access {
    /// What is known, and otherwise an estimate: the largest rate of one leg seen from and to the host,
    /// or what several at once gave together (`at_once`) if that was more.
    ///
    /// The estimate is a lower bound: one connection seldom fills an access line. A host of which nothing is
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
    /// Its part.
    pub role: Role,
    /// What it keeps. Of the source it does not matter: it has everything.
    pub keeps: Keeps,
    /// Whether it may hand anything on.
    pub forwards: bool,
    /// What its access takes.
    pub access: Access,
}

impl Host {
    /// A receiver that stores and forwards, without limits.
    pub const RECEIVER: Self = Self {
        role: Role::Receiver,
        keeps: Keeps::Store,
        forwards: true,
        access: Access { egress: None, ingress: None },
    };
    /// A host without part.
    pub const ABSENT: Self = Self { role: Role::Absent, ..Self::RECEIVER };

    /// A ring for others, of so many bytes, without limits.
    pub const fn ring(buffer: ByteSize) -> Self {
        Self { role: Role::Relay, keeps: Keeps::Ring(buffer), ..Self::RECEIVER }
    }

    /// The same with this access.
    pub const fn with_access(self, egress: Option<Rate>, ingress: Option<Rate>) -> Self {
        Self { access: Access { egress, ingress }, ..self }
    }

    /// The same as a leaf, if it sends less than `least` (§VI: hosts limited to 10 Mbit/s were leaves only).
    pub fn leaf_below(mut self, least: Rate) -> Self {
        self.forwards &= self.access.egress.is_none_or(|egress| egress >= least);
        self
    }
}

/// What a tree is planned on: rates of legs, and hosts.
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a> {
    /// The rate of each leg when it is alone; legs that are not measured are not used.
    pub graph: &'a Graph,
    /// Who has the object: an index of the graph.
    pub source: usize,
    /// By index of the graph; those that are missing have no part. The source's role does not matter.
    pub hosts: &'a [Host],
}

impl Overlay<'_> {
    /// How many nodes the graph has.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    pub(super) fn host(&self, node: usize) -> Host {
        self.hosts.get(node).copied().unwrap_or(Host::ABSENT)
    }

    /// It wants the object.
    pub fn receives(&self, node: usize) -> bool {
        node != self.source && self.host(node).role == Role::Receiver
    }

    /// The receivers, ascending.
    pub fn receivers(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes()).filter(|node| self.receives(*node))
    }

    /// It can be in the tree, below the source.
    pub(super) fn takes_part(&self, node: usize) -> bool {
        node != self.source && self.host(node).role != Role::Absent
    }

    /// It can have children.
    pub(super) fn sends(&self, node: usize) -> bool {
        node == self.source || (self.takes_part(node) && self.host(node).forwards)
    }

    /// What a leg gives when nothing else moves, bit/s: no more than the hosts at its ends. 0: no such leg.
    pub(super) fn leg(&self, from: usize, to: usize) -> f64 {
        let usable = self.sends(from) && self.takes_part(to);
        let rate = self.graph.rate(from, to).filter(|_| usable);
        let ends = self.egress(from).min(self.ingress(to));
        rate.map_or(0.0, |rate| ends.min(rate.as_bps() as f64))
    }

    /// bit/s; infinite without limit.
    pub(super) fn egress(&self, node: usize) -> f64 {
        bps(self.host(node).access.egress)
    }

    /// bit/s; infinite without limit.
    pub(super) fn ingress(&self, node: usize) -> f64 {
        bps(self.host(node).access.ingress)
    }

    /// The usable legs from a node: to whom, bit/s above 0; ascending.
    pub(super) fn outs(&self, from: usize) -> impl Iterator<Item = (usize, f64)> {
        let leg = move |(to, _)| (to, self.leg(from, to));
        self.graph.outs(from).map(leg).filter(|(_, rate)| *rate > 0.0)
    }

    /// The usable legs to a node: from whom, bit/s above 0; ascending.
    pub(super) fn ins(&self, to: usize) -> impl Iterator<Item = (usize, f64)> {
        let leg = move |(from, _)| (from, self.leg(from, to));
        self.graph.ins(to).map(leg).filter(|(_, rate)| *rate > 0.0)
    }

    /// The tree for hosts with bounded egress. `effort` bounds the work: how many nodes' rates are computed,
    /// and legs looked at, about; see [`EFFORT`](super::EFFORT).
    pub fn bounded(&self, model: &ChainLoss, effort: u64) -> Planned {
        bounded::bounded(self, model, effort)
    }

    /// By node, up to `count` parents with the rate expected of each: the tree's own first, then those that have
    /// most to spare for one more child beside what the tree asks of them.
    ///
    /// To spare is the least of the leg, of what the parent gets itself, and of the egress that its children leave,
    /// or an equal share with them if that is more. Who is below the node in the tree is left out: what it has came
    /// from here. The source is always among them if a leg leads to it. O(legs · (depth + log legs)).
    pub fn candidates(&self, planned: &Planned, count: usize) -> Vec<Vec<Share>> {
        candidates::candidates(self, planned, count)
    }

    /// When each node will have everything, from now, by node, if the tree and its legs' rates stay as they are;
    /// `None` for never. The source is done already.
    ///
    /// For rates that changed give a graph in which they have: what a leg gives now, not what came over it when
    /// the parent had no more. Events within a thousandth of the whole count as one.
    pub fn forecast(
        &self,
        tree: &Tree,
        model: &ChainLoss,
        length: ByteSize,
        progress: &[Progress],
    ) -> Vec<Option<Duration>> {
        delivery::forecast(self, tree, model, length, progress)
    }

    /// The rate of each node in the tree, by node; zero for who is not in it, and for the source.
    ///
    /// Children share their parent's egress max-min fairly, none above its leg, its own ingress, or what the
    /// parent gets. Behind a ring a child loses what `model` says; behind a store, which keeps what a child could
    /// not take, it loses nothing in the long run. Legs that share anything but their ends' access are not known
    /// here. O(n log n).
    pub fn rates(&self, tree: &Tree, model: &ChainLoss) -> Vec<Rate> {
        rates::rates(self, tree, model)
    }

    /// Each node's slowest hop in the tree, Eq. (2), with no leg slowing another: the "min-hop bandwidth" that rates
    /// are shown beside. Zero as in [`rates`](Self::rates).
    pub fn min_hop(&self, tree: &Tree) -> Vec<Rate> {
        rates::min_hop(self, tree)
    }

    /// [`rates`](Self::rates) as flows in bit/s.
    pub(super) fn flows(&self, tree: &Tree, model: &ChainLoss) -> Vec<Flow> {
        rates::flows(self, tree, model)
    }

    /// What each node gets, where `offer` says what a parent has for a child: nothing, if the child takes no share.
    pub(super) fn flows_of(
        &self,
        layout: &Layout,
        model: &ChainLoss,
        offer: impl Fn(usize, usize) -> Option<Offer>,
    ) -> Vec<Flow> {
        rates::flows_of(self, layout, model, offer)
    }

    /// The best simultaneous rates, and who gets what from whom. Of the legs to each node the widest `keep` are
    /// used, the source's, and those of a tree that is to be one of the answers; with all legs it is a bound for
    /// every way to deliver.
    ///
    /// # Errors
    ///
    /// [`SeveralError::TooLarge`] beyond [`MOST_LEGS`](super::several::MOST_LEGS); [`SeveralError::Unsolved`] if the solver gives up.
    pub fn several(&self, keep: usize, tree: Option<&Tree>) -> Result<Several, SeveralError> {
        several::several(self, keep, tree)
    }

    /// What a receiver alone could have, by node: its largest flow from the source under all capacities.
    pub fn alone(&self) -> Vec<Rate> {
        several::alone(self)
    }

    /// The tree in which each node's slowest hop is as fast as possible, by §VI-C's variant of Dijkstra's
    /// algorithm, if no hop slows another.
    ///
    /// A leg is never faster than its ends' access. Not the paper's: of several widest ways it takes the one of
    /// fewest hops, then the wider last leg, then the lower parent's index, where §VI-C "broke most ties
    /// arbitrarily". That matters: where accesses of one rate are what bounds most legs, nearly all tie, and this
    /// hangs nearly all on the source. [`widest_by_lot`](Self::widest_by_lot) is the paper's way.
    /// O(legs · log legs).
    pub fn widest(&self) -> Widest {
        widest::widest(self)
    }

    /// The same widths by a tree whose ties are broken by lot: whichever of the widest ways that are known when a
    /// node is next. "The widest path tree is not typically unique" (§VI-C).
    pub fn widest_by_lot(&self, random: &mut (impl Rng + ?Sized)) -> Widest {
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
    fn access_is_what_is_known_or_the_most_that_was_seen() {
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
    fn a_leg_needs_a_sender_and_a_taker_and_is_bounded_by_both() {
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
