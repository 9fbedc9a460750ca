//! Which relays promise most: UKAIRO's rankings (§2.2.3, §3.1.2).

use crate::Graph;
use rand_core::Rng;

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

/// Relays, the best first; among equals the lowest index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    scores: Vec<Score>,
}

impl Ranking {
    /// Client-oblivious, UKAIRO Eq. (3): `d_l` over all measured pairs.
    pub fn oblivious(graph: &Graph) -> Self {
        let _ = graph;
        Self::default()
    }

    /// Client-specific, UKAIRO Eq. (4): `d_l(i)` over the measured pairs that begin at `client`.
    pub fn specific(graph: &Graph, client: usize) -> Self {
        let _ = (graph, client);
        Self::default()
    }

    /// The scores, the best first.
    pub fn scores(&self) -> &[Score] {
        &self.scores
    }

    /// The first `m` relays, `D_m`.
    pub fn top(&self, m: usize) -> Vec<usize> {
        self.scores.iter().take(m).map(|s| s.relay).collect()
    }

    /// `m` relays drawn uniformly from the better half (load-balanced, §3.1.2).
    pub fn balanced(&self, m: usize, random: &mut impl Rng) -> Vec<usize> {
        let _ = random;
        self.top(m)
    }
}
