//! Trees of nodes, and their layout from the source down.

use std::ops::Range;

/// A tree from a source to some of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    source: usize,
    parent: Vec<Option<usize>>,
}

impl Tree {
    /// Creates a tree of the source alone, among `nodes` nodes.
    pub fn new(nodes: usize, source: usize) -> Self {
        Self { source, parent: vec![None; nodes] }
    }

    /// Creates the tree of these parents, by node; `None` for the source and for nodes outside the tree.
    ///
    /// Nodes that do not hang on the source, and cycles, are left out.
    pub fn from_parents(source: usize, parent: Vec<Option<usize>>) -> Self {
        let mut tree = Self { source, parent };
        if let Some(own) = tree.parent.get_mut(source) {
            *own = None;
        }
        let inside = tree.layout().order;
        let mut kept = Self::new(tree.parent.len(), source);
        inside.into_iter().for_each(|node| kept.parent[node] = tree.parent[node]);
        kept
    }

    /// The root.
    pub const fn source(&self) -> usize {
        self.source
    }

    /// The number of nodes, in the tree or not.
    pub fn nodes(&self) -> usize {
        self.parent.len()
    }

    /// The node's parent; `None` for the source and for nodes outside the tree.
    pub fn parent(&self, node: usize) -> Option<usize> {
        self.parent.get(node).copied().flatten()
    }

    /// Whether the node is the source or below it.
    pub fn has(&self, node: usize) -> bool {
        node == self.source || self.parent(node).is_some()
    }

    /// Hangs `node`, with its subtree, under `parent`; or takes it out with its subtree.
    ///
    /// Does nothing and returns `false` if the result is no tree: the parent is outside or below the node, one of them
    /// is unknown, or the node is the source.
    pub fn hang(&mut self, node: usize, parent: Option<usize>) -> bool {
        let fits = node != self.source && node < self.nodes();
        let Some(parent) = parent.filter(|_| fits) else {
            if fits && self.parent[node].is_some() {
                let below = self.below(node);
                below.into_iter().for_each(|node| self.parent[node] = None);
            }
            return fits;
        };
        if !self.has(parent) || self.is_above(node, parent) {
            return false;
        }
        self.parent[node] = Some(parent);
        true
    }

    /// Whether `upper` is `lower` or on the path from the source to it.
    pub fn is_above(&self, upper: usize, lower: usize) -> bool {
        self.way_up(lower).any(|node| node == upper)
    }

    /// The node, its parent, and so on to the source.
    pub fn way_up(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |node| self.parent(*node))
    }

    /// The number of hops from the source; `None` outside the tree.
    pub fn depth(&self, node: usize) -> Option<usize> {
        self.has(node).then(|| self.way_up(node).count() - 1)
    }

    /// All nodes' children, and the order from the source down. O(n).
    pub fn layout(&self) -> Layout {
        Layout::new(self, self.source)
    }

    /// The node and all below it.
    fn below(&self, node: usize) -> Vec<usize> {
        Layout::new(self, node).order
    }

    /// Takes out the nodes that are neither wanted nor have a wanted node below them.
    pub fn prune(&mut self, wanted: impl Fn(usize) -> bool) {
        let mut needed = vec![false; self.nodes()];
        for node in self.layout().order.into_iter().rev().filter(|node| *node != self.source) {
            needed[node] |= wanted(node);
            match self.parent[node] {
                Some(parent) if needed[node] => needed[parent] = true,
                _ => self.parent[node] = None,
            }
        }
    }
}

/// The layout of a tree from the source down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where each node's children begin in `below`, and the end of the last one's.
    first: Vec<usize>,
    below: Vec<usize>,
    order: Vec<usize>,
}

impl Layout {
    fn new(tree: &Tree, root: usize) -> Self {
        let mut first = vec![0; tree.nodes() + 1];
        let inside = |parent: &Option<usize>| parent.filter(|parent| *parent < tree.nodes());
        tree.parent.iter().filter_map(inside).for_each(|parent| first[parent + 1] += 1);
        for node in 0..tree.nodes() {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut below = vec![0; first.last().copied().unwrap_or(0)];
        for (node, parent) in tree.parent.iter().enumerate() {
            if let Some(parent) = inside(parent) {
                below[next[parent]] = node;
                next[parent] += 1;
            }
        }
        let mut layout = Self { first, below, order: vec![root] };
        let mut head = 0;
        while let Some(node) = layout.order.get(head).copied() {
            let Range { start, end } = layout.range(node);
            layout.order.extend_from_slice(&layout.below[start..end]);
            head += 1;
        }
        layout
    }

    fn range(&self, node: usize) -> Range<usize> {
        let at = |node: usize| self.first.get(node).copied().unwrap_or(self.below.len());
        at(node)..at(node + 1)
    }

    /// The node's children, ascending; empty for an unknown node.
    pub fn children(&self, node: usize) -> &[usize] {
        &self.below[self.range(node)]
    }

    /// The nodes in the tree, parents before children, nearer before farther; the source first.
    pub fn order(&self) -> &[usize] {
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> Tree {
        Tree::from_parents(0, vec![None, Some(0), Some(1), Some(2)])
    }

    #[test]
    fn cycles_and_disconnected_nodes_are_left_out() {
        let tree = Tree::from_parents(0, vec![Some(1), Some(0), Some(3), Some(2), Some(9)]);
        assert_eq!(tree.layout().order(), &[0, 1]);
        assert!(tree.has(0) && tree.has(1) && !tree.has(2) && !tree.has(4));
        assert_eq!((tree.parent(0), tree.depth(1), tree.depth(2)), (None, Some(1), None));
    }

    #[test]
    fn a_node_moves_with_all_below_it_and_never_below_itself() {
        let mut tree = line();
        assert!(!tree.hang(1, Some(3)) && !tree.hang(0, Some(1)) && !tree.hang(7, Some(0)));
        assert!(tree.hang(2, Some(0)));
        assert_eq!(tree.depth(3), Some(2));
        assert!(tree.hang(2, None));
        assert_eq!(tree.layout().order(), &[0, 1]);
        assert!(!tree.hang(3, Some(2)), "its parent is outside");
    }

    #[test]
    fn nodes_that_serve_no_wanted_node_are_pruned() {
        let mut tree = line();
        tree.prune(|node| node == 2);
        assert_eq!(tree.layout().order(), &[0, 1, 2]);
        tree.prune(|_| false);
        assert_eq!(tree.layout().order(), &[0]);
    }

    proptest! {
        #[test]
        fn moves_keep_it_a_tree(moves in prop::collection::vec((0_usize..8, 0_usize..9), 0..40)) {
            let mut tree = Tree::new(8, 3);
            for (node, parent) in moves {
                tree.hang(node, Some(parent).filter(|parent| *parent < 8));
                let inside = (0..8).filter(|node| tree.has(*node)).count();
                prop_assert_eq!(tree.layout().order().len(), inside);
                for node in (0..8).filter(|node| tree.has(*node)) {
                    prop_assert_eq!(tree.way_up(node).last(), Some(3));
                }
            }
        }
    }
}
