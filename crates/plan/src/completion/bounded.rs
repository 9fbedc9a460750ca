//! The completed ranking with bounds that keep liars from taking it over.

use super::{
    Completion, LegRtts, MOST_GAIN,
    fit::{self, FactorModel, MeasuredLeg},
    sample,
};
use crate::{
    Graph,
    ranking::{Ranking, Score},
};

/// The largest deviation of a leg's ln rate from the model: a factor of 4. A larger one counts as this. Honest paths of
/// the real grids are rarely further off.
const ODD: f64 = 1.386_294_361_119_890_6;

/// The minimum number of legs behind a relay's factor. Legs that it lacks count as bad ones: few legs say little, and
/// may all belong to accomplices.
const LEAST_LEGS: f64 = 8.0;

/// The share of the nodes whose factors are below a bad factor.
const BAD: f64 = 0.1;

/// [`super::ranking`] with bounds on what reporting nodes can do:
///
/// 1. Each leg moves the model by a factor of 4 at most (Huber's M-estimator).
/// 2. As a relay, a node counts for what remains when the leg that speaks best of it is left out, in either direction:
///    one accomplice cannot lift it. k colluding nodes that measure only with each other lift the predictions for each
///    by at most 100^((k−2)/8).
/// 3. RTTs that a relay reports are no evidence for it. An RTT is what a leg's sender saw, and a predicted leg takes
///    the RTT of the reverse leg. So RTTs count for legs from a relay, not for legs to one.
/// 4. The score is the least of the means that remain when the pairs of one node, as a source or as a sink, are left
///    out. Pairs that begin or end at k liars are k parts of the sample in either direction, and count at most
///    [`MOST_GAIN`] each.
///
/// `rtt_s((i, j))` is what the sender of (i,j) saw. `graph` must not have legs that only one end vouches for; the
/// caller ensures that. Measured rates are believed as they are.
///
/// Looks at as many pairs as [`super::ranking`]: O(legs + n · sample²).
pub fn bounded(graph: &Graph, rtt_s: Option<&dyn LegRtts>) -> Ranking {
    let (fitted, legs, ridge) = fit::within(graph, rtt_s, ODD);
    let none = |relay| Score { relay, score: 0.0, evidence: 0 };
    if legs.is_empty() {
        return Ranking::from_scores((0..graph.nodes()).map(none).collect());
    }
    let relays = as_relays(&fitted, &legs, ridge);
    let seen_back = rtt_s.map(ReverseRtt);
    let far = seen_back.as_ref().map(|back| back as &dyn LegRtts);
    let model = Completion::of(graph, far, fitted);
    Ranking::from_scores(Sums::of(&model, &relays).scores(graph))
}

/// The RTT that the reverse leg's sender saw.
#[derive(Debug)]
struct ReverseRtt<'a>(&'a dyn LegRtts);

impl LegRtts for ReverseRtt<'_> {
    fn rtt_s(&self, (i, j): (usize, usize)) -> Option<f64> {
        self.0.rtt_s((j, i))
    }
}

/// Each node's factors as a relay: out and in.
fn as_relays(fitted: &FactorModel, legs: &[MeasuredLeg], ridge: f64) -> [Vec<f64>; 2] {
    let n = fitted.out.len();
    let mut votes = [vec![LegVotes::default(); n], vec![LegVotes::default(); n]];
    for leg in legs {
        let rest = leg.y - fitted.slope * leg.x;
        votes[0][leg.i].add(clamp_near(rest - fitted.into[leg.j], fitted.out[leg.i]));
        votes[1][leg.j].add(clamp_near(rest - fitted.out[leg.i], fitted.into[leg.j]));
    }
    let [out, into] = votes;
    [(out, &fitted.out), (into, &fitted.into)].map(|(votes, factors)| {
        let bad = bad(factors);
        votes.into_iter().map(|votes| votes.least(ridge, bad)).collect()
    })
}

/// A bad factor; at most 0, which is the mean.
fn bad(factors: &[f64]) -> f64 {
    let mut sorted = factors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (BAD * sorted.len() as f64) as usize;
    sorted.get(at).copied().unwrap_or(0.0).min(0.0)
}

fn clamp_near(says: f64, of: f64) -> f64 {
    says.clamp(of - ODD, of + ODD)
}

/// The values that a node's legs give for its factor.
#[derive(Clone, Copy, Default)]
struct LegVotes {
    sum: f64,
    count: f64,
    best: f64,
}

impl LegVotes {
    fn add(&mut self, says: f64) {
        self.best = if self.count > 0.0 { self.best.max(says) } else { says };
        self.sum += says;
        self.count += 1.0;
    }

    /// The factor without the largest value, and with bad values for the legs that it lacks.
    fn least(&self, ridge: f64, bad: f64) -> f64 {
        let (sum, count) = (self.sum - self.best, (self.count - 1.0).max(0.0));
        let lacks = (LEAST_LEGS - count).max(0.0);
        let filled = (sum + lacks * bad) / (count + lacks + ridge);
        // Bad values for missing legs must not lift a node.
        filled.min(sum / (count + ridge))
    }
}

/// Sums of gains by relay over the sampled pairs.
struct Sums {
    all: Vec<f64>,
    /// Minus the number of sampled pairs with an end at the node.
    pairs: Vec<f64>,
    /// The largest sum of a single source.
    source: Vec<f64>,
    /// Sums by sink, then by relay.
    sinks: Vec<Vec<f64>>,
    /// The number of sinks.
    each: f64,
    evidence: Vec<u64>,
}

impl Sums {
    fn of(model: &Completion<'_>, [out, into]: &[Vec<f64>; 2]) -> Self {
        let n = model.graph.nodes();
        let (sources, ends) = sample(n);
        let ins: Vec<Vec<f64>> = ends.iter().map(|j| model.sent_by_relays(*j, out)).collect();
        let mut sums = Self {
            all: vec![0.0; n],
            pairs: vec![0.0; n],
            source: vec![0.0; n],
            sinks: vec![vec![0.0; n]; ends.len()],
            each: ends.len() as f64,
            evidence: vec![0; n],
        };
        let pairs = sources.iter().flat_map(|i| ends.iter().map(move |j| (*i, *j)));
        pairs.filter(|(i, j)| i != j).for_each(|(i, j)| sums.count(model.graph, i, j));
        let mut own = vec![0.0; n];
        for i in sources {
            let outs = model.sent_to_relays(i, into);
            own.fill(0.0);
            for ((j, ins), sink) in ends.iter().zip(&ins).zip(&mut sums.sinks) {
                if *j == i {
                    continue;
                }
                // A dead leg counts as slow, not as infinitely slow.
                let direct = model.bps(i, *j).max(1.0);
                for (((a, b), own), sink) in outs.iter().zip(ins).zip(&mut own).zip(sink) {
                    let gain = (a.min(*b) / direct - 1.0).clamp(0.0, MOST_GAIN);
                    *own += gain;
                    *sink += gain;
                }
            }
            for ((all, source), own) in sums.all.iter_mut().zip(&mut sums.source).zip(&own) {
                *all += own;
                *source = source.max(*own);
            }
        }
        sums
    }

    fn count(&mut self, graph: &Graph, i: usize, j: usize) {
        self.pairs[i] -= 1.0;
        self.pairs[j] -= 1.0;
        if graph.rate(i, j).is_some() {
            graph.detours(i, j).for_each(|(l, _)| self.evidence[l] += 1);
        }
    }

    fn scores(&self, graph: &Graph) -> Vec<Score> {
        let (sources, ends) = sample(graph.nodes());
        let same = sources.iter().filter(|i| ends.contains(i)).count();
        let all = (sources.len() * ends.len() - same) as f64;
        let score = |relay: usize| {
            let sink = self.sinks.iter().map(|sink| sink[relay]).fold(0.0, f64::max);
            let most = self.source[relay].max(sink);
            let pairs = (all + self.pairs[relay] - self.each).max(1.0);
            let score = (self.all[relay] - most) / pairs;
            Score { relay, score, evidence: self.evidence[relay] }
        };
        (0..graph.nodes()).map(score).collect()
    }
}

impl Completion<'_> {
    /// The rate from node `i` to each relay, bit/s.
    fn sent_to_relays(&self, i: usize, into: &[f64]) -> Vec<f64> {
        // Without the RTT, which would be the relay's own report.
        let mut all: Vec<f64> =
            into.iter().map(|into| (self.mean + self.out[i] + into).exp()).collect();
        self.graph.outs(i).for_each(|(l, rate)| all[l] = rate.as_bps() as f64);
        all[i] = 0.0;
        all
    }

    /// The rate from each relay to node `j`, bit/s.
    fn sent_by_relays(&self, j: usize, out: &[f64]) -> Vec<f64> {
        let far = |l| self.rtt_effect((l, j));
        let of = |(l, out): (usize, &f64)| (self.mean + out + self.into[j] + far(l)).exp();
        let mut all: Vec<f64> = out.iter().enumerate().map(of).collect();
        self.graph.ins(j).for_each(|(l, rate)| all[l] = rate.as_bps() as f64);
        all[j] = 0.0;
        all
    }
}
