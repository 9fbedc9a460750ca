//! Ours: few legs of every node, then more of those that promise most.

use super::{Known, Pair, Schedule, ledger::Ledger};
use crate::{completion, draw, ranking::Ranking};
use rand_core::Rng;

/// How [`Thrifty`] goes on when each node has its first legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Evenly: always the least measured nodes.
    Even,
    /// The legs of the most promising relays, mostly.
    #[default]
    Focused,
    /// The same, but relays are drawn by chance around their scores each time (Thompson
    /// sampling, with a deviation of ln score that shrinks with the legs measured).
    Thompson,
}

/// Measures few legs of each node, predicts all others from them, and goes on with the legs of
/// the relays that are predicted to be the best. Rank with
/// [`completion::ranking`](crate::completion::ranking), with the same RTTs.
///
/// Algorithm 1 needs 25 pairs a node since it knows of a pair only what it measured. But
/// nodes' own factors and distance say most of a leg's rate, and three legs a node tell them.
/// A relay is then worth measuring if it may be among the best: what separates two bad ones
/// does not matter. Some legs still go to the least measured nodes, lest an unlucky first
/// leg bury a node for good.
///
/// A step costs O(n · log n), and O(legs + n · 128²) each time the measured legs have
/// grown by a sixteenth.
#[derive(Clone, Debug)]
pub struct Thrifty {
    p: f64,
    design: Design,
    ledger: Ledger,
    promising: Vec<usize>,
    ranked_at: usize,
    /// Somebody else ranks.
    is_told: bool,
}

/// Legs out of and into each node before any is preferred.
const FIRST: usize = 3;

/// The share of nodes whose legs are measured next, and how many at least: twice the five
/// candidates of a client.
const PROMISING: f64 = 0.24;
const LEAST_PROMISING: usize = 8;

/// The share of measurements for the least measured nodes.
const EXPLORE: f64 = 0.2;

/// Of ln score for a relay with one leg (Thompson).
const DEVIATION: f64 = 1.0;

impl Thrifty {
    /// `p`: the share of all paths to measure at most, 0 to 1 (half of Algorithm 1's: 0.2).
    /// Three legs a node are measured in any case: less says nothing.
    pub fn new(p: f64) -> Self {
        Self::designed(p, Design::default())
    }

    /// With another design.
    pub fn designed(p: f64, design: Design) -> Self {
        let ledger = Ledger::default();
        Self { p, design, ledger, promising: vec![], ranked_at: 0, is_told: false }
    }

    /// The relays whose legs are measured next.
    fn refocus(&mut self, known: &Known<'_>, random: &mut dyn Rng) {
        let (n, measured) = (known.graph.nodes(), known.graph.measured());
        let is_fresh = self.promising.iter().all(|l| *l < n)
            && (self.is_told
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

    /// The least measured leg, in either direction, of the least measured of these nodes that
    /// has one left; equals in random order.
    fn least(&self, known: &Known<'_>, of: &[usize], random: &mut dyn Rng) -> Option<Pair> {
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
            // The other direction of a measured leg tells less of two nodes than a new pair.
            let told =
                |other: usize| usize::from(self.ledger.covers(known, pair_back(pair(other))));
            let least =
                |other: &usize| (if is_out { ins[*other] } else { outs[*other] }, told(*other));
            free.min_by_key(least).map(pair)
        })
    }
}

/// How many of so many nodes are preferred.
fn promising(nodes: usize) -> usize {
    ((PROMISING * nodes as f64).ceil() as usize).max(LEAST_PROMISING)
}

const fn pair_back((i, j): Pair) -> Pair {
    (j, i)
}

/// About normal with mean 0 and deviation 1 (the sum of twelve uniform numbers).
fn normal(random: &mut dyn Rng) -> f64 {
    (0..12).map(|_| draw::unit(random)).sum::<f64>() - 6.0
}

impl Schedule for Thrifty {
    fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        self.ledger.settle(known);
        let n = known.graph.nodes();
        let is_begun = self.ledger.covered(known) >= FIRST * n;
        if is_begun && self.ledger.reaches(known, self.p) {
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

    fn ranked(&mut self, ranking: &Ranking) {
        if self.design == Design::Thompson {
            return;
        }
        self.promising = ranking.top(promising(ranking.scores().len()));
        self.is_told = true;
    }
}
