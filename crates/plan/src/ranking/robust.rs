//! A ranking that no single liar decides.

use super::{Ranking, Score, Triples, ends::Ends, mean::Gains, units};
use crate::{Graph, schedule::Pair};

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
    /// 4. Nor is it above the mean that stays without a tenth of the other nodes (rounded up),
    ///    those that lift the relay most. So a league of no more nodes than that gains little
    ///    by lies about its own pairs, of which there are many: they are left out.
    ///
    /// Downwards, a node that changes its claims about measured legs moves a relay's score by
    /// `most` times its share of the pairs at most, 2/(n−2) of them when all is measured.
    /// With more than a tenth of all in league with a relay 4. fails, and the bound is `most`
    /// times their share.
    ///
    /// Whoever speaks for a leg must be one of its ends; that is for the table's keeper to
    /// see to. With fewer than four nodes nobody can be left out: 1. and 2. alone hold.
    /// A relay of which one node knows all pairs has score 0.
    ///
    /// Time as [`Ranking::oblivious`].
    pub fn robust(graph: &Graph, most: f64, sole: impl Fn(usize, usize) -> Option<usize>) -> Self {
        let all: Vec<usize> = (0..graph.nodes()).collect();
        Self::from_scores(robust_scores(graph, &all, most, sole))
    }
}

/// The scores of these relays alone in [`Ranking::robust`], in their order: after a change of
/// few legs, those of [`touched`]; or a part of all on each of several threads.
///
/// O(d²) a relay, and O(n).
pub fn robust_scores(
    graph: &Graph,
    relays: &[usize],
    most: f64,
    sole: impl Fn(usize, usize) -> Option<usize>,
) -> Vec<Score> {
    let mut triples = Triples::new(graph);
    let mut ends = Ends::new(graph.nodes());
    let relays = relays.iter().map(|&relay| {
        let mut all = Gains::default();
        triples.of(relay, |t| {
            if sole(t.i, relay) != Some(relay) && sole(relay, t.j) != Some(relay) {
                let gain = units(t.direct, t.detour, most);
                all.add(gain);
                ends.add(t.i, t.j, gain);
            }
        });
        let least = ends.least(all);
        let gains = if graph.nodes() < LEAST_NODES { all } else { least };
        Score { relay, score: gains.mean(), evidence: gains.pairs() }
    });
    relays.collect()
}

/// The relays of which a triple has this leg, each once or more often: asked of the graph
/// before and the graph after a change, they are those whose scores it can have moved. O(d).
pub fn touched(graph: &Graph, (i, j): Pair) -> impl Iterator<Item = usize> {
    [i, j].into_iter().chain(graph.detours(i, j).map(|(l, _)| l))
}
