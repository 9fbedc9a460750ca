//! Starts: step after step the one that brings most for its rate.

use super::{
    problem::{Configuration, Problem},
    state::{NOTHING, State},
};
use std::{cmp::Ordering, collections::BinaryHeap};

/// Ways through a relay that are tried, those with the most room.
const RELAYS: usize = 4;

/// One subscriber's next better preference.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    /// Worth per bit/s that it adds.
    density: f64,
    who: u32,
    choice: u8,
}

impl Eq for Step {}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        let density = self.density.total_cmp(&other.density);
        density.then(other.who.cmp(&self.who)).then(self.choice.cmp(&other.choice))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Step {
    /// From what it gets to this choice.
    fn of(state: &State<'_>, problem: &Problem, who: u32, choice: u8) -> Self {
        let subscriber = &problem.subscribers[who as usize];
        let rate = |choice| {
            let parts = problem.preference(who, choice).parts;
            (problem.preference(who, choice).utility, problem.rate(subscriber.stream, parts))
        };
        let (utility, bps) = rate(choice);
        let (least, already) = match state.choice(who) {
            NOTHING => (0.0, 0),
            now => rate(now),
        };
        let more = bps.saturating_sub(already).max(1);
        Self { density: subscriber.weight * (utility - least) / more as f64, who, choice }
    }
}

/// As much of the configuration in force as breaks no rule.
pub(super) fn fitted<'a>(problem: &'a Problem, configuration: &Configuration) -> State<'a> {
    let mut state = State::new(problem);
    let wanted = |who: u32| configuration.choices[who as usize];
    fill(&mut state, problem, wanted, |state, who, choice| {
        state.begin();
        state.follow(who, choice, configuration);
        state.keep_if_good()
    });
    state
}

/// All that fits, by the ways with the most room.
pub(super) fn greedy(problem: &Problem) -> State<'_> {
    let mut state = State::new(problem);
    fill(&mut state, problem, |_| Some(0), |state, who, choice| serve(state, problem, who, choice));
    state
}

/// Gives everybody more, step by step, up to what `wanted` says.
fn fill<'a>(
    state: &mut State<'a>,
    problem: &Problem,
    wanted: impl Fn(u32) -> Option<u8>,
    mut give: impl FnMut(&mut State<'a>, u32, u8) -> bool,
) {
    let mut steps = BinaryHeap::new();
    for (who, subscriber) in (0..).zip(&problem.subscribers) {
        if wanted(who).is_some() {
            let lowest = subscriber.preferences.len() as u8 - 1;
            steps.push(Step::of(state, problem, who, lowest));
        }
    }
    while let Some(Step { who, choice, .. }) = steps.pop() {
        give(state, who, choice);
        // What does not fit is left out; something better may be smaller.
        if wanted(who).is_some_and(|best| best < choice) {
            steps.push(Step::of(state, problem, who, choice - 1));
        }
    }
}

/// Gives it this by its present way, or by the first other one that has room.
pub(super) fn serve(state: &mut State<'_>, problem: &Problem, who: u32, choice: u8) -> bool {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, node) = (subscriber.stream, subscriber.node);
    if state.is_in(stream, node) {
        state.begin();
        state.set_choice(who, choice);
        if state.keep_if_good() {
            return true;
        }
        if node == problem.streams[stream as usize].publisher {
            return false;
        }
    }
    for (parent, above) in ways(state, problem, who, choice) {
        state.begin();
        state.attach(stream, node, parent, above);
        if state.is_good() {
            state.set_choice(who, choice);
        }
        if state.keep_if_good() {
            return true;
        }
    }
    false
}

/// Parents that may have room: those in the tree, the publisher first, then relays beneath it.
fn ways(state: &State<'_>, problem: &Problem, who: u32, choice: u8) -> Vec<(u32, Option<u32>)> {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, node) = (subscriber.stream, subscriber.node);
    let publisher = problem.streams[stream as usize].publisher;
    let rate = problem.rate(stream, problem.preference(who, choice).parts);
    let room = |from: u32, to: u32| problem.leg_of(from, to).map_or(0, |leg| state.room(leg));
    let in_tree = |from: &u32| *from != node && state.is_in(stream, *from);
    let others = problem.by_place[stream as usize].iter().map(|(at, _)| *at);
    let known = [publisher].into_iter().chain(others.filter(|at| *at != publisher));
    let known = known.filter(|from| in_tree(from) && problem.may_send(stream, *from));
    let mut ways: Vec<_> =
        known.filter(|from| room(*from, node) >= rate).map(|from| (from, None)).collect();
    ways.dedup();
    let senders = problem.into[node as usize].iter().map(|leg| problem.legs[*leg as usize].from);
    let relays = senders
        .filter(|relay| *relay != publisher && !in_tree(relay) && problem.may_send(stream, *relay));
    let mut relays: Vec<_> = relays
        .map(|relay| (room(publisher, relay).min(room(relay, node)), relay))
        .filter(|(room, relay)| *room >= rate && *relay != node)
        .collect();
    relays.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    let by_relay = relays.into_iter().take(RELAYS);
    ways.extend(by_relay.map(|(_, relay)| (relay, Some(publisher))));
    ways
}
