//! Relays for a client, by each strategy.

use super::{
    Measuring,
    nodes::Slot,
    offer::{MOST, Offer},
};
use std::collections::BTreeSet;
use thalweg_plan::ranking::Score;
use thalweg_units::Time;
use thalweg_wire::mesh::measure::{Candidate, CandidatesReply, Strategy};

impl Measuring {
    /// At most `m` relays for this client; none: no member of the mesh, or not one yet.
    pub async fn candidates(
        &self,
        client: Option<Slot>,
        strategy: Option<Strategy>,
        m: usize,
    ) -> CandidatesReply {
        let strategy = strategy.unwrap_or(self.config.strategy);
        let (offer, m) = (self.offer(), m.min(MOST));
        let scores = match strategy {
            Strategy::Oblivious => self.best(&offer, vec![], client, m),
            Strategy::Specific => {
                let own = client.map(|client| offer.specific(client).to_vec());
                self.best(&offer, own.unwrap_or_default(), client, m)
            }
            Strategy::Balanced => self.balanced(&offer, client, m),
            Strategy::LoadAware => self.load_aware(&offer, client, m).await,
        };
        let now = self.now().time;
        CandidatesReply {
            strategy,
            candidates: scores.iter().filter_map(|score| candidate(&offer, *score, now)).collect(),
            valid_for: self.config.pace.candidates,
            measured: offer.measured,
            pairs: offer.pairs,
        }
    }

    /// `first`, then the mesh's best; equals in random order, so that not all clients begin
    /// with the same relays while nothing is known (UKAIRO §4.3).
    fn best(&self, offer: &Offer, first: Vec<Score>, client: Option<Slot>, m: usize) -> Vec<Score> {
        let own = |relay: usize| client == Some(relay as Slot);
        let mut best: Vec<Score> = first.into_iter().filter(|s| !own(s.relay)).take(m).collect();
        let taken: BTreeSet<usize> = best.iter().map(|s| s.relay).collect();
        // The client and the first may be among them.
        let some = m + taken.len() + 1;
        let more = self.drawn(|random| offer.ranking.top_of_ties(some, random));
        let more = more.into_iter().filter(|relay| !own(*relay) && !taken.contains(relay));
        best.extend(more.filter_map(|relay| offer.score(relay as Slot)));
        best.truncate(m);
        best
    }

    /// Uniformly from the better half (UKAIRO §3.1.2).
    fn balanced(&self, offer: &Offer, client: Option<Slot>, m: usize) -> Vec<Score> {
        // The client may be among them.
        let relays = self.drawn(|random| offer.ranking.balanced(m + 1, random));
        let relays = relays.into_iter().map(|relay| relay as Slot);
        let others = relays.filter(|relay| client != Some(*relay)).take(m);
        let mut drawn: Vec<Score> = others.filter_map(|relay| offer.score(relay)).collect();
        drawn.sort_by(|a, b| b.score.total_cmp(&a.score));
        drawn
    }

    async fn load_aware(&self, offer: &Offer, client: Option<Slot>, m: usize) -> Vec<Score> {
        let Some(relays) = self.assigning.ask((client, m)).await else {
            // Too many ask at once: what costs nothing is better than nothing.
            return self.balanced(offer, client, m);
        };
        // What was assigned a moment ago may be offered no more.
        let scores: Vec<Score> = relays.iter().filter_map(|slot| offer.score(*slot)).collect();
        if scores.len() < m.min(relays.len()) || relays.is_empty() {
            return self.best(offer, scores, client, m);
        }
        scores
    }
}

fn candidate(offer: &Offer, score: Score, now: Time) -> Option<Candidate> {
    let slot = score.relay as Slot;
    Some(Candidate {
        relay: offer.nodes.get(slot)?.name.clone(),
        score: score.score,
        evidence: score.evidence,
        age: offer.ranked.age(slot, now),
        load: offer.share(slot, now),
    })
}
