//! Predicted rates of unmeasured legs, from the measured ones (pure).
//!
//! The model: `ln rate(i,j) = mean + out_i + in_j + slope · (ln RTT(i,j) − its mean) + e_ij`.
//! A leg is mostly as fast as its ends can send and receive, and TCP's rate falls with the RTT (Mathis et al. 1997).
//! Factors are ridge estimates whose weight follows from the data (empirical Bayes), so that a node with one odd leg is
//! not believed too much.

mod bounded;
mod fit;

pub use bounded::bounded;

use crate::{
    Graph,
    ranking::{Ranking, Score},
    schedule::Pair,
};
use thalweg_units::Rate;

/// The maximum number of sources, and of destinations, that a ranking looks at; they are evenly spread.
const SAMPLE: usize = 128;

/// The maximum number of gains that a ranking computes, n for each pair. In meshes of more than 2,048 nodes, it looks
/// at fewer pairs: 57² of 10,000 nodes.
const GAINS: usize = 1 << 25;

/// The upper bound on a pair's gain: four times the direct rate.
///
/// Differs from UKAIRO, which has no bound. Predictions are smooth, measured rates are not: one slow direct path makes
/// the gains of relays with predicted legs larger than those of relays with measured legs. And clients ask for relays
/// that gain on most of their paths. On the synthetic PlanetLab the bound adds a point to the median gain of the first
/// five relays, and costs nothing anywhere.
pub const MOST_GAIN: f64 = 3.0;

/// Round-trip times between nodes. One takes a few packets to measure, where a rate takes megabytes.
pub trait LegRtts: std::fmt::Debug {
    /// Seconds, > 0; `None` if unknown, for which the mean is used.
    fn rtt_s(&self, pair: Pair) -> Option<f64>;
}

/// The client-oblivious ranking (UKAIRO Eq. 3) on the completed matrix: measured legs as they are, the others as
/// predicted; gains are clipped at [`MOST_GAIN`]. Meant for [`Thrifty`](crate::schedule::Thrifty).
///
/// [`Score::evidence`] counts the sampled pairs of which all three legs are measured. Without any measured leg all
/// scores are 0.
pub fn ranking(graph: &Graph, rtt_s: Option<&dyn LegRtts>) -> Ranking {
    Completion::new(graph, rtt_s).ranking()
}

/// A graph, and predictions for the legs that it lacks.
#[derive(Clone, Debug)]
pub struct Completion<'a> {
    graph: &'a Graph,
    rtt_s: Option<&'a dyn LegRtts>,
    mean: f64,
    out: Vec<f64>,
    into: Vec<f64>,
    slope: f64,
    /// The mean of ln RTT.
    middle: f64,
}

impl<'a> Completion<'a> {
    /// Fits the model. O(legs).
    ///
    /// Rates more than a factor of 100 from the median count as that far, so that dead legs and absurd claims move a
    /// factor only a little.
    pub fn new(graph: &'a Graph, rtt_s: Option<&'a dyn LegRtts>) -> Self {
        Self::of(graph, rtt_s, fit::fit(graph, rtt_s))
    }

    fn of(graph: &'a Graph, rtt_s: Option<&'a dyn LegRtts>, fitted: fit::FactorModel) -> Self {
        let fit::FactorModel { mean, out, into, slope, middle } = fitted;
        Self { graph, rtt_s, mean, out, into, slope, middle }
    }

    /// The change of ln rate with ln RTT, from −2 to 0; 0 if no RTT is known.
    pub const fn slope(&self) -> f64 {
        self.slope
    }

    /// The measured rate, or the predicted one; `None` for ends that are equal or out of range, and if nothing is
    /// measured.
    pub fn rate(&self, i: usize, j: usize) -> Option<Rate> {
        if i == j || i.max(j) >= self.graph.nodes() || self.graph.measured() == 0 {
            return None;
        }
        let bps = self.bps(i, j);
        Some(Rate::from_bps(bps as u64))
    }

    /// All legs, measured or predicted. O(n²) memory.
    pub fn graph(&self) -> Graph {
        let n = self.graph.nodes();
        let mut all = Graph::new(n);
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            all.set(i, j, self.rate(i, j));
        }
        all
    }

    /// The rate of a leg between different nodes, bit/s.
    fn bps(&self, i: usize, j: usize) -> f64 {
        match self.graph.rate(i, j) {
            Some(rate) => rate.as_bps() as f64,
            None => (self.mean + self.out[i] + self.into[j] + self.rtt_effect((i, j))).exp(),
        }
    }

    /// The effect of the RTT on ln rate; 0 if the RTT is unknown.
    fn rtt_effect(&self, pair: Pair) -> f64 {
        let far = self.rtt_s.and_then(|rtt| rtt.rtt_s(pair)).and_then(fit::ln_rtt);
        far.map_or(0.0, |far| self.slope * (far - self.middle))
    }

    /// UKAIRO Eq. (3) on all legs, gains clipped at [`MOST_GAIN`]. O(n · sample²).
    pub fn ranking(&self) -> Ranking {
        let n = self.graph.nodes();
        let mut scores: Vec<Score> =
            (0..n).map(|relay| Score { relay, score: 0.0, evidence: 0 }).collect();
        if self.graph.measured() == 0 {
            return Ranking::from_scores(scores);
        }
        let (sources, sinks) = sample(n);
        let ins: Vec<RelayLegs> = sinks.iter().map(|j| self.legs(|l| (l, *j))).collect();
        let mut pairs = vec![0_u64; n];
        for i in &sources {
            let outs = self.legs(|l| (*i, l));
            for (j, ins) in sinks.iter().zip(&ins).filter(|(j, _)| *j != i) {
                let is_measured = outs.measured[*j];
                for (l, score) in scores.iter_mut().enumerate().filter(|(l, _)| l != i && l != j) {
                    score.score += gain(outs.bps[*j], outs.bps[l].min(ins.bps[l]));
                    let all = is_measured && outs.measured[l] && ins.measured[l];
                    score.evidence += u64::from(all);
                    pairs[l] += 1;
                }
            }
        }
        for (score, pairs) in scores.iter_mut().zip(pairs) {
            score.score /= pairs.max(1) as f64;
        }
        Ranking::from_scores(scores)
    }

    /// The legs between one node and all nodes, in one direction.
    fn legs(&self, leg: impl Fn(usize) -> Pair + Clone) -> RelayLegs {
        let all = (0..self.graph.nodes()).map(leg);
        let bps = |(i, j): Pair| if i == j { 0.0 } else { self.bps(i, j) };
        RelayLegs {
            measured: all.clone().map(|(i, j)| self.graph.rate(i, j).is_some()).collect(),
            bps: all.map(bps).collect(),
        }
    }
}

/// The sources and the destinations that a ranking looks at.
fn sample(n: usize) -> (Vec<usize>, Vec<usize>) {
    let count = n.min(SAMPLE).min((GAINS / n.max(1)).isqrt()).max(1).min(n);
    let sources = (0..count).map(|at| at * n / count).collect();
    // Other nodes than the sources, if there are any.
    let sinks = (0..count).map(|at| (at * n + n / 2) / count % n).collect();
    (sources, sinks)
}

/// One node's legs in one direction, by the other end.
struct RelayLegs {
    bps: Vec<f64>,
    measured: Vec<bool>,
}

/// UKAIRO Eq. (1), clipped.
fn gain(direct: f64, detour: f64) -> f64 {
    if detour > direct { ((detour - direct) / direct).min(MOST_GAIN) } else { 0.0 }
}
