//! The relays that can be offered now, in order.

use super::{
    loads::Loads, nodes::Nodes, nodes::Slot, ranking::RankingSnapshot, state::MeasureState,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use thalweg_plan::{
    assignment::RelayLoad,
    ranking::{End, Ranking, Score},
};
use thalweg_units::Time;
use thalweg_wire::mesh::Roster;

/// The most candidates of one answer.
pub(super) const MOST: usize = 64;

/// The most clients whose rankings are cached, 2 kB each. Beyond that the cache is cleared, and rankings are recomputed
/// on demand.
const SPECIFIC: usize = 4096;

/// A snapshot from which candidates are chosen.
#[derive(Debug)]
pub(super) struct Offer {
    pub nodes: Arc<Nodes>,
    pub ranked: Arc<RankingSnapshot>,
    /// The relays of the roster that are not down, the best first. Scores are reduced for relays near their load limit
    /// and for those with disputed reports.
    pub ranking: Ranking,
    /// The ranking's scores, by slot.
    scores: Vec<Option<Score>>,
    /// The factors of the scores, by slot; negative: not offered.
    weights: Vec<f64>,
    /// The loads for the assignment, by slot.
    pub loads: Vec<RelayLoad>,
    shares: Loads,
    /// Ordered pairs of relays: `measured` ones, and all `pairs`.
    pub measured: u64,
    pub pairs: u64,
    /// The value of [`MeasureState::changes`] at the snapshot.
    pub changes: u64,
    /// Client-specific rankings, computed on demand; at most [`SPECIFIC`].
    specific: Mutex<HashMap<Slot, Arc<[Score]>>>,
}

impl Offer {
    /// An offer without relays.
    pub fn nothing() -> Self {
        Self {
            nodes: Arc::default(),
            ranked: Arc::new(RankingSnapshot::nothing()),
            ranking: Ranking::default(),
            scores: vec![],
            weights: vec![],
            loads: vec![],
            shares: Loads::default(),
            measured: 0,
            pairs: 0,
            changes: 0,
            specific: Mutex::default(),
        }
    }

    /// The offer for the present state. O(n log n + legs).
    pub fn of(state: &MeasureState, ranked: Arc<RankingSnapshot>, now: Time) -> Self {
        let nodes = Arc::clone(&state.nodes);
        let slots = nodes.len();
        let is_offered = |slot: Slot| nodes.is_relay(slot) && !state.presence.is_down(slot);
        let weight = |slot: Slot| match is_offered(slot) {
            true => state.loads.weight(slot, now) * state.known.trust(slot),
            false => -1.0,
        };
        let weights: Vec<f64> = (0..slots).map(weight).collect();
        let loads = (0..slots).map(|slot| state.loads.relay(slot, now)).collect();
        let ranking = offered(&ranked, &weights);
        let mut scores = vec![None; slots as usize];
        ranking.scores().iter().for_each(|score| scores[score.relay] = Some(*score));
        let is_relay = |slot: usize| nodes.is_relay(slot as Slot);
        let of_relays = ranked.graph.legs().filter(|((i, j), _)| is_relay(*i) && is_relay(*j));
        let measured = of_relays.count() as u64;
        let relays = nodes.iter().filter(|(_, node)| node.is_relay).count() as u64;
        Self {
            measured,
            pairs: relays * relays.saturating_sub(1),
            shares: state.loads.clone(),
            changes: state.changes,
            specific: Mutex::default(),
            nodes,
            ranked,
            ranking,
            scores,
            weights,
            loads,
        }
    }

    /// Whether the offer is for this roster.
    pub fn shows(&self, roster: &Roster) -> bool {
        self.nodes.version() == roster.version
    }

    /// The best relays for one client (UKAIRO Eq. 4), at most [`MOST`], and only relays with evidence.
    pub fn specific(&self, client: Slot) -> Arc<[Score]> {
        if let Some(known) = self.specific.lock().get(&client) {
            return Arc::clone(known);
        }
        let graph = &self.ranked.graph;
        let all = Ranking::specific_as(graph, client as usize, End::Sink);
        let with_evidence = all.scores().iter().filter(|s| s.evidence > 0 && self.has(s.relay));
        let ranking = Ranking::from_scores(with_evidence.copied().collect());
        let ranking = ranking.discounted(|relay| self.weight(relay));
        let best: Arc<[Score]> = ranking.scores().iter().take(MOST).copied().collect();
        remember(&mut self.specific.lock(), client, &best);
        best
    }

    /// The score of an offered relay.
    pub fn score(&self, slot: Slot) -> Option<Score> {
        self.scores.get(slot as usize).copied().flatten()
    }

    fn has(&self, relay: usize) -> bool {
        self.weights.get(relay).is_some_and(|weight| *weight >= 0.0)
    }

    fn weight(&self, relay: usize) -> f64 {
        self.weights.get(relay).map_or(0.0, |weight| weight.max(0.0))
    }

    /// A relay's load as a share of its limit.
    pub fn share(&self, slot: Slot, now: Time) -> Option<f64> {
        self.shares.share(slot, now)
    }
}

fn remember(known: &mut HashMap<Slot, Arc<[Score]>>, client: Slot, best: &Arc<[Score]>) {
    if known.len() >= SPECIFIC {
        known.clear();
    }
    known.insert(client, Arc::clone(best));
}

/// The ranking of the relays with a weight of at least 0, with scores multiplied by it. Relays newer than the ranking
/// have score 0.
fn offered(ranked: &RankingSnapshot, weights: &[f64]) -> Ranking {
    let known = ranked.ranking.scores().iter();
    let newer =
        (ranked.graph.nodes()..weights.len()).map(|relay| Score { relay, score: 0.0, evidence: 0 });
    let all = known.copied().chain(newer);
    let weight = |relay: usize| weights.get(relay).copied().unwrap_or(-1.0);
    let offered = all.filter(|s| weight(s.relay) >= 0.0);
    Ranking::from_scores(offered.collect()).discounted(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_client_rankings_is_bounded() {
        let (mut known, best) = (HashMap::new(), Arc::from(vec![]));
        for client in 0..3 * SPECIFIC as Slot {
            remember(&mut known, client, &best);
            assert!(known.contains_key(&client) && known.len() <= SPECIFIC);
        }
    }
}
