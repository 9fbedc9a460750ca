//! Ranks relays by their expected gain: UKAIRO's rankings (§2.2.3, §3.1.2).

mod ends;
mod incremental;
mod mean;
mod robust;
mod triples;

pub use incremental::Incremental;
pub use robust::{ROBUST_MOST_GAIN, robust_scores, touched};

use crate::{Graph, draw};
use mean::Gains;
pub(crate) use mean::units;
use rand_core::Rng;
pub(crate) use triples::Triples;

/// A pair's gain counts as this at most: 101 times the direct rate.
///
/// Differs: UKAIRO has no bound. A direct path that moves nothing makes the gain infinite,
/// and one such pair would decide the mean for all relays that are measured for it.
pub const MOST_GAIN: f64 = 100.0;

/// A relay's score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The relay's index.
    pub relay: usize,
    /// The mean of `d_l(i,j)`, from 0 up, finite.
    pub score: f64,
    /// Over how many pairs (i,j) with all three legs measured it is a mean.
    pub evidence: u64,
}

/// Which end of the pairs (i,j) a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The pairs that begin at it, (client, j), as UKAIRO writes Eq. (4): it sends.
    #[default]
    Source,
    /// The pairs that end at it, (i, client): it receives, as all who download do.
    Sink,
}

/// Relays, the best first; among equals the lowest index.
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
    /// Differs: pairs with an end at l are left out, where the equation counts them with
    /// gain 0. Once all is measured that multiplies all scores by the same number.
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
    /// UKAIRO draws no difference between sending and receiving; paths have one.
    pub fn specific_as(graph: &Graph, client: usize, end: End) -> Self {
        let relays = (0..graph.nodes()).filter(|l| *l != client);
        Self::of(relays.map(|l| (l, client_gains(graph, client, l, end))))
    }

    /// Sorts.
    fn of(relays: impl Iterator<Item = (usize, Gains)>) -> Self {
        let score = |(relay, gains): (_, Gains)| Score {
            relay,
            score: gains.mean(),
            evidence: gains.pairs(),
        };
        Self::from_scores(relays.map(score).collect())
    }

    /// A ranking of given scores, which must be finite and from 0 up; others count as 0.
    pub fn from_scores(mut scores: Vec<Score>) -> Self {
        for s in &mut scores {
            s.score = if s.score.is_finite() { s.score.max(0.0) } else { 0.0 };
        }
        scores.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.relay.cmp(&b.relay)));
        Self { scores }
    }

    /// Each score times the relay's weight, 0 to 1, and ranked anew: for relays that are
    /// near their limit, or whose reports disagreed with others'.
    #[must_use]
    pub fn discounted(mut self, weight: impl Fn(usize) -> f64) -> Self {
        for s in &mut self.scores {
            // clamp passes NaN on; `from_scores` takes it for 0.
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

    /// The first `m` relays, equal scores in random order.
    ///
    /// Without any measurement that is a uniform draw, as UKAIRO §4.3 begins.
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
