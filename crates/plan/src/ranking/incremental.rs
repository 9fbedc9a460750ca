//! The client-oblivious ranking, updated as legs change one by one.

use super::{MOST_GAIN, Ranking, Score, mean::Gains, units};
use crate::Graph;
use thalweg_units::Rate;

/// A graph and its client-oblivious scores (UKAIRO Eq. 3), kept in step.
///
/// A change of one leg costs O(d) for d measured legs at a node, not O(n·d²). The result is exactly what
/// [`Ranking::oblivious`] computes from the whole graph, because gains are added as whole numbers.
#[derive(Clone, Debug)]
pub struct Incremental {
    graph: Graph,
    gains: Vec<Gains>,
}

impl Incremental {
    /// Starts with the measured legs of `graph`. O(n·d²).
    pub fn new(graph: Graph) -> Self {
        let mut gains = vec![Gains::default(); graph.nodes()];
        let mut triples = super::Triples::new(&graph);
        for (l, gains) in gains.iter_mut().enumerate() {
            triples.of(l, |t| gains.add(units(t.direct, t.detour, MOST_GAIN)));
        }
        Self { graph, gains }
    }

    pub const fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Sets the rate from `i` to `j`, or removes it, as [`Graph::set`]. Returns the previous rate.
    pub fn set(&mut self, i: usize, j: usize, rate: Option<Rate>) -> Option<Rate> {
        if self.graph.rate(i, j) == rate {
            return rate;
        }
        self.touch(i, j, Gains::remove);
        let before = self.graph.set(i, j, rate);
        self.touch(i, j, Gains::add);
        before
    }

    /// The relay's score, as in the ranking; `None` if out of range.
    pub fn score(&self, relay: usize) -> Option<Score> {
        let gains = self.gains.get(relay)?;
        Some(Score { relay, score: gains.mean(), evidence: gains.pairs() })
    }

    /// The present ranking. O(n · log n).
    pub fn ranking(&self) -> Ranking {
        Ranking::of(self.gains.iter().copied().enumerate())
    }

    /// Applies `change` to the gain of each measured triple that the leg (i,j) is part of: as its direct path, as its
    /// first leg (the relay is j), or as its second (the relay is i).
    fn touch(&mut self, i: usize, j: usize, change: fn(&mut Gains, u64)) {
        let Some(leg) = self.graph.rate(i, j) else { return };
        for (l, detour) in self.graph.detours(i, j) {
            change(&mut self.gains[l], units(leg, detour, MOST_GAIN));
        }
        for (_, direct, second) in self.graph.shared_outs(i, j) {
            change(&mut self.gains[j], units(direct, leg.min(second), MOST_GAIN));
        }
        for (_, direct, first) in self.graph.shared_ins(j, i) {
            change(&mut self.gains[i], units(direct, leg.min(first), MOST_GAIN));
        }
    }
}
