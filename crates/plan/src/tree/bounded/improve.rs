//! Moves that make a tree better, one after the other.

use super::{has_relays, score::TreeScore};
use crate::tree::{Overlay, Tree, depth::ChainLoss};

/// The number of parents tried for each node: the source, then those with the fastest legs.
const PARENTS: usize = 24;

/// The number of parents tried for a relay that is not in the tree yet.
const RELAY_PARENTS: usize = 8;

/// A local search among trees, bounded by its effort.
pub struct TreeSearch<'a, 'b> {
    overlay: &'a Overlay<'b>,
    model: &'a ChainLoss,
    /// The number of node rates that may still be computed.
    effort: u64,
    /// Whether there are nodes that are useless as leaves.
    relays: bool,
}

impl<'a, 'b> TreeSearch<'a, 'b> {
    /// Creates a search that computes at most `effort` node rates.
    pub fn new(overlay: &'a Overlay<'b>, model: &'a ChainLoss, effort: u64) -> Self {
        Self { overlay, model, effort, relays: has_relays(overlay) }
    }

    /// Returns the tree after all moves that help, or when the effort is spent. A move hangs a node with its subtree
    /// under another parent, exchanges two nodes, or puts a relay in between.
    pub fn improve(&mut self, mut tree: Tree) -> (Tree, TreeScore) {
        let mut score = TreeScore::of(self.overlay, &tree, self.model);
        let parents: Vec<Vec<usize>> = (0..tree.nodes()).map(|node| self.parents(node)).collect();
        // Listing the parents costs effort as well.
        self.effort = self.effort.saturating_sub(self.overlay.graph.measured() as u64);
        while self.effort > 0 && self.pass(&mut tree, &mut score, &parents) {}
        (tree, score)
    }

    /// As [`improve`](Self::improve), and then searches from each tree that is worse by one move for a better one
    /// beyond.
    pub fn look_beyond(&mut self, tree: Tree) -> (Tree, TreeScore) {
        let mut best = self.improve(tree);
        while let Some(better) = self.search_beyond(&best) {
            best = better;
        }
        best
    }

    fn search_beyond(&mut self, best: &(Tree, TreeScore)) -> Option<(Tree, TreeScore)> {
        for node in self.slowest_first(&best.0) {
            for parent in self.parents(node) {
                if self.effort == 0 {
                    return None;
                }
                let mut tree = best.0.clone();
                if tree.hang(parent, Some(self.overlay.source)) | tree.hang(node, Some(parent)) {
                    let found = self.improve(tree);
                    if found.1.beats(&best.1) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Makes one round of all moves. Returns whether one helped.
    fn pass(&mut self, tree: &mut Tree, score: &mut TreeScore, parents: &[Vec<usize>]) -> bool {
        let mut helped = false;
        for node in self.slowest_first(tree) {
            for parent in &parents[node] {
                helped |= self.attempt(tree, score, |tree| tree.hang(node, Some(*parent)));
                if !tree.has(*parent) {
                    helped |= self.by_relay(tree, score, (*parent, node), &parents[*parent]);
                }
            }
            for other in 0..tree.nodes() {
                if self.effort == 0 {
                    return helped;
                }
                if tree.has(node) && tree.has(other) && node < other {
                    helped |= self.attempt(tree, score, |tree| exchange(tree, node, other));
                    helped |= self.attempt(tree, score, |tree| cross(tree, node, other));
                }
            }
        }
        helped
    }

    /// Tries a relay that is not in the tree yet under any of its parents, with the node below it.
    fn by_relay(
        &mut self,
        tree: &mut Tree,
        score: &mut TreeScore,
        (relay, node): (usize, usize),
        parents: &[usize],
    ) -> bool {
        parents.iter().take(RELAY_PARENTS).any(|parent| {
            let place =
                |tree: &mut Tree| tree.hang(relay, Some(*parent)) && tree.hang(node, Some(relay));
            self.attempt(tree, score, place)
        })
    }

    /// Applies a move if it makes the tree better. Returns whether it did.
    fn attempt(
        &mut self,
        tree: &mut Tree,
        score: &mut TreeScore,
        change: impl FnOnce(&mut Tree) -> bool,
    ) -> bool {
        if self.effort == 0 {
            return false;
        }
        let mut next = tree.clone();
        if !change(&mut next) {
            return false;
        }
        self.effort = self.effort.saturating_sub(tree.nodes() as u64);
        if self.relays {
            next.prune(|node| self.overlay.receives(node));
        }
        let found = TreeScore::of(self.overlay, &next, self.model);
        let better = found.beats(score);
        if better {
            (*tree, *score) = (next, found);
        }
        better
    }

    /// The possible parents of a node: the source first, then by the rate of the leg.
    fn parents(&self, node: usize) -> Vec<usize> {
        let mut ins: Vec<(usize, f64)> = self.overlay.ins(node).collect();
        ins.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let source = ins.iter().position(|leg| leg.0 == self.overlay.source);
        if let Some(at) = source {
            let source = ins.remove(at);
            ins.insert(0, source);
        }
        ins.into_iter().take(PARENTS).map(|leg| leg.0).collect()
    }

    fn slowest_first(&self, tree: &Tree) -> Vec<usize> {
        let flows = self.overlay.flows(tree, self.model);
        let mut nodes: Vec<usize> =
            (0..tree.nodes()).filter(|node| self.overlay.takes_part(*node)).collect();
        nodes.sort_by(|a, b| flows[*a].rate.total_cmp(&flows[*b].rate).then(a.cmp(b)));
        nodes
    }
}

/// Exchanges the parents of two nodes, each with its subtree.
fn exchange(tree: &mut Tree, a: usize, b: usize) -> bool {
    let (Some(above_a), Some(above_b)) = (tree.parent(a), tree.parent(b)) else { return false };
    above_a != above_b && tree.hang(a, Some(above_b)) && tree.hang(b, Some(above_a))
}

/// Exchanges the places of two nodes: parents and children.
fn cross(tree: &mut Tree, a: usize, b: usize) -> bool {
    let other = |node: usize| match node {
        node if node == a => b,
        node if node == b => a,
        node => node,
    };
    if tree.parent(a).is_none() || tree.parent(b).is_none() {
        return false;
    }
    let parents = (0..tree.nodes()).map(|node| tree.parent(other(node)).map(other)).collect();
    *tree = Tree::from_parents(tree.source(), parents);
    true
}
