//! Legs that could serve a stream, and which of them members should measure for the next plan.
//!
//! A path that nothing uses has no passive estimate (MGRP §3.1). So that a congested leg can be replaced at once, legs
//! that a plan might use are measured now and then before they are needed, and more often while a subscriber that they
//! could serve gets less than it would like.

use super::{
    outline::Outline,
    state::{Ends, State},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::streams::{Planned, Problem};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{mesh::Name, stream::plan::MAX_MEASURED};

/// Unused legs of one sender that are measured: those with the shortest delays.
const MOST_RECEIVERS: usize = 8;

/// Degraded subscribers whose legs are measured more often.
const MOST_URGENT: usize = 1000;

/// A measurement of an unused leg is repeated after this time.
const CALM: Duration = Duration::from_secs(60);

/// It is repeated after this time if a subscriber could profit; younger than what raises a level.
const URGENT: Duration = Duration::from_secs(10);

/// A node is asked for this long, which is longer than it takes for four legs, and then not before [`CALM`].
const ASKED: Duration = Duration::from_secs(20);

/// Legs that could serve the present subscribers.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    by_sender: BTreeMap<NodeId, Vec<NodeId>>,
    urgent: BTreeSet<Ends>,
}

impl Candidates {
    /// The candidates of a plan.
    pub fn of(outline: &Outline, problem: &Problem, planned: &Planned, state: &State) -> Self {
        let mut by_sender: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (from, to) in &outline.ends {
            by_sender.entry(*from).or_default().push(*to);
        }
        for (from, receivers) in &mut by_sender {
            let delay = |to: &NodeId| state.legs.get(&(*from, *to)).and_then(|leg| leg.delay);
            receivers.sort_by_key(|to| delay(to).unwrap_or(Duration::MAX));
            receivers.truncate(MOST_RECEIVERS);
        }
        let choices = planned.configuration.choices.iter();
        let degraded = choices.zip(problem.subscribers()).filter(|(choice, _)| **choice != Some(0));
        let mut urgent = BTreeSet::new();
        for (_, subscriber) in degraded.take(MOST_URGENT) {
            let stream = &problem.streams()[subscriber.stream as usize];
            let node = |at: u32| outline.nodes[at as usize];
            let (from, to) = (node(stream.publisher), node(subscriber.node));
            urgent.insert((from, to));
            for relay in stream.relays.iter().flatten().map(|relay| node(*relay)) {
                urgent.extend([(from, relay), (relay, to)]);
            }
        }
        Self { by_sender, urgent }
    }

    /// The members to whom this one should measure the leg now, the longest unmeasured first.
    pub fn to_measure(&self, who: NodeId, state: &mut State, now: Time) -> Vec<Name> {
        let Some(said) = state.said.get(&who).filter(|said| said.report.measures) else {
            return Vec::new();
        };
        let keeps_levels = said.report.keeps_levels;
        let mut due = Vec::new();
        for to in self.by_sender.get(&who).into_iter().flatten() {
            let ends = (who, *to);
            let is_urgent = self.urgent.contains(&ends);
            let Some(leg) = state.leg_entry(ends) else { continue };
            // The queue of a leg that keeps to no levels finds what a used leg carries by itself.
            let is_pointless = leg.carries > 0 && !(keeps_levels && is_urgent);
            let after = if is_urgent { URGENT } else { CALM };
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
