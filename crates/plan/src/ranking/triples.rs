//! The triples (i, l, j) of which all three legs are measured.

use crate::Graph;
use thalweg_units::Rate;

/// A source's row is searched for a relay's destinations, instead of read whole, if it is more than this many times
/// longer than the relay's.
const SEARCHED: usize = 16;

/// One measured triple.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triple {
    pub(crate) i: usize,
    pub(crate) j: usize,
    pub(crate) direct: Rate,
    /// The slower leg's rate by way of the relay.
    pub(crate) detour: Rate,
}

/// Finds a relay's triples.
///
/// O(Σ over sources i of min(d_i, 16·d_l)) a relay, d the legs out of a node: in a mesh
/// with d legs at each node O(d²), so O(n·d²) for all relays.
#[derive(Debug)]
pub(crate) struct Triples<'g> {
    graph: &'g Graph,
    /// Per node: 1 + its position in the relay's row of outgoing legs; 0: none.
    position: Vec<u32>,
}

impl<'g> Triples<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        Self { graph, position: vec![0; graph.nodes()] }
    }

    /// Calls `tell` with all triples by way of `l`, by source.
    pub(crate) fn of(&mut self, l: usize, mut tell: impl FnMut(Triple)) {
        let graph = self.graph;
        let ends = graph.out_ends(l);
        for (at, j) in (1..).zip(ends) {
            self.position[*j as usize] = at;
        }
        for (i, first) in graph.ins(l) {
            if graph.out_degree(i) <= SEARCHED * ends.len() {
                self.read(l, i, first, &mut tell);
            } else {
                for (j, direct, second) in graph.shared_outs(i, l) {
                    tell(Triple { i, j, direct, detour: first.min(second) });
                }
            }
        }
        ends.iter().for_each(|j| self.position[*j as usize] = 0);
    }

    fn read(&self, l: usize, i: usize, first: Rate, tell: &mut impl FnMut(Triple)) {
        let seconds = self.graph.out_rates(l);
        let legs = self.graph.out_ends(i).iter().zip(self.graph.out_rates(i));
        for (j, direct) in legs {
            let position = self.position[*j as usize];
            if position > 0 {
                let detour = first.min(seconds[position as usize - 1]);
                tell(Triple { i, j: *j as usize, direct: *direct, detour });
            }
        }
    }
}
