//! The pivots of the network simplex: an arc enters the tree, flow goes round its cycle, an arc leaves.

use super::{
    Infeasible, Network, NetworkFlow,
    tree::{NONE, SpanningTree},
};

/// The smallest block of arcs that is searched for an entering arc.
const SMALLEST_BLOCK: usize = 16;

/// Whether an arc is in the tree, or empty or full outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArcState {
    InTree,
    Empty,
    Full,
}

/// The arcs of the problem in mixed order, then one artificial arc per node to or from the root.
struct Simplex {
    /// The problem's arc at each position.
    order: Vec<u32>,
    from: Vec<u32>,
    to: Vec<u32>,
    capacity: Vec<u64>,
    cost: Vec<i64>,
    flow: Vec<u64>,
    state: Vec<ArcState>,
    tree: SpanningTree,
    /// The number of the problem's arcs. The artificial ones, which never enter again, come after.
    real: usize,
    /// Where the search for an entering arc continues.
    next: usize,
}

/// What bounds the flow of a pivot.
struct Blocking {
    amount: u64,
    /// The node whose arc to its parent leaves; [`NONE`]: the entering arc itself.
    node: u32,
    /// Whether that node is on the side where the flow comes down to the entering arc's start.
    before: bool,
}

/// Finds a cheapest flow that satisfies all supplies and demands.
pub fn solve(network: &Network) -> Result<NetworkFlow, Infeasible> {
    let mut simplex = Simplex::start(network);
    while let Some(arc) = simplex.entering() {
        simplex.pivot(arc);
    }
    simplex.finish(network.supply().len())
}

/// Orders the arcs so that one block of the search has some from everywhere: every k-th arc, then the same from the
/// next one on. Blocks of neighbours (in a time-expanded graph all of one slot) hold arcs that want the same change:
/// the tree then goes back and forth, with eight times the pivots (experiments/reports/planning.md).
fn mixed(arcs: u32) -> Vec<u32> {
    let step = arcs.isqrt().max(1);
    (0..step).flat_map(|first| (first..arcs).step_by(step as usize)).collect()
}

impl Simplex {
    /// Starts with all supply on artificial arcs, each dearer than any way through the network.
    ///
    /// Every tree arc can carry more towards the root, so the tree is strongly feasible.
    fn start(network: &Network) -> Self {
        let (arcs, nodes) = (network.arcs(), network.supply().len() as u32);
        let dear = arcs.iter().map(|arc| arc.cost.abs()).max().unwrap_or(0) + 1;
        let dear = dear * (i64::from(nodes) + 1);
        let order = mixed(arcs.len() as u32);
        let mixed = || order.iter().map(|arc| &arcs[*arc as usize]);
        let mut simplex = Self {
            from: mixed().map(|arc| arc.from).collect(),
            to: mixed().map(|arc| arc.to).collect(),
            capacity: mixed().map(|arc| arc.capacity).collect(),
            cost: mixed().map(|arc| arc.cost).collect(),
            order,
            flow: vec![0; arcs.len()],
            state: vec![ArcState::Empty; arcs.len()],
            tree: SpanningTree::new(nodes),
            real: arcs.len(),
            next: 0,
        };
        for (node, supply) in (0..nodes).zip(network.supply()) {
            simplex.plant(node, *supply, nodes, dear);
        }
        simplex
    }

    fn plant(&mut self, node: u32, supply: i64, root: u32, dear: i64) {
        let (arc, up) = (self.from.len() as u32, supply >= 0);
        let (from, to) = if up { (node, root) } else { (root, node) };
        self.from.push(from);
        self.to.push(to);
        self.capacity.push(u64::MAX);
        self.cost.push(dear);
        self.flow.push(supply.unsigned_abs());
        self.state.push(ArcState::InTree);
        self.tree.plant(node, root, arc, up, if up { -dear } else { dear });
    }

    /// Cost less the difference in potential; negative for an empty arc that would save cost.
    fn reduced_cost(&self, arc: usize) -> i64 {
        let at = |node: u32| self.tree.potential[node as usize];
        self.cost[arc] + at(self.from[arc]) - at(self.to[arc])
    }

    /// The arc with the most to gain in the next block that has any such arc.
    fn entering(&mut self) -> Option<usize> {
        let block = self.real.isqrt().max(SMALLEST_BLOCK);
        let (mut best, mut most) = (None, 0);
        for looked in 1..=self.real {
            let arc = self.next;
            self.next = if arc + 1 == self.real { 0 } else { arc + 1 };
            let gain = match self.state[arc] {
                ArcState::InTree => 0,
                ArcState::Empty => -self.reduced_cost(arc),
                ArcState::Full => self.reduced_cost(arc),
            };
            if gain > most {
                (best, most) = (Some(arc), gain);
            }
            if best.is_some() && looked % block == 0 {
                break;
            }
        }
        best
    }

    fn pivot(&mut self, arc: usize) {
        let fills = self.state[arc] == ArcState::Empty;
        let (from, to) = (self.from[arc], self.to[arc]);
        let (start, end) = if fills { (from, to) } else { (to, from) };
        let join = self.tree.join(start, end);
        let blocking = self.blocking(arc, fills, (start, end), join);
        self.augment(arc, fills, (start, end), join, blocking.amount);
        if blocking.node == NONE {
            self.state[arc] = if fills { ArcState::Full } else { ArcState::Empty };
        } else {
            self.exchange(arc, (start, end), &blocking);
        }
    }

    /// The smallest room on the cycle: down from `join` to the start, over the arc, and up from its end. Among equals
    /// the last on the cycle counts, which keeps the tree strongly feasible (*Network Flows* §11.6).
    fn blocking(&self, arc: usize, fills: bool, ends: (u32, u32), join: u32) -> Blocking {
        let own = if fills { self.capacity[arc] - self.flow[arc] } else { self.flow[arc] };
        let mut least = Blocking { amount: own, node: NONE, before: false };
        let mut node = ends.0;
        while node != join {
            let place = self.tree.at(node);
            let room = self.room(place.arc as usize, !place.up);
            if room < least.amount {
                least = Blocking { amount: room, node, before: true };
            }
            node = place.parent;
        }
        node = ends.1;
        while node != join {
            let place = self.tree.at(node);
            let room = self.room(place.arc as usize, place.up);
            if room <= least.amount {
                least = Blocking { amount: room, node, before: false };
            }
            node = place.parent;
        }
        least
    }

    /// The room of an arc along its direction, or against it.
    fn room(&self, arc: usize, along: bool) -> u64 {
        if along { self.capacity[arc] - self.flow[arc] } else { self.flow[arc] }
    }

    fn augment(&mut self, arc: usize, fills: bool, ends: (u32, u32), join: u32, amount: u64) {
        if amount == 0 {
            return;
        }
        self.push(arc, fills, amount);
        for (mut node, down) in [(ends.0, true), (ends.1, false)] {
            while node != join {
                let place = *self.tree.at(node);
                self.push(place.arc as usize, place.up != down, amount);
                node = place.parent;
            }
        }
    }

    fn push(&mut self, arc: usize, along: bool, amount: u64) {
        let flow = &mut self.flow[arc];
        *flow = if along { *flow + amount } else { *flow - amount };
    }

    /// Puts the entering arc into the tree in place of the leaving one.
    fn exchange(&mut self, arc: usize, ends: (u32, u32), blocking: &Blocking) {
        let leaving = self.tree.at(blocking.node).arc as usize;
        self.state[leaving] =
            if self.flow[leaving] == 0 { ArcState::Empty } else { ArcState::Full };
        self.state[arc] = ArcState::InTree;
        let (inside, outside) = if blocking.before { ends } else { (ends.1, ends.0) };
        let up = self.from[arc] == inside;
        let reduced = self.reduced_cost(arc);
        let change = if up { -reduced } else { reduced };
        self.tree.graft(blocking.node, inside, outside, arc as u32, up, change);
    }

    fn finish(mut self, nodes: usize) -> Result<NetworkFlow, Infeasible> {
        // Each stranded unit uses one artificial arc to the root and one from it.
        let artificial = &self.flow[self.real..];
        let stranded: u64 = (self.real..self.flow.len())
            .filter(|arc| self.to[*arc] as usize == nodes)
            .map(|arc| artificial[arc - self.real])
            .sum();
        if stranded > 0 {
            return Err(Infeasible { stranded });
        }
        let mut on = vec![0; self.real];
        self.order.iter().zip(&self.flow).for_each(|(arc, flow)| on[*arc as usize] = *flow);
        self.tree.potential.truncate(nodes);
        Ok(NetworkFlow { on, potential: self.tree.potential })
    }
}
