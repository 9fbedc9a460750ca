//! UKAIRO's Algorithm 1 (§3.1.1).

use super::{Pair, Schedule, ScheduleInput, frequency::Frequency, requested_legs::RequestedLegs};
use crate::{Graph, draw, ranking::Incremental};
use rand_core::Rng;

/// Draws of a random triple before the remaining ones are searched one by one.
const DRAWS: usize = 64;

/// The maximum number of triples that are searched: all of a node in a mesh of 316. A node to which none of these gives
/// a pair is passed over this time.
const SEARCHED: usize = 100_000;

/// UKAIRO's Algorithm 1, line by line; each step asks for the legs of one triple.
///
/// Where the paper leaves room:
///
/// - The *frequency* of a node l is "the smallest count of measured paths (a, b) where (a, l) and (l, b) are both
///   measured": we count distinct ordered pairs whose direct path is measured as well, because "values of d_l(i, j) for
///   t distinct paths (i, j)" (Eq. 1) need it.
/// - Line 7 says "that is not (l, j)" and means (l, i).
/// - "Measures all six paths": paths that are measured already are not measured again. A triple without any left is
///   drawn again, which measures what the loop would measure.
/// - Nodes with the same frequency come in random order. In phase two (Eq. 3), equal scores come by index, as in
///   [`Ranking`](crate::ranking::Ranking).
/// - A node that cannot reach t, because its mesh is too small (n < 7 for t = 25) or because nodes are down, does not
///   hold up phase one: it ends when no node below t can gain.
/// - p bounds only phase two, so that t may measure more than p. A triple's six paths may exceed p by five.
/// - Between only two nodes, where no detour exists, both paths are measured.
///
/// A step costs O(legs) to compare, O(d) for each changed leg, and O(n · log n).
#[derive(Clone, Debug)]
pub struct Biased {
    t: u64,
    p: f64,
    ledger: RequestedLegs,
    frequency: Frequency,
    ranked: Option<Incremental>,
}

impl Biased {
    /// UKAIRO §4.3: "the measurement scheduler with t = 25".
    pub const T: u64 = 25;

    /// `t`: the number of pairs that each node needs before phase two ([`Biased::T`]); `p`: the share of all paths to
    /// measure, 0 to 1 (UKAIRO: about 0.4 is good).
    pub fn new(t: u64, p: f64) -> Self {
        let (ledger, frequency) = (RequestedLegs::default(), Frequency::new(0));
        Self { t, p, ledger, frequency, ranked: None }
    }

    /// Whether all nodes have their t pairs, as of the last step.
    pub fn is_phase_two(&self) -> bool {
        !self.frequency.pairs().is_empty() && self.frequency.pairs().iter().all(|f| *f >= self.t)
    }

    /// Lines 4–8.
    fn phase_one(&self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Option<Vec<Pair>> {
        let frequency = self.frequency.pairs();
        let below = (0..frequency.len()).filter(|l| frequency[*l] < self.t).collect::<Vec<_>>();
        let count = below.len();
        let mut below = draw::distinct(below, count, random);
        below.sort_by_key(|l| frequency[*l]);
        let is_up = |node: &usize| !known.excluded.nodes.contains(node);
        let up: Vec<usize> = (0..frequency.len()).filter(is_up).collect();
        below.retain(is_up);
        below.into_iter().find_map(|l| self.triple(known, l, &up, random))
    }

    /// A random triple of nodes that are up which gives l a pair that it does not have; `None` if there is none.
    fn triple(
        &self,
        known: &ScheduleInput<'_>,
        l: usize,
        up: &[usize],
        random: &mut dyn Rng,
    ) -> Option<Vec<Pair>> {
        let n = up.len();
        let six = |(i, j): Pair| {
            let (i, j) = (up[i], up[j]);
            let gains = i != j && i != l && j != l;
            let gains = gains && (self.gains(known, i, l, j) || self.gains(known, j, l, i));
            gains.then(|| self.six(known, i, l, j))
        };
        let drawn = (0..DRAWS).find_map(|_| six((draw::below(n, random), draw::below(n, random))));
        drawn.or_else(|| {
            let (first, second) = (draw::below(n, random), draw::below(n, random));
            let pair = |at| ((first + at / n) % n, (second + at % n) % n);
            (0..(n * n).min(SEARCHED)).find_map(|at| six(pair(at)))
        })
    }

    /// Whether (i,j) is not yet a pair of l and can become one.
    fn gains(&self, known: &ScheduleInput<'_>, i: usize, l: usize, j: usize) -> bool {
        let legs = [(i, l), (l, j), (i, j)];
        let open = |leg: &Pair| !self.ledger.covers(known, *leg);
        legs.iter().any(open) && legs.iter().all(|leg| !open(leg) || !known.excluded.contains(*leg))
    }

    /// All six paths between three nodes, without those that are covered or excluded.
    fn six(&self, known: &ScheduleInput<'_>, i: usize, l: usize, j: usize) -> Vec<Pair> {
        let mut six = vec![(i, l), (l, j), (i, j), (j, l), (l, i), (j, i)];
        six.retain(|leg| self.ledger.is_free(known, *leg));
        six
    }

    /// Lines 9–15.
    fn phase_two(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        if self.ledger.reaches_share(known, self.p) {
            return vec![];
        }
        let ranked = self.ranked.take().filter(|r| r.graph().nodes() == known.graph.nodes());
        let mut ranked = ranked.unwrap_or_else(|| Incremental::new(known.graph.clone()));
        follow(&mut ranked, known.graph);
        let ranking = ranked.ranking();
        self.ranked = Some(ranked);
        let mut relays = ranking.scores().iter().map(|s| s.relay);
        relays.find_map(|l| self.detour(known, l, random)).unwrap_or_default()
    }

    /// A random triple of a relay that has legs left; `None` if l is fully measured.
    fn detour(
        &self,
        known: &ScheduleInput<'_>,
        l: usize,
        random: &mut dyn Rng,
    ) -> Option<Vec<Pair>> {
        let n = known.graph.nodes();
        let is_left =
            |i: &usize| self.ledger.is_free(known, (*i, l)) || self.ledger.is_free(known, (l, *i));
        let left: Vec<usize> = (0..n).filter(is_left).collect();
        let sure = *left.get(draw::below(left.len().max(1), random))?;
        let mut drawn = (0..DRAWS).map(|_| (draw::below(n, random), draw::below(n, random)));
        let fits =
            |&(i, j): &Pair| i != j && i != l && j != l && !self.six(known, i, l, j).is_empty();
        let (i, j) = drawn.find(fits).unwrap_or_else(|| (sure, other(n, l, sure)));
        Some(self.six(known, i, l, j))
    }
}

/// The first node that is neither of these two, of at least three nodes.
fn other(n: usize, l: usize, i: usize) -> usize {
    (0..n).find(|j| *j != l && *j != i).unwrap_or(i)
}

/// Takes over the changes of a graph. O(legs).
fn follow(ranked: &mut Incremental, graph: &Graph) {
    for i in 0..graph.nodes() {
        if ranked.graph().has_same_outs(graph, i) {
            continue;
        }
        let before: Vec<usize> = ranked.graph().outs(i).map(|(j, _)| j).collect();
        let gone = before.into_iter().filter(|j| graph.rate(i, *j).is_none());
        for j in gone {
            ranked.set(i, j, None);
        }
        for (j, rate) in graph.outs(i) {
            ranked.set(i, j, Some(rate));
        }
    }
}

impl Schedule for Biased {
    fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Vec<Pair> {
        self.ledger.settle(known);
        let n = known.graph.nodes();
        let pairs = if n < 3 {
            let both = [(0, 1), (1, 0)].into_iter().filter(|_| n == 2);
            both.filter(|pair| self.ledger.is_free(known, *pair)).collect()
        } else {
            self.frequency.follow(known, &self.ledger);
            match self.phase_one(known, random) {
                Some(pairs) => pairs,
                None => self.phase_two(known, random),
            }
        };
        self.ledger.ask(pairs)
    }
}
