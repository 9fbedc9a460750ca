//! What unmeasured legs would give, predicted from the measured ones (pure).
//!
//! The model: `ln rate(i,j) = mean + out_i + in_j + slope · (ln RTT(i,j) − its mean) + e_ij`.
//! A leg is mostly as fast as what its ends can send and receive, and TCP's rate falls with
//! the RTT (Mathis et al. 1997). Factors are ridge estimates whose weight follows from the
//! data (empirical Bayes), so that a node with one odd leg is not believed too much.

mod fit;

use crate::{
    Graph,
    ranking::{MOST_GAIN, Ranking, Score},
    schedule::Pair,
};
use thalweg_units::Rate;

/// A ranking looks at this many sources and destinations at most, evenly spread: for n nodes
/// it takes O(n · `SAMPLE`²), 0.2 s or so for 10,000.
const SAMPLE: usize = 128;

/// Round-trip times between nodes: a few packets each, where a rate costs megabytes.
pub trait RttOf: std::fmt::Debug {
    /// Seconds, > 0; `None` if it is not known: then the mean stands for it.
    fn rtt_s(&self, pair: Pair) -> Option<f64>;
}

/// The client-oblivious ranking (UKAIRO Eq. 3) on the completed matrix: measured legs as they
/// are, the others as predicted. Goes with [`Thrifty`](crate::schedule::Thrifty).
///
/// [`Score::evidence`] counts the pairs of which all three legs are really measured, of
/// those that were looked at. Without any measured leg all scores are 0.
pub fn ranking(graph: &Graph, rtt_s: Option<&dyn RttOf>) -> Ranking {
    Completion::new(graph, rtt_s).ranking()
}

/// A graph and predictions for the legs that it lacks.
#[derive(Clone, Debug)]
pub struct Completion<'a> {
    graph: &'a Graph,
    rtt_s: Option<&'a dyn RttOf>,
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
    /// Rates more than a factor of 100 from the median count as that far: dead legs and
    /// absurd claims move a factor by little.
    pub fn new(graph: &'a Graph, rtt_s: Option<&'a dyn RttOf>) -> Self {
        let fitted = fit::fit(graph, rtt_s);
        Self {
            graph,
            rtt_s,
            mean: fitted.mean,
            out: fitted.out,
            into: fitted.into,
            slope: fitted.slope,
            middle: fitted.middle,
        }
    }

    /// By how much ln rate changes with ln RTT, from −2 to 0; 0 if no RTT is known.
    pub const fn slope(&self) -> f64 {
        self.slope
    }

    /// The measured rate, or the predicted one; `None` for ends that are equal or out of
    /// range, and if nothing at all is measured.
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

    /// Of legs between different nodes.
    fn bps(&self, i: usize, j: usize) -> f64 {
        match self.graph.rate(i, j) {
            Some(rate) => rate.as_bps() as f64,
            None => {
                let far = self.rtt_s.and_then(|rtt| rtt.rtt_s((i, j))).and_then(fit::ln_rtt);
                let far = far.map_or(0.0, |far| self.slope * (far - self.middle));
                (self.mean + self.out[i] + self.into[j] + far).exp()
            }
        }
    }

    /// UKAIRO Eq. (3) on all legs, gains clipped at [`MOST_GAIN`]. O(n · [`SAMPLE`]²).
    pub fn ranking(&self) -> Ranking {
        let n = self.graph.nodes();
        let mut scores: Vec<Score> =
            (0..n).map(|relay| Score { relay, score: 0.0, evidence: 0 }).collect();
        if self.graph.measured() == 0 {
            return Ranking::from_scores(scores);
        }
        let count = n.min(SAMPLE);
        let sources: Vec<usize> = (0..count).map(|at| at * n / count).collect();
        // Others than the sources, if there are others.
        let sinks: Vec<usize> = (0..count).map(|at| (at * n + n / 2) / count % n).collect();
        let to = |i: usize, j: usize| if i == j { 0.0 } else { self.bps(i, j) };
        let ins: Vec<Vec<f64>> =
            sinks.iter().map(|j| (0..n).map(|l| to(l, *j)).collect()).collect();
        let mut pairs = vec![0_u64; n];
        for i in &sources {
            let outs: Vec<f64> = (0..n).map(|l| to(*i, l)).collect();
            for (j, ins) in sinks.iter().zip(&ins).filter(|(j, _)| *j != i) {
                for l in (0..n).filter(|l| l != i && l != j) {
                    scores[l].score += gain(outs[*j], outs[l].min(ins[l]));
                    pairs[l] += 1;
                    scores[l].evidence += u64::from(self.is_measured(*i, l, *j));
                }
            }
        }
        for (score, pairs) in scores.iter_mut().zip(pairs) {
            score.score /= pairs.max(1) as f64;
        }
        Ranking::from_scores(scores)
    }

    fn is_measured(&self, i: usize, l: usize, j: usize) -> bool {
        let graph = self.graph;
        graph.rate(i, l).is_some() && graph.rate(l, j).is_some() && graph.rate(i, j).is_some()
    }
}

/// UKAIRO Eq. (1), clipped.
fn gain(direct: f64, detour: f64) -> f64 {
    if detour > direct { ((detour - direct) / direct).min(MOST_GAIN) } else { 0.0 }
}
