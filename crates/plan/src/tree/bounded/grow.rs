//! Grows a tree in which every node gets a given rate, as far as egress allows.

use crate::tree::{Overlay, Tree};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

/// Which of several parents with room a node is hung under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthRule {
    /// The nearest to the source; then the one with the most egress left.
    Near,
    /// The one with the least egress left, so that larger ones are kept for more.
    Tight,
    /// The one with the fewest legs, because others have other uses.
    Rare,
}

/// The rules to try, in this order.
pub const RULES: [GrowthRule; 3] = [GrowthRule::Near, GrowthRule::Tight, GrowthRule::Rare];

/// The maximum length of a chain of children that are moved to make room for one node.
const MOVES: u32 = 3;

/// After this many nodes in a row for which no room could be made, the rate counts as too high.
const PATIENCE: usize = 100;

/// What a tree is to achieve.
#[derive(Clone, Copy, Debug)]
pub struct Aim<'a> {
    /// The rate of every node that can have it, bit/s.
    pub rate: f64,
    /// The most that each node can have, bit/s.
    pub ceilings: &'a [f64],
    pub rule: GrowthRule,
    /// Whether relays may be used.
    pub relays: bool,
}

struct Growing<'a, 'b> {
    overlay: &'a Overlay<'b>,
    aim: Aim<'a>,
    tree: Tree,
    children: Vec<Vec<usize>>,
    /// Egress left, bit/s; below 0 where more was taken than there is.
    left: Vec<f64>,
    hops: Vec<usize>,
    /// Nodes in reach by what they could hand on, the most first; among leaves, those with the fewest ways first.
    reach: BinaryHeap<(u64, Reverse<usize>, Reverse<usize>)>,
    /// Nodes that are not in the tree yet.
    waiting: Vec<bool>,
    /// [`Growing::worth`] when the node first came in reach: computing it anew for each leg takes too long.
    worths: Vec<Option<u64>>,
    /// Whether the remaining nodes are out of reach: then relays that give no more than they take are used as a way to
    /// them.
    stuck: bool,
}

impl Aim<'_> {
    fn wants(&self, node: usize) -> f64 {
        self.rate.min(self.ceilings[node])
    }
}

/// Grows a tree from the source, each time by the most useful node in reach. Moves then make room for others. Nodes
/// that are still out of reach of free egress are hung where the most is left to share. O(legs · log legs).
pub fn grow(overlay: &Overlay<'_>, aim: Aim<'_>) -> Tree {
    let nodes = overlay.nodes();
    let partakes = |node: &usize| {
        overlay.takes_part(*node)
            && aim.ceilings[*node] > 0.0
            && (overlay.receives(*node) || aim.relays)
    };
    let mut growing = Growing {
        overlay,
        aim,
        tree: Tree::new(nodes, overlay.source),
        children: vec![Vec::new(); nodes],
        left: (0..nodes).map(|node| overlay.egress(node)).collect(),
        hops: vec![0; nodes],
        reach: BinaryHeap::new(),
        waiting: (0..nodes).map(|node| partakes(&node)).collect(),
        worths: vec![None; nodes],
        stuck: false,
    };
    growing.reaches(overlay.source);
    growing.run();
    growing.make_room();
    if aim.relays && overlay.receivers().any(|node| growing.waiting[node]) {
        growing.stuck = true;
        growing.worths.fill(None);
        let layout = growing.tree.layout();
        layout.order().iter().for_each(|node| growing.reaches(*node));
        growing.run();
        growing.make_room();
    }
    growing.squeeze();
    growing.tree.prune(|node| overlay.receives(node));
    growing.tree
}

impl Growing<'_, '_> {
    fn run(&mut self) {
        while let Some((_, _, Reverse(node))) = self.reach.pop() {
            if !self.waiting[node] {
                continue;
            }
            if let Some(parent) = self.parent(node) {
                self.hang(node, parent);
                self.reaches(node);
            }
        }
    }

    fn hang(&mut self, node: usize, parent: usize) {
        if let Some(before) = self.tree.parent(node) {
            self.left[before] += self.aim.wants(node);
            self.children[before].retain(|child| *child != node);
        }
        self.tree.hang(node, Some(parent));
        self.children[parent].push(node);
        self.left[parent] -= self.aim.wants(node);
        self.hops[node] = self.hops[parent] + 1;
        self.waiting[node] = false;
    }

    /// Whether the parent gets enough, and its leg and what is left of its egress suffice for the node.
    fn fits(&self, parent: usize, leg: f64, node: usize) -> bool {
        self.suits(parent, leg, node) && self.left[parent] >= self.aim.wants(node)
    }

    /// As [`fits`](Self::fits), without the egress.
    fn suits(&self, parent: usize, leg: f64, node: usize) -> bool {
        let wants = self.aim.wants(node);
        (parent == self.overlay.source || self.aim.wants(parent) >= wants) && leg >= wants
    }

    /// Makes room for nodes that found none: children of full parents move to others, as along an augmenting path of a
    /// matching of at most [`MOVES`] steps.
    fn make_room(&mut self) {
        let (mut moved, mut misses) = (true, 0);
        while moved {
            moved = false;
            for node in 0..self.waiting.len() {
                if !self.waiting[node] || !self.overlay.receives(node) {
                    continue;
                }
                if self.augment(node) {
                    self.reaches(node);
                    self.run();
                    (moved, misses) = (true, 0);
                } else {
                    misses += 1;
                }
                if misses == PATIENCE {
                    return;
                }
            }
        }
    }

    fn augment(&mut self, node: usize) -> bool {
        let mut seen = BTreeSet::new();
        let parent = self
            .parents_of(node)
            .into_iter()
            .find(|p| self.make_room_at(node, *p, MOVES, &mut seen));
        parent.inspect(|parent| self.hang(node, *parent)).is_some()
    }

    /// The nodes in the tree that could be its parent if they had the egress.
    fn parents_of(&self, node: usize) -> Vec<usize> {
        let suits = |(parent, leg): &(usize, f64)| {
            self.tree.has(*parent) && self.suits(*parent, *leg, node)
        };
        self.overlay.ins(node).filter(suits).map(|leg| leg.0).collect()
    }

    /// Makes room for the node at that parent. Returns whether it did.
    fn make_room_at(
        &mut self,
        node: usize,
        parent: usize,
        moves: u32,
        seen: &mut BTreeSet<usize>,
    ) -> bool {
        let wants = self.aim.wants(node);
        if self.left[parent] >= wants {
            return true;
        }
        if moves == 0 || !seen.insert(parent) {
            return false;
        }
        for child in self.children[parent].clone() {
            if self.left[parent] + self.aim.wants(child) < wants {
                continue;
            }
            for other in self.parents_of(child) {
                let elsewhere = other != parent && !self.tree.is_above(child, other);
                // Moves in the recursion may have put `other` below the child.
                if elsewhere
                    && self.make_room_at(child, other, moves - 1, seen)
                    && !self.tree.is_above(child, other)
                    && self.tree.parent(child) == Some(parent)
                {
                    self.hang(child, other);
                    return true;
                }
            }
        }
        false
    }

    fn reaches(&mut self, parent: usize) {
        let outs: Vec<(usize, f64)> = self.overlay.outs(parent).collect();
        for (node, leg) in outs {
            if self.waiting[node]
                && self.fits(parent, leg, node)
                && let Some(rank) = self.rank(node)
            {
                let ways = self.overlay.graph.in_degree(node);
                self.reach.push((rank, Reverse(ways), Reverse(node)));
            }
        }
    }

    /// The rank of a node in reach; `None` for a relay that gives no more than it takes, unless there is no other way.
    fn rank(&mut self, node: usize) -> Option<u64> {
        let worth = self.worths[node].unwrap_or_else(|| self.worth(node));
        self.worths[node] = Some(worth);
        let takes = self.aim.wants(node);
        if self.overlay.receives(node) {
            return Some(worth.max(1));
        }
        let way = (self.stuck && worth as f64 >= takes).then_some(0);
        if worth as f64 > takes { Some(worth) } else { way }
    }

    /// What the node could hand on to receivers that wait, bit/s.
    fn worth(&self, node: usize) -> u64 {
        let fits = |(to, leg): &(usize, f64)| {
            self.waiting[*to]
                && self.aim.wants(*to) <= leg.min(self.aim.wants(node))
                && self.overlay.receives(*to)
        };
        let wanted = self.overlay.outs(node).filter(fits).map(|(to, _)| self.aim.wants(to));
        self.overlay.egress(node).min(wanted.sum()) as u64
    }

    fn parent(&self, node: usize) -> Option<usize> {
        let fits =
            |(parent, leg): &(usize, f64)| self.tree.has(*parent) && self.fits(*parent, *leg, node);
        let parents = self.overlay.ins(node).filter(fits).map(|(parent, _)| parent);
        let left = |parent: usize| self.left[parent] as u64;
        match self.aim.rule {
            GrowthRule::Near => parents.min_by_key(|p| (self.hops[*p], Reverse(left(*p)), *p)),
            GrowthRule::Tight => parents.min_by_key(|p| (left(*p), self.hops[*p], *p)),
            GrowthRule::Rare => {
                parents.min_by_key(|p| (self.overlay.graph.out_degree(*p), self.hops[*p], *p))
            }
        }
    }

    /// Hangs the remaining nodes where the most is left for one more, although it is less than they want.
    fn squeeze(&mut self) {
        loop {
            let waiting: Vec<usize> =
                (0..self.waiting.len()).filter(|node| self.waiting[*node]).collect();
            let mut hung = false;
            for node in waiting {
                if let Some(parent) = self.roomiest(node) {
                    self.hang(node, parent);
                    hung = true;
                }
            }
            if !hung {
                return;
            }
        }
    }

    fn roomiest(&self, node: usize) -> Option<usize> {
        let parents = self.overlay.ins(node).filter(|(parent, _)| self.tree.has(*parent));
        let gets = |(parent, leg): (usize, f64)| {
            let has = if parent == self.overlay.source { leg } else { self.aim.wants(parent) };
            (has.min(leg).min(self.left[parent]), parent)
        };
        let best = parents.map(gets).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        best.map(|best| best.1)
    }
}
