//! The spanning tree of the basis: each node's parent, the arc to it, and the node's potential.

/// No node, no arc.
pub const NONE: u32 = u32::MAX;

/// A node of the tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeNode {
    /// The node above; [`NONE`] at the root.
    pub parent: u32,
    /// The arc to the node above.
    pub arc: u32,
    /// Whether that arc leads up, from this node to its parent.
    pub up: bool,
    /// Steps to the root.
    pub depth: u32,
    first_child: u32,
    next: u32,
    before: u32,
}

/// A rooted spanning tree. Moving a subtree takes time in proportion to its size.
#[derive(Debug)]
pub struct SpanningTree {
    places: Vec<TreeNode>,
    /// The price of a unit at each node: reduced cost = cost + potential(from) − potential(to). Kept apart from the
    /// nodes: pricing reads nothing else of a node, and these fit a cache.
    pub potential: Vec<i64>,
    stack: Vec<u32>,
}

impl SpanningTree {
    /// Creates a tree of `root` alone, with room for the nodes below it (0 to root − 1).
    pub fn new(root: u32) -> Self {
        let alone = TreeNode {
            parent: NONE,
            arc: NONE,
            up: false,
            depth: 0,
            first_child: NONE,
            next: NONE,
            before: NONE,
        };
        let nodes = root as usize + 1;
        Self { places: vec![alone; nodes], potential: vec![0; nodes], stack: Vec::new() }
    }

    /// The place of a node.
    pub fn at(&self, node: u32) -> &TreeNode {
        &self.places[node as usize]
    }

    /// Hangs the single `node` under `parent` by `arc`, at this potential; used for the first tree.
    pub fn plant(&mut self, node: u32, parent: u32, arc: u32, up: bool, potential: i64) {
        self.link(node, parent, arc, up);
        let depth = self.at(parent).depth + 1;
        self.places[node as usize].depth = depth;
        self.potential[node as usize] = potential;
    }

    /// Moves the subtree below `top` to under `parent`. `node`, which is in the subtree, becomes its head and hangs by
    /// `arc`; all potentials in the subtree change by `change`.
    pub fn graft(&mut self, top: u32, node: u32, parent: u32, arc: u32, up: bool, change: i64) {
        self.turn(node, top);
        self.link(node, parent, arc, up);
        self.settle(node, change);
    }

    /// The lowest common ancestor of two nodes.
    pub fn join(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            if self.at(a).depth >= self.at(b).depth {
                a = self.at(a).parent;
            } else {
                b = self.at(b).parent;
            }
        }
        a
    }

    /// Cuts off the subtree of `top`, and reverses the path from `node` up to `top`.
    fn turn(&mut self, node: u32, top: u32) {
        let (mut child, mut place) = (node, *self.at(node));
        self.cut(child);
        while child != top {
            let (parent, above) = (place.parent, *self.at(place.parent));
            self.cut(parent);
            self.link(parent, child, place.arc, !place.up);
            (child, place) = (parent, above);
        }
    }

    /// Removes `node` from its parent's children.
    fn cut(&mut self, node: u32) {
        let TreeNode { parent, next, before, .. } = *self.at(node);
        match before {
            NONE => self.places[parent as usize].first_child = next,
            _ => self.places[before as usize].next = next,
        }
        if next != NONE {
            self.places[next as usize].before = before;
        }
    }

    /// Makes `node` the first child of `parent`.
    fn link(&mut self, node: u32, parent: u32, arc: u32, up: bool) {
        let next = std::mem::replace(&mut self.places[parent as usize].first_child, node);
        if next != NONE {
            self.places[next as usize].before = node;
        }
        let place = &mut self.places[node as usize];
        (place.parent, place.arc, place.up) = (parent, arc, up);
        (place.next, place.before) = (next, NONE);
    }

    /// Updates the depths and potentials of a whole subtree.
    fn settle(&mut self, top: u32, change: i64) {
        let mut stack = std::mem::take(&mut self.stack);
        stack.push(top);
        while let Some(node) = stack.pop() {
            let depth = self.at(self.at(node).parent).depth + 1;
            let place = &mut self.places[node as usize];
            place.depth = depth;
            self.potential[node as usize] += change;
            let mut child = place.first_child;
            while child != NONE {
                stack.push(child);
                child = self.at(child).next;
            }
        }
        self.stack = stack;
    }
}
