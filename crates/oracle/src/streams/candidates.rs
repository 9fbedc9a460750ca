//! Legs that could serve a stream, and which of them members should measure for the next plan.
//!
//! A path without traffic has no passive estimate (MGRP §3.1). To be able to replace a congested leg at once, legs
//! that a plan might use are measured occasionally in advance, and more often while a subscriber that they could serve
//! is degraded.

use super::{
    outline::Outline,
    state::{LegEnds, ReportState},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::streams::{Planned, Problem};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{mesh::Name, stream::plan::MAX_MEASURED};

/// The most unused legs of one sender that are measured: those with the shortest delays.
const MOST_RECEIVERS: usize = 8;

/// The most pairs of a publisher's and a subscriber's node whose legs are considered, degraded subscribers first.
const MOST_PAIRS: usize = 1000;

/// A measurement of an unused leg is repeated after this time.
const CALM: Duration = Duration::from_secs(60);

/// The same if a subscriber could profit, or if the leg was too slow when it was last used; shorter than the age at
/// which an estimate no longer raises a level.
const URGENT: Duration = Duration::from_secs(10);

/// A node is asked for this long, enough for four legs, and then not before [`CALM`].
const ASKED: Duration = Duration::from_secs(20);

/// A stream and a node with a subscriber of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// Whether the subscriber gets its best preference.
    is_served: bool,
    stream: u32,
    node: u32,
    has_renditions: bool,
}

/// At most `most` pairs, those of degraded subscribers first: one of each node, then a second one of each, and so on.
fn in_turn(pairs: BTreeSet<Pair>, most: usize) -> Vec<Pair> {
    let mut counts: BTreeMap<(bool, u32), usize> = BTreeMap::new();
    let ranked = pairs.into_iter().map(|pair| {
        let count = counts.entry((pair.is_served, pair.node)).or_default();
        *count += 1;
        (pair.is_served, *count, pair)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_unstable();
    ranked.into_iter().take(most).map(|(.., pair)| pair).collect()
}

/// Legs that could serve the present subscribers.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    by_sender: BTreeMap<NodeId, Vec<NodeId>>,
    urgent: BTreeSet<LegEnds>,
    /// Urgent legs to subscribers that could get a better rendition. Only trains show whether a leg can carry it,
    /// because the queue shows only the rate of what is sent.
    renditions: BTreeSet<LegEnds>,
}

impl Candidates {
    /// The candidates of a plan.
    pub fn of(
        outline: &Outline,
        problem: &Problem,
        planned: &Planned,
        state: &ReportState,
    ) -> Self {
        let mut pairs: BTreeSet<Pair> = BTreeSet::new();
        let choices = planned.configuration.choices.iter().zip(&outline.wishes);
        for ((choice, wish), subscriber) in choices.zip(problem.subscribers()) {
            let is_served = *choice == Some(0);
            let (stream, node) = (subscriber.stream, subscriber.node);
            pairs.insert(Pair { is_served, stream, node, has_renditions: wish.has_renditions });
        }
        let ends: BTreeSet<LegEnds> = outline.ends.iter().copied().collect();
        let node = |at: u32| outline.nodes[at as usize];
        let (mut useful, mut urgent) = (BTreeSet::new(), BTreeSet::new());
        let mut renditions = BTreeSet::new();
        for pair in in_turn(pairs, MOST_PAIRS) {
            let Pair { is_served, has_renditions, .. } = pair;
            let stream = &problem.streams()[pair.stream as usize];
            let (from, to) = (node(stream.publisher), node(pair.node));
            let relays = stream.relays.iter().flatten().map(|relay| node(*relay));
            let legs = relays.flat_map(|relay| [(from, relay), (relay, to)]).chain([(from, to)]);
            let legs: Vec<LegEnds> = legs.filter(|leg| ends.contains(leg)).collect();
            if !is_served {
                urgent.extend(legs.iter().copied());
                renditions.extend(legs.iter().copied().filter(|_| has_renditions));
            }
            useful.extend(legs);
        }
        let mut by_sender: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (from, to) in useful {
            by_sender.entry(from).or_default().push(to);
        }
        for (from, receivers) in &mut by_sender {
            let delay = |to: &NodeId| state.legs.get(&(*from, *to)).and_then(|leg| leg.delay);
            receivers.sort_by_key(|to| delay(to).unwrap_or(Duration::MAX));
            receivers.truncate(MOST_RECEIVERS);
        }
        Self { by_sender, urgent, renditions }
    }

    /// The members to which this member should measure its leg now, the leg with the oldest measurement first.
    pub fn to_measure(&self, who: NodeId, state: &mut ReportState, now: Time) -> Vec<Name> {
        let Some(reported) = state.reported.get(&who).filter(|reported| reported.report.measures)
        else {
            return Vec::new();
        };
        let keeps_levels = reported.report.keeps_levels;
        let mut due = Vec::new();
        for to in self.by_sender.get(&who).into_iter().flatten() {
            let ends = (who, *to);
            let is_urgent = self.urgent.contains(&ends);
            let follows = keeps_levels || self.renditions.contains(&ends);
            let Some(leg) = state.leg_entry(ends) else { continue };
            // In other cases the queue of a used leg shows its rate without measurements.
            let is_pointless = leg.carries > 0 && !(follows && is_urgent);
            let after = if is_urgent || leg.view.is_outdated() { URGENT } else { CALM };
            let measured = leg.view.measured();
            if is_pointless || measured.is_some_and(|at| now.since(at) < after) {
                continue;
            }
            let since = leg.asked.map(|at| now.since(at));
            if since.is_some_and(|since| since >= ASKED && since < CALM) {
                continue;
            }
            due.push((measured, *to));
        }
        due.sort_unstable();
        due.truncate(MAX_MEASURED);
        for (_, to) in &due {
            if let Some(leg) = state.leg_entry((who, *to))
                && leg.asked.is_none_or(|at| now.since(at) >= CALM)
            {
                leg.asked = Some(now);
            }
        }
        due.iter().filter_map(|(_, to)| state.members.name(to).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_many_subscriptions_does_not_keep_out_the_others() {
        let pair =
            |is_served, stream, node| Pair { is_served, stream, node, has_renditions: false };
        let greedy = (0..100).map(|stream| pair(false, stream, 0));
        let modest = [pair(false, 200, 1), pair(true, 0, 2)];
        let taken = in_turn(greedy.chain(modest).collect(), 101);
        assert_eq!(taken[..2], [pair(false, 0, 0), pair(false, 200, 1)]);
        assert_eq!(taken.len(), 101);
        assert!(!taken.contains(&modest[1]), "degraded subscribers come first");
    }
}
