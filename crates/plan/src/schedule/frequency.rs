//! The number of measured pairs of each node as a relay: the frequencies of UKAIRO's Algorithm 1.

use super::{Pair, ScheduleInput, requested_legs::RequestedLegs};
use crate::{Graph, ranking::Triples};
use thalweg_units::Rate;

/// For each node l, the number of ordered pairs (a,b) of which (a,b), (a,l) and (l,b) are all covered.
///
/// One more leg costs O(d) for d legs at its ends.
#[derive(Clone, Debug)]
pub(super) struct Frequency {
    /// The covered legs; their rates have no meaning.
    covered: Graph,
    pairs: Vec<u64>,
}

impl Frequency {
    pub(super) fn new(nodes: usize) -> Self {
        Self { covered: Graph::new(nodes), pairs: vec![0; nodes] }
    }

    /// Starts with the measured legs: O(n·d²), far less than leg by leg.
    fn of(graph: &Graph) -> Self {
        let mut triples = Triples::new(graph);
        let mut pairs = vec![0; graph.nodes()];
        for (l, pairs) in pairs.iter_mut().enumerate() {
            triples.of(l, |_| *pairs += 1);
        }
        Self { covered: graph.clone(), pairs }
    }

    /// The frequency of each node.
    pub(super) fn pairs(&self) -> &[u64] {
        &self.pairs
    }

    /// Takes over the legs that are measured or asked for. O(legs); rows that have not changed cost a comparison of
    /// bytes.
    pub(super) fn follow(&mut self, known: &ScheduleInput<'_>, ledger: &RequestedLegs) {
        if self.pairs.len() != known.graph.nodes() || self.covered.measured() == 0 {
            *self = Self::of(known.graph);
        }
        for i in 0..self.pairs.len() {
            if self.covered.out_ends(i) == known.graph.out_ends(i) {
                continue;
            }
            let before = self.covered.out_ends(i).iter().map(|j| (i, *j as usize));
            let gone: Vec<Pair> = before.filter(|pair| !ledger.covers(known, *pair)).collect();
            gone.into_iter().for_each(|pair| self.remove(pair));
            known.graph.outs(i).for_each(|(j, _)| self.add((i, j)));
        }
        ledger.asked().iter().for_each(|pair| self.add(*pair));
    }

    fn add(&mut self, (i, j): Pair) {
        if self.covered.rate(i, j).is_none() {
            self.covered.set(i, j, Some(Rate::ZERO));
            self.touch((i, j), |pairs, by| *pairs += by);
        }
    }

    fn remove(&mut self, (i, j): Pair) {
        self.touch((i, j), |pairs, by| *pairs -= by);
        self.covered.set(i, j, None);
    }

    /// Applies `change` for each triple that the leg is part of: as its direct path, as its first leg (the relay is j),
    /// or as its second (the relay is i).
    fn touch(&mut self, (i, j): Pair, change: fn(&mut u64, u64)) {
        for (l, _) in self.covered.detours(i, j) {
            change(&mut self.pairs[l], 1);
        }
        change(&mut self.pairs[j], self.covered.shared_outs(i, j).count() as u64);
        change(&mut self.pairs[i], self.covered.shared_ins(j, i).count() as u64);
    }
}
