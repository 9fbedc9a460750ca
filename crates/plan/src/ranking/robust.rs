//! A ranking that no single liar decides.

use super::{Ranking, Triples, mean::Gains, units};
use crate::Graph;

/// What a pair's gain counts as at most in the robust ranking: ten times the direct rate.
pub const ROBUST_MOST_GAIN: f64 = 9.0;

/// With fewer nodes, whoever is left out leaves no pair.
const LEAST_NODES: usize = 4;

impl Ranking {
    /// [`Ranking::oblivious`] with three bounds on what those who report can do:
    ///
    /// 1. No pair counts as more than `most`, so that no score is above it.
    /// 2. A relay's own word is no evidence for it: triples with a leg of which
    ///    `sole(from, to)` says that the relay alone vouches for it do not count.
    /// 3. The score is the least of the means that stay when one other node's pairs, those
    ///    that begin or end there, are left out. So no node r, not even in league with
    ///    the relay, lifts it above what the others' pairs say by themselves.
    ///
    /// Downwards, a node that changes its claims about measured legs moves a relay's score by
    /// `most` times its share of the pairs at most, 2/(n−2) of them when all is measured.
    /// With k liars in league with a relay 3. fails, and the bound is `most` times their share.
    ///
    /// Whoever speaks for a leg must be one of its ends; that is for the table's keeper to
    /// see to. With fewer than four nodes nobody can be left out: 1. and 2. alone hold.
    /// A relay of which one node knows all pairs has score 0.
    ///
    /// Time as [`Ranking::oblivious`].
    pub fn robust(graph: &Graph, most: f64, sole: impl Fn(usize, usize) -> Option<usize>) -> Self {
        let mut triples = Triples::new(graph);
        let mut ends = Ends { gains: vec![Gains::default(); graph.nodes()], touched: vec![] };
        let relays = (0..graph.nodes()).map(|l| {
            let mut all = Gains::default();
            triples.of(l, |t| {
                if sole(t.i, l) != Some(l) && sole(l, t.j) != Some(l) {
                    let gain = units(t.direct, t.detour, most);
                    all.add(gain);
                    ends.add(t.i, gain);
                    ends.add(t.j, gain);
                }
            });
            let least = ends.least(all);
            (l, if graph.nodes() < LEAST_NODES { all } else { least })
        });
        Self::of(relays)
    }
}

/// One relay's gains by the ends of the pairs.
struct Ends {
    gains: Vec<Gains>,
    touched: Vec<usize>,
}

impl Ends {
    fn add(&mut self, end: usize, gain: u64) {
        if self.gains[end] == Gains::default() {
            self.touched.push(end);
        }
        self.gains[end].add(gain);
    }

    /// What stays of `all` without the end whose absence lowers the mean most; forgets them.
    fn least(&mut self, all: Gains) -> Gains {
        let mut least = all;
        for end in self.touched.drain(..) {
            let rest = all.without(std::mem::take(&mut self.gains[end]));
            if rest.mean() < least.mean() || rest.pairs() == 0 {
                least = rest;
            }
        }
        least
    }
}
