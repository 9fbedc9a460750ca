//! Ranks relays by their expected gain: UKAIRO's rankings (§2.2.3, §3.1.2).

mod ends;
mod incremental;
mod mean;
mod triples;

pub use incremental::Incremental;
pub(crate) use mean::units;
pub(crate) use triples::Triples;

use crate::{Graph, draw, schedule::Pair};
use ends::Ends;
use mean::Gains;
use rand_core::Rng;

/// The upper bound on a pair's gain: 101 times the direct rate.
///
/// Differs from UKAIRO, which has no bound. A direct path that moves nothing makes the gain infinite, and one such pair
/// would decide the mean of all relays that are measured for it.
pub const MOST_GAIN: f64 = 100.0;

/// The upper bound on a pair's gain in the robust ranking: ten times the direct rate.
pub const ROBUST_MOST_GAIN: f64 = 9.0;

/// With fewer nodes, no pair remains when one node is left out.
const LEAST_NODES: usize = 4;

/// A relay's score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub relay: usize,
    /// The mean of `d_l(i,j)`, from 0 up, finite.
    pub score: f64,
    /// The number of pairs (i,j) with all three legs measured over which it is the mean.
    pub evidence: u64,
}

/// Which end of the pairs (i,j) a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The pairs that begin at the client, (client, j), as UKAIRO writes Eq. (4): it sends.
    #[default]
    Source,
    /// The pairs that end at the client, (i, client): it receives, as in every download.
    Sink,
}

/// Relays, the best first; ties go to the lowest index.
///
/// All nodes are listed; those without evidence have score 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    scores: Vec<Score>,
}

impl Ranking {
    /// Client-oblivious, UKAIRO Eq. (3): `d_l`, the mean of `d_l(i,j)` over the pairs (i,j) of
    /// which all three legs (i,j), (i,l), (l,j) are measured; gains clipped at [`MOST_GAIN`].
    ///
    /// Differs: pairs with an end at l are left out, where the equation counts them with gain 0. Once all legs are
    /// measured, that multiplies all scores by the same number.
    ///
    /// O(n·d²) for d measured legs at a node.
    pub fn oblivious(graph: &Graph) -> Self {
        let mut triples = Triples::new(graph);
        let relays = (0..graph.nodes()).map(|l| {
            let mut gains = Gains::default();
            triples.of(l, |t| gains.add(units(t.direct, t.detour, MOST_GAIN)));
            (l, gains)
        });
        Self::of(relays)
    }

    /// Client-specific, UKAIRO Eq. (4): `d_l(i)` over the measured pairs that begin at `client`.
    ///
    /// The client itself is not listed. O(d²).
    pub fn specific(graph: &Graph, client: usize) -> Self {
        Self::specific_as(graph, client, End::Source)
    }

    /// [`Ranking::specific`] for a client that is this end of its pairs.
    ///
    /// UKAIRO makes no difference between sending and receiving; paths differ by direction.
    pub fn specific_as(graph: &Graph, client: usize, end: End) -> Self {
        let relays = (0..graph.nodes()).filter(|l| *l != client);
        Self::of(relays.map(|l| (l, client_gains(graph, client, l, end))))
    }

    /// Sorts relays by their mean gain.
    fn of(relays: impl Iterator<Item = (usize, Gains)>) -> Self {
        let score = |(relay, gains): (_, Gains)| Score {
            relay,
            score: gains.mean(),
            evidence: gains.pairs(),
        };
        Self::from_scores(relays.map(score).collect())
    }

    /// Creates a ranking of given scores, which must be finite and from 0 up; others count as 0.
    pub fn from_scores(mut scores: Vec<Score>) -> Self {
        for s in &mut scores {
            s.score = if s.score.is_finite() { s.score.max(0.0) } else { 0.0 };
        }
        scores.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.relay.cmp(&b.relay)));
        Self { scores }
    }

    /// Multiplies each score by the relay's weight, 0 to 1, and ranks anew: for relays that are near their limit, or
    /// whose reports disagreed with those of others.
    #[must_use]
    pub fn discounted(mut self, weight: impl Fn(usize) -> f64) -> Self {
        for s in &mut self.scores {
            // `clamp` passes NaN on; `from_scores` turns it into 0.
            s.score *= weight(s.relay).clamp(0.0, 1.0);
        }
        Self::from_scores(self.scores)
    }

    /// The scores, the best first.
    pub fn scores(&self) -> &[Score] {
        &self.scores
    }

    /// The first `m` relays, `D_m`.
    pub fn top(&self, m: usize) -> Vec<usize> {
        self.scores.iter().take(m).map(|s| s.relay).collect()
    }

    /// The first `m` relays, with equal scores in random order.
    ///
    /// Without any measurement this is a uniform draw, as UKAIRO §4.3 begins.
    pub fn top_of_ties(&self, m: usize, random: &mut (impl Rng + ?Sized)) -> Vec<usize> {
        let ties = self.scores.chunk_by(|a, b| a.score.total_cmp(&b.score).is_eq());
        let mut relays = Vec::new();
        for tie in ties {
            let left = m - relays.len();
            relays.extend(draw::distinct(tie.iter().map(|s| s.relay).collect(), left, random));
            if relays.len() == m {
                break;
            }
        }
        relays
    }

    /// `m` relays drawn uniformly from the better half (load-balanced, UKAIRO §3.1.2), all
    /// distinct; fewer if the half, rounded up, has no more.
    pub fn balanced(&self, m: usize, random: &mut (impl Rng + ?Sized)) -> Vec<usize> {
        draw::distinct(self.top(self.scores.len().div_ceil(2)), m, random)
    }
}

/// A ranking that no single liar decides (decision 0058).
impl Ranking {
    /// [`Ranking::oblivious`] with four bounds on what reporting nodes can do:
    ///
    /// 1. No pair counts as more than `most`, so no score is above it.
    /// 2. A relay's own reports are no evidence for it: triples with a leg for which only the relay vouches, according
    ///    to `sole(from, to)`, do not count.
    /// 3. The score is the least of the means that remain when the pairs that begin or end at one other node are left
    ///    out. So no node r, not even one that colludes with the relay, lifts it above what the others' pairs say by
    ///    themselves.
    /// 4. The score is at most the mean that remains without the tenth of the other nodes (rounded up) that lift the
    ///    relay most. So a league of at most that many nodes gains little by lies about its own pairs, of which there
    ///    are many: they are left out.
    ///
    /// Downwards, a node that changes its claims about measured legs moves a relay's score by at most `most` times the
    /// node's share of the pairs, 2/(n−2) of them when all is measured. If more than a tenth of all nodes collude with
    /// a relay, bound 4 fails, and the bound is `most` times their share.
    ///
    /// The reporter of a leg must be one of its ends; the caller ensures that. With fewer than four nodes, no node can
    /// be left out, and only bounds 1 and 2 hold. A relay of which one node knows all pairs has score 0.
    ///
    /// Time as [`Ranking::oblivious`].
    pub fn robust(graph: &Graph, most: f64, sole: impl Fn(usize, usize) -> Option<usize>) -> Self {
        let all: Vec<usize> = (0..graph.nodes()).collect();
        Self::from_scores(robust_scores(graph, &all, most, sole))
    }
}

/// Relay `l`'s gains over the pairs of one client.
fn client_gains(graph: &Graph, client: usize, l: usize, end: End) -> Gains {
    let mut gains = Gains::default();
    let mut add = |leg, direct, other: thalweg_units::Rate| {
        gains.add(units(direct, other.min(leg), MOST_GAIN));
    };
    match end {
        End::Source => {
            let Some(leg) = graph.rate(client, l) else { return gains };
            graph.shared_outs(client, l).for_each(|(_, direct, other)| add(leg, direct, other));
        }
        End::Sink => {
            let Some(leg) = graph.rate(l, client) else { return gains };
            graph.shared_ins(client, l).for_each(|(_, direct, other)| add(leg, direct, other));
        }
    }
    gains
}

/// The scores in [`Ranking::robust`] of these relays only, in their order: after a change of few legs, those of
/// [`touched`]; or a part of all relays on each of several threads.
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

/// The relays that have a triple with this leg, each at least once. Taken from the graph before and the graph after a
/// change, they are those whose scores it can have moved. O(d).
pub fn touched(graph: &Graph, (i, j): Pair) -> impl Iterator<Item = usize> {
    [i, j].into_iter().chain(graph.detours(i, j).map(|(l, _)| l))
}
