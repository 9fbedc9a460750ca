//! Our schedule: a few legs of every node, then more of the nodes that promise most.

use super::{Pair, Schedule, ScheduleInput, requested_legs::RequestedLegs};
use crate::{completion, draw, ranking::Ranking};
use rand_core::Rng;

/// How [`Thrifty`] continues when each node has its first legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Evenly: always the least measured nodes.
    Even,
    /// Mostly the legs of the most promising relays.
    #[default]
    Focused,
    /// As `Focused`, but relays are drawn at random around their scores each time (Thompson sampling, with a deviation
    /// of ln score that shrinks with the legs measured).
    Thompson,
}

/// Measures a few legs of each node, predicts all others from them, and continues with the legs of the relays that are
/// predicted to be the best. Rank with [`completion::ranking`](crate::completion::ranking), with the same RTTs.
///
/// Algorithm 1 needs 25 pairs a node, because it knows of a pair only what it measured. But nodes' own factors and
/// distance explain most of a leg's rate, and three legs a node reveal them. After that, a relay is worth measuring if
/// it may be among the best: the difference between two bad ones does not matter. Some legs still go to the least
/// measured nodes, so that an unlucky first leg does not bury a node for good.
///
/// A step costs O(n · log n), and O(legs + n · 128²) each time the measured legs have grown by a sixteenth.
#[derive(Clone, Debug)]
pub struct Thrifty {
    p: f64,
    design: Design,
    ledger: RequestedLegs,
    promising: Vec<usize>,
    ranked_at: usize,
    /// Whether rankings come from the caller.
    is_ranked: bool,
}

/// Legs out of and into each node before any node is preferred.
const FIRST: usize = 3;

/// The share of nodes whose legs are measured next.
const PROMISING: f64 = 0.24;
/// The minimum number of those nodes, almost twice the five candidates of a client.
const LEAST_PROMISING: usize = 8;

/// The share of measurements for the least measured nodes.
const EXPLORE: f64 = 0.2;

/// The deviation of ln score for a relay without legs (Thompson).
const DEVIATION: f64 = 1.0;

impl Thrifty {
    /// `p`: the largest share of all paths to measure, 0 to 1 (half of Algorithm 1's: 0.2). Three legs a node are
    /// measured in any case, because fewer say nothing.
    pub fn new(p: f64) -> Self {
        Self::designed(p, Design::default())
    }

    /// As [`new`](Self::new), with another design.
    pub fn designed(p: f64, design: Design) -> Self {
        let ledger = RequestedLegs::default();
        Self { p, design, ledger, promising: vec![], ranked_at: 0, is_ranked: false }
    }

    /// Updates the relays whose legs are measured next.
    fn refocus(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) {
        let (n, measured) = (known.graph.nodes(), known.graph.measured());
        let is_fresh = self.promising.iter().all(|l| *l < n)
            && (self.is_ranked
                || (self.ranked_at..self.ranked_at + 8 + self.ranked_at / 16).contains(&measured));
        if is_fresh && !self.promising.is_empty() {
            return;
        }
        self.ranked_at = measured;
        let ranking = completion::ranking(known.graph, known.rtt_s);
        let mut scores: Vec<(f64, usize)> =
            ranking.scores().iter().map(|s| (s.score, s.relay)).collect();
        if self.design == Design::Thompson {
            for (score, l) in &mut scores {
                let legs = known.graph.out_degree(*l) + known.graph.in_degree(*l);
                let deviation = DEVIATION / (1.0 + legs as f64).sqrt();
                *score *= (deviation * normal(random)).exp();
            }
            scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        }
        let up = |(_, l): &(f64, usize)| !known.excluded.nodes.contains(l);
        let first = scores.into_iter().filter(up).take(promising(n));
        self.promising = first.map(|(_, l)| l).collect();
    }

    /// The least measured leg, in either direction, of the least measured of these nodes that has a leg left; ties in
    /// random order.
    fn least(&self, known: &ScheduleInput<'_>, of: &[usize], random: &mut dyn Rng) -> Option<Pair> {
        let graph = known.graph;
        let mut outs: Vec<usize> = (0..graph.nodes()).map(|i| graph.out_degree(i)).collect();
        let mut ins: Vec<usize> = (0..graph.nodes()).map(|j| graph.in_degree(j)).collect();
        for (i, j) in self.ledger.asked() {
            outs[*i] += 1;
            ins[*j] += 1;
        }
        let is_up = |node: &usize| !known.excluded.nodes.contains(node);
        let up: Vec<usize> = (0..graph.nodes()).filter(is_up).collect();
        let of = of.iter().filter(|node| is_up(node));
        let mut ends: Vec<(usize, bool)> =
            of.flat_map(|node| [(*node, true), (*node, false)]).collect();
        let count = ends.len();
        ends = draw::distinct(ends, count, random);
        ends.sort_by_key(|(node, is_out)| if *is_out { outs[*node] } else { ins[*node] });
        let start = draw::below(up.len().max(1), random);
        ends.into_iter().find_map(|(node, is_out)| {
            let others = (0..up.len()).map(|at| up[(start + at) % up.len()]);
            let pair = |other| if is_out { (node, other) } else { (other, node) };
            let free = others.filter(|other| self.ledger.is_free(known, pair(*other)));
            // The other direction of a measured leg tells less about two nodes than a new pair.
            let reverse =
                |other: usize| usize::from(self.ledger.covers(known, pair_back(pair(other))));
            let least =
                |other: &usize| (if is_out { ins[*other] } else { outs[*other] }, reverse(*other));
            free.min_by_key(least).map(pair)
        })
    }
}

/// The number of preferred nodes.
fn promising(nodes: usize) -> usize {
    ((PROMISING * nodes as f64).ceil() as usize).max(LEAST_PROMISING)
}

const fn pair_back((i, j): Pair) -> Pair {
    (j, i)
}

/// Approximately normal with mean 0 and deviation 1 (the sum of twelve uniform numbers).
fn normal(random: &mut dyn Rng) -> f64 {
    (0..12).map(|_| draw::unit(random)).sum::<f64>() - 6.0
}

impl Schedule for Thrifty {
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        self.ledger.settle(known);
        let n = known.graph.nodes();
        let is_begun = self.ledger.covered_count(known) >= FIRST * n;
        if is_begun && self.ledger.reaches_share(known, self.p) {
            return vec![];
        }
        let is_even = self.design == Design::Even || !is_begun;
        let mut next = None;
        if !is_even && draw::unit(random) >= EXPLORE {
            self.refocus(known, random);
            next = self.least(known, &self.promising, random);
        }
        let all = || (0..n).collect::<Vec<_>>();
        let next = next.or_else(|| self.least(known, &all(), random));
        self.ledger.ask(next.into_iter().collect())
    }

    fn set_ranking(&mut self, ranking: &Ranking) {
        if self.design == Design::Thompson {
            return;
        }
        self.promising = ranking.top(promising(ranking.scores().len()));
        self.is_ranked = true;
    }
}
