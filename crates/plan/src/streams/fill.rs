//! Greedy starts: repeatedly the step with the most worth per bit/s.

use super::{
    problem::{Configuration, NONE, Problem},
    state::{NOTHING, State},
};
use std::{cmp::Ordering, collections::BinaryHeap};

/// The number of routes by a relay that are tried: those with the most room.
const RELAYS: usize = 4;

/// The most legs that all searches for long routes may visit, about 100 ms.
pub(super) const EFFORT: usize = 20_000_000;

/// The next better preference of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    /// The worth per added bit/s.
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
    /// The step from the current choice to this one.
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

/// Applies as much of a configuration as breaks no rule.
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

/// A greedy configuration by the routes with the most room.
pub(super) fn greedy(problem: &Problem) -> State<'_> {
    let mut state = State::new(problem);
    complete(&mut state, problem);
    state
}

/// Serves the subscribers that have no route, over the routes with the most room.
pub(super) fn complete(state: &mut State<'_>, problem: &Problem) {
    let mut effort = EFFORT;
    let count = problem.subscribers.len() as u32;
    let is_new: Vec<bool> = (0..count).map(|who| state.choice(who) == NOTHING).collect();
    fill(
        state,
        problem,
        |who| is_new[who as usize].then_some(0),
        |state, who, choice| serve(state, problem, who, choice, &mut effort),
    );
}

/// Raises subscribers step by step, up to the choice that `wanted` returns.
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
        // A better choice may be smaller, so go on after one that does not fit.
        if wanted(who).is_some_and(|best| best < choice) {
            steps.push(Step::of(state, problem, who, choice - 1));
        }
    }
}

/// Gives a subscriber this choice by its current route or by the first other one with room. Returns whether it
/// succeeded.
pub(super) fn serve(
    state: &mut State<'_>,
    problem: &Problem,
    who: u32,
    choice: u8,
    effort: &mut usize,
) -> bool {
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
    let rate = problem.rate(stream, problem.preference(who, choice).parts);
    let is_served = ways(state, problem, stream, node, rate)
        .iter()
        .any(|way| serve_by(state, who, choice, (stream, node), way));
    if is_served || *effort == 0 {
        return is_served;
    }
    *effort = effort.saturating_sub(problem.legs.len() * usize::from(problem.terms.max_legs));
    let widest = widest(state, problem, stream, node);
    widest.is_some_and(|way| serve_by(state, who, choice, (stream, node), &way))
}

fn serve_by(
    state: &mut State<'_>,
    who: u32,
    choice: u8,
    (stream, node): (u32, u32),
    way: &[u32],
) -> bool {
    state.begin();
    state.attach(stream, node, way);
    if state.is_good() {
        state.set_choice(who, choice);
    }
    state.keep_if_good()
}

/// Routes that may have room: from nodes of the tree, the publisher first, then by a relay below it. Routes over legs
/// without any estimate come last.
fn ways(state: &State<'_>, problem: &Problem, stream: u32, node: u32, rate: u64) -> Vec<Vec<u32>> {
    let publisher = problem.streams[stream as usize].publisher;
    let room = |from: u32, to: u32| problem.leg_of(from, to).map_or(0, |leg| state.room(leg));
    let in_tree = |from: &u32| *from != node && state.is_in(stream, *from);
    let others = problem.by_place[stream as usize].iter().map(|(at, _)| *at);
    let known = [publisher].into_iter().chain(others.filter(|at| *at != publisher));
    let known = known.filter(|from| in_tree(from) && problem.may_send(stream, *from));
    let mut ways: Vec<_> =
        known.filter(|from| room(*from, node) >= rate).map(|from| vec![from]).collect();
    ways.dedup();
    let senders = problem.into[node as usize].iter().map(|leg| problem.legs[*leg as usize].from);
    let relays = senders
        .filter(|relay| *relay != publisher && !in_tree(relay) && problem.may_send(stream, *relay));
    let mut relays: Vec<_> = relays
        .map(|relay| (room(publisher, relay).min(room(relay, node)), relay))
        .filter(|(room, relay)| *room >= rate && *relay != node)
        .collect();
    relays.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    ways.extend(relays.into_iter().take(RELAYS).map(|(_, relay)| vec![publisher, relay]));
    let is_unknown =
        |from, to| problem.leg_of(from, to).is_none_or(|leg| problem.legs[leg as usize].is_unknown);
    ways.sort_by_cached_key(|way| {
        let ends = way.iter().zip(way.iter().skip(1).chain([&node]));
        ends.filter(|(from, to)| is_unknown(**from, **to)).count()
    });
    ways
}

/// The route with the most room, of any length, found layer by layer from the tree. O(legs × layers).
fn widest(state: &State<'_>, problem: &Problem, stream: u32, node: u32) -> Option<Vec<u32>> {
    // The subtree moves with the node.
    let is_start = |at: u32| state.is_in(stream, at) && !state.is_beneath(stream, at, node);
    let all = 0..problem.nodes.len() as u32;
    let mut rooms: Vec<u64> = all.map(|at| if is_start(at) { u64::MAX } else { 0 }).collect();
    let mut from = vec![NONE; rooms.len()];
    for _ in 0..problem.terms.max_legs {
        let before = rooms.clone();
        for (at, leg) in (0..).zip(&problem.legs) {
            let room = before[leg.from as usize].min(state.room(at));
            let is_free = !state.is_in(stream, leg.to) || leg.to == node;
            if room > rooms[leg.to as usize] && is_free && problem.may_send(stream, leg.from) {
                rooms[leg.to as usize] = room;
                from[leg.to as usize] = leg.from;
            }
        }
    }
    let (mut way, mut at) = (Vec::new(), node);
    while from[at as usize] != NONE && way.len() <= usize::from(problem.terms.max_legs) {
        at = from[at as usize];
        way.push(at);
    }
    way.reverse();
    (!way.is_empty() && is_start(at)).then_some(way)
}
