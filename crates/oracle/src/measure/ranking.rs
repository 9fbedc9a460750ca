//! The ranking of relays, computed in the background and shared by all requests.
//!
//! A ranking builds on the previous one: the score of a relay stays if no triple with it changed.

use super::{
    estimate_table::EstimateTable,
    leg_graph::{self, ChangedLegs, MeasuredAt, PlannedLegs},
    nodes::Slot,
};
use std::{collections::BTreeSet, panic, thread, time::Duration};
use thalweg_plan::{
    Graph,
    completion::{self, LegRtts},
    graph::Sparse,
    ranking::{ROBUST_MOST_GAIN, Ranking, Score, robust_scores, touched},
};
use thalweg_units::Time;

/// The least number of relays that justifies another thread.
const RELAYS_PER_THREAD: usize = 64;

/// The input of a ranking, copied from the table under its lock.
#[derive(Debug)]
pub(super) struct RankingInput {
    planned: PlannedLegs,
    pub changed: ChangedLegs,
    at: Time,
    changes: u64,
}

/// The kind of ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankingKind {
    /// From measured legs: [`Ranking::robust`].
    Measured,
    /// From measured legs and predictions based on them: [`completion::bounded`].
    Completed,
}

impl RankingInput {
    /// The whole input, for a ranking from scratch.
    #[cfg(test)]
    pub fn of(known: &EstimateTable, now: Time) -> Self {
        Self::with(known, (known.live().planned().clone(), ChangedLegs::All), now)
    }

    /// The input with its changes since the last call. O(n), and O(entries) once per hour.
    pub fn next(known: &mut EstimateTable, now: Time) -> Self {
        let snapshot = known.snapshot(now);
        Self::with(known, snapshot, now)
    }

    fn with(
        known: &EstimateTable,
        (planned, changed): (PlannedLegs, ChangedLegs),
        now: Time,
    ) -> Self {
        Self { planned, changed, at: now, changes: known.changes() }
    }

    /// The measured rates of the legs.
    pub const fn graph(&self) -> &Graph {
        &self.planned.rates
    }

    /// The ranking from scratch that liars cannot dominate.
    #[cfg(test)]
    pub fn rank(self) -> RankingSnapshot {
        self.after(&RankingSnapshot::nothing(), RankingKind::Measured)
    }

    /// The ranking that liars cannot dominate. `last` is the ranking of the previous picture.
    ///
    /// O(d²) for each relay that a changed leg touches, O(n·d²) for all; O(legs) if completed.
    pub fn after(self, last: &RankingSnapshot, by: RankingKind) -> RankingSnapshot {
        let touched = self.touched(last);
        let ranking = match by {
            RankingKind::Measured => self.measured(&last.ranking, &touched),
            RankingKind::Completed => {
                let rtt_s = RoundTrips(&self.planned.rtt_s);
                completion::bounded(self.graph(), Some(&rtt_s))
            }
        };
        let mut born = last.born.clone();
        born.resize(self.graph().nodes(), None);
        touched.iter().for_each(|slot| born[*slot] = median_date(&self.planned.born, *slot));
        let Self { planned, at, changes, .. } = self;
        RankingSnapshot { graph: planned.rates, ranking, born, at, changes }
    }

    /// The relays whose scores may have changed.
    fn touched(&self, last: &RankingSnapshot) -> Vec<usize> {
        let nodes = self.graph().nodes();
        let all = || (0..nodes).collect();
        let ChangedLegs::Legs(legs) = &self.changed else { return all() };
        if last.graph.nodes() != nodes {
            return all();
        }
        let mut found = BTreeSet::new();
        for (from, to) in legs {
            let leg = (*from as usize, *to as usize);
            found.extend(touched(&last.graph, leg).chain(touched(self.graph(), leg)));
        }
        found.into_iter().collect()
    }

    fn measured(&self, last: &Ranking, touched: &[usize]) -> Ranking {
        let none = |relay| Score { relay, score: 0.0, evidence: 0 };
        let nodes = self.graph().nodes();
        let mut scores: Vec<Score> = (0..nodes).map(none).collect();
        for score in last.scores().iter().filter(|s| s.relay < nodes) {
            scores[score.relay] = *score;
        }
        self.scored(touched).into_iter().for_each(|score| scores[score.relay] = score);
        Ranking::from_scores(scores)
    }

    /// The scores of these relays, computed on all processors.
    fn scored(&self, relays: &[usize]) -> Vec<Score> {
        // Planned legs never depend on one end's report alone: see verdict.rs.
        let sole = |_: usize, _: usize| None;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(relays.len().div_ceil(RELAYS_PER_THREAD)).max(1);
        thread::scope(|scope| {
            let part = |at: usize| relays.iter().copied().skip(at).step_by(threads).collect();
            let scores = move |relays: Vec<usize>| {
                robust_scores(self.graph(), &relays, ROBUST_MOST_GAIN, sole)
            };
            let parts: Vec<_> = (1..threads)
                .map(|at| (part(at), scores))
                .map(|(relays, scores)| scope.spawn(move || scores(relays)))
                .collect();
            let mut all = scores(part(0));
            for part in parts {
                all.extend(part.join().unwrap_or_else(|death| panic::resume_unwind(death)));
            }
            all
        })
    }
}

/// The median date of a node's legs.
fn median_date(born: &Sparse<MeasuredAt>, slot: usize) -> Option<MeasuredAt> {
    let mut all: Vec<MeasuredAt> =
        born.outs(slot).chain(born.ins(slot)).map(|(_, born)| born).collect();
    let half = all.len() / 2;
    (half < all.len()).then(|| *all.select_nth_unstable(half).1)
}

/// Round-trip times, by slot.
#[derive(Debug)]
struct RoundTrips<'a>(&'a Sparse<f32>);

impl LegRtts for RoundTrips<'_> {
    fn rtt_s(&self, (from, to): (usize, usize)) -> Option<f64> {
        self.0.get(from, to).map(f64::from)
    }
}

/// A ranking with the graph that it was made of.
#[derive(Debug)]
pub(super) struct RankingSnapshot {
    pub graph: Graph,
    pub ranking: Ranking,
    /// The median date of each node's legs.
    born: Vec<Option<MeasuredAt>>,
    at: Time,
    /// The value of [`EstimateTable::changes`] at the ranking.
    pub changes: u64,
}

impl RankingSnapshot {
    /// A ranking without nodes.
    pub fn nothing() -> Self {
        let (graph, ranking) = (Graph::new(0), Ranking::default());
        Self { graph, ranking, born: vec![], at: Time::ZERO, changes: 0 }
    }

    /// The median age of a relay's legs; the ranking's age for a relay without legs.
    pub fn age(&self, slot: Slot, now: Time) -> Duration {
        let born = self.born.get(slot as usize).copied().flatten();
        let age = |born| u64::try_from(leg_graph::seconds(now) - born).unwrap_or(0);
        born.map_or(now.since(self.at), |born| Duration::from_secs(age(born)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::estimate_table::TableEntry;
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng as _, SeedableRng as _},
    };
    use thalweg_measure::{Bound, Method};

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    /// Enters a leg. Every eighth has one end's report alone, and so a lower bound.
    fn enter(known: &mut EstimateTable, random: &mut Xoshiro256PlusPlus, nodes: u64, s: u64) {
        let mut below = |n: u64| random.next_u64() % n;
        let from = below(nodes);
        let to = (from + 1 + below(nodes - 1)) % nodes;
        let is_sole = below(8) == 0;
        let entry = TableEntry {
            leg: (from as Slot, to as Slot),
            bps: 1e6 * (1 + below(300)) as f64,
            spread: None,
            method: Method::Transfer,
            bound: if is_sole { Bound::AtLeast } else { Bound::Exact },
            reporter: from as Slot,
            is_sole,
            at: at(s),
        };
        known.enter(&entry, at(s));
    }

    #[test]
    fn incremental_rankings_match_full_ones() {
        let (mut known, mut random) = (EstimateTable::new(), Xoshiro256PlusPlus::seed_from_u64(5));
        known.resize(30, &[], at(0));
        let mut last = RankingSnapshot::nothing();
        for round in 1..=30_u64 {
            if round == 20 {
                known.resize(33, &[4], at(round));
            }
            let nodes = if round < 20 { 30 } else { 33 };
            (0..round).for_each(|_| enter(&mut known, &mut random, nodes, round));
            last = RankingInput::next(&mut known, at(round)).after(&last, RankingKind::Measured);
            let whole = RankingInput::of(&known, at(round)).rank();
            assert_eq!(last.ranking, whole.ranking, "round {round}");
            assert_eq!((&last.graph, &last.born), (&whole.graph, &whole.born), "round {round}");
        }
        assert!(last.ranking.scores()[0].score > 0.0);
    }

    #[test]
    fn completed_rankings_use_round_trip_times_and_no_sole_reports() {
        let (mut known, mut random) = (EstimateTable::new(), Xoshiro256PlusPlus::seed_from_u64(6));
        known.resize(30, &[], at(0));
        (0..150).for_each(|_| enter(&mut known, &mut random, 30, 10));
        known.note_rtt((0, 1), 0.05);
        let picture = RankingInput::next(&mut known, at(10));
        let rtt_s = picture.planned.rtt_s.clone();
        let expected = completion::bounded(picture.graph(), Some(&RoundTrips(&rtt_s)));
        let ranked = picture.after(&RankingSnapshot::nothing(), RankingKind::Completed);
        assert_eq!(ranked.ranking, expected);
        assert!(ranked.ranking.scores().iter().all(|s| s.score > 0.0), "nobody is unknown");
    }
}
