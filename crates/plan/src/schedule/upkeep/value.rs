//! The value of measuring a leg again: what that could change.

use super::Pair;
use crate::{Graph, graph::gain, ranking::MOST_GAIN, ranking::Ranking};
use thalweg_units::Rate;

/// How many relays a client gets (UKAIRO §2.2.3: "a value of m = 5 ensures enough diversity").
const CANDIDATES: usize = 5;

/// Values of legs on one graph.
pub(super) struct Values<'g> {
    graph: &'g Graph,
    /// Per relay: how near its score is to the border of the candidates, 0 to 1, divided by its number of pairs.
    relevance: Vec<f64>,
}

impl<'g> Values<'g> {
    /// Uses this ranking, O(n), or makes UKAIRO's, O(n·d²).
    pub(super) fn new(graph: &'g Graph, ranking: Option<&Ranking>) -> Self {
        let made = ranking.is_none().then(|| Ranking::oblivious(graph));
        let scores = ranking.or(made.as_ref()).map_or(&[][..], Ranking::scores);
        let at = |place: usize| scores.get(place).or(scores.last()).map_or(0.0, |s| s.score);
        let border = f64::midpoint(at(CANDIDATES - 1), at(CANDIDATES));
        let far = scores.iter().map(|s| (s.score - border).abs()).sum::<f64>();
        let far = (far / scores.len().max(1) as f64).max(1e-9);
        let mut relevance = vec![0.0; graph.nodes()];
        for s in scores.iter().filter(|s| s.relay < graph.nodes()) {
            let near = (-(s.score - border).abs() / far).exp();
            relevance[s.relay] = near / s.evidence.max(1) as f64;
        }
        Self { graph, relevance }
    }

    /// How much a change of the leg moves the scores that matter, as a fraction of that change, plus how open the
    /// choice of its own pair is. From 0 up. O(d).
    pub(super) fn of(&self, (i, j): Pair) -> f64 {
        let Some(leg) = self.graph.rate(i, j) else { return 0.0 };
        let mut scores = 0.0;
        for (l, detour) in self.graph.detours(i, j) {
            scores += self.relevance[l] * sensitivity(leg, detour);
        }
        for (_, direct, second) in self.graph.shared_outs(i, j) {
            scores += self.relevance[j] * bottleneck(direct, leg, second);
        }
        for (_, direct, first) in self.graph.shared_ins(j, i) {
            scores += self.relevance[i] * bottleneck(direct, leg, first);
        }
        // A score is a mean over pairs; with this factor, each relay's score weighs as one leg in the sum over all
        // legs.
        scores * self.graph.measured() as f64 / self.graph.nodes() as f64 + self.choice(i, j, leg)
    }

    /// 1 if the best detour is as fast as the direct path; less, the further they are apart.
    fn choice(&self, i: usize, j: usize, direct: Rate) -> f64 {
        let best = self.graph.detours(i, j).map(|(_, rate)| rate).max();
        let Some(best) = best else { return 0.0 };
        let (best, direct) = (best.as_bps().max(1) as f64, direct.as_bps().max(1) as f64);
        (best / direct).min(direct / best)
    }
}

/// ∂d/∂ln b for the direct path's rate b: 1 + d if the detour gains.
fn sensitivity(direct: Rate, detour: Rate) -> f64 {
    match gain(direct, detour).min(MOST_GAIN) {
        gain if gain > 0.0 => 1.0 + gain,
        _ => 0.0,
    }
}

/// The same for a detour's leg: only the slower one counts.
fn bottleneck(direct: Rate, leg: Rate, other: Rate) -> f64 {
    if leg <= other { sensitivity(direct, leg) } else { 0.0 }
}
