//! Simulated annealing (MGRP §3.1): the levels and routes with the greatest total worth.
//!
//! It starts from the present configuration and from a greedy one, and takes random steps: another level, another
//! parent, the same level for a whole branch, or one subscriber down and another one up. A step with a loss is
//! accepted with probability exp(gain/T). Steps that break a rule are never accepted, so each intermediate
//! configuration is valid.
//!
//! T falls geometrically from the share [`HOT`] of the mean best worth to the share [`COLD`]. With few moves for each
//! subscriber it starts and ends colder, because there is no time to repair a good start that was spoilt. Finally, changes
//! without a gain are reverted, and each subscriber is raised as far as there is room.

use super::{
    fill::{complete, fitted, greedy, serve},
    flows::Flows,
    problem::{Configuration, NONE, Problem},
    state::{NOTHING, State},
};
use crate::draw::{below, distinct, unit};
use rand_core::Rng;

/// T at the beginning as a share of the mean best worth, with enough moves.
const HOT: f64 = 0.5;

/// T at the end, as the same share. Of 30 searches of a problem that is hard to solve, 8 found the optimum with 0.01,
/// 18 with 0.05, 16 with 0.1 and 5 with 0.2.
const COLD: f64 = 0.05;

/// The lowest T, as the same share.
const COLDEST: f64 = 0.01;

/// The moves for each subscriber from which the start is hottest.
const MOVES_WHEN_HOT: f64 = 1000.0;

/// The most repetitions of a small problem from each start. The same searches found the optimum 18 times with 20
/// repetitions and 22 times with 60.
const MOST_RUNS: u32 = 60;

/// The most moves of a small problem; they take less than half a second.
const MOVES: u32 = 400_000;

/// Moves for each subscriber that are enough: of 4,200 small problems, the result of one was more than 2 % below the
/// optimum (2.4 %), and other random numbers solved it.
const MOVES_FOR_EACH: u32 = 100_000;

/// The least moves for each subscriber.
const LEAST_MOVES: u32 = 16;

/// In larger streams subscribers are changed only one by one.
const MOST_TOGETHER: usize = 64;

/// In larger problems trees are not rebuilt: other subscribers use the freed capacity anyway.
const MOST_REBUILT: usize = 256;

/// The number of temperatures.
const STAGES: u32 = 64;

/// The longest route, whatever [`Terms::max_legs`](super::Terms::max_legs) says.
const MOST_LEGS: usize = 8;

/// Smaller differences are ties.
const EPSILON: f64 = 1e-9;

/// The result of planning.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub configuration: Configuration,
    pub flows: Flows,
    /// Its worth including all margins and costs, which the search maximised.
    pub worth: f64,
}

impl Problem {
    /// Enough moves: many for each subscriber of a small problem; for larger ones as many as about a second allows.
    pub fn moves(&self) -> u32 {
        let subscribers = self.subscribers.len() as u32;
        let for_each = subscribers.saturating_mul(MOVES_FOR_EACH);
        for_each.min(MOVES).max(subscribers.saturating_mul(LEAST_MOVES))
    }

    /// The best configuration found in this many moves; deterministic for the same random numbers.
    pub fn plan(&self, moves: u32, random: &mut dyn Rng) -> Planned {
        let has_present = self.present.choices.iter().any(Option::is_some);
        let starts = match has_present {
            true => vec![fitted(self, &self.present), greedy(self)],
            false => vec![greedy(self)],
        };
        let hot = self.subscribers.len() as f64 * MOVES_WHEN_HOT;
        let runs = (f64::from(moves) / hot) as usize / starts.len();
        let runs = starts.len() * runs.clamp(1, MOST_RUNS as usize);
        let mut best: Option<State<'_>> = None;
        for start in starts.iter().cycle().take(runs) {
            let mut start = start.clone();
            polish(&mut start, self);
            if start.is_content() {
                best = Some(start);
                break;
            }
            let found = anneal(start, self, moves / runs as u32, random);
            if best.as_ref().is_none_or(|best| found.total() > best.total() + EPSILON) {
                best = Some(found);
            }
        }
        self.planned(&best.unwrap_or_else(|| State::new(self)))
    }

    /// Drops the parts of a configuration that break a rule, and gives each subscriber without a route the first one
    /// with room. Takes a fraction of a search's time, so that no subscriber has to wait for the search.
    pub fn complete(&self, configuration: &Configuration) -> Planned {
        let mut state = fitted(self, configuration);
        complete(&mut state, self);
        self.planned(&state)
    }

    fn planned(&self, state: &State<'_>) -> Planned {
        let configuration = state.configuration();
        let flows = Flows::of(self, &configuration);
        Planned { configuration, flows, worth: state.total() }
    }
}

/// The best configuration found from `start`.
fn anneal<'a>(start: State<'a>, problem: &Problem, moves: u32, random: &mut dyn Rng) -> State<'a> {
    let subscribers = problem.subscribers.len();
    let mut best = start.clone();
    if subscribers == 0 {
        return best;
    }
    let groups = Groups::of(problem);
    let likes = |at: usize| {
        let subscriber = &problem.subscribers[at];
        subscriber.weight * subscriber.preferences[0].utility
    };
    let mean = (0..subscribers).map(likes).sum::<f64>() / subscribers as f64;
    let share = (f64::from(moves) / subscribers as f64 / MOVES_WHEN_HOT).min(1.0);
    let [hot, cold] = [HOT, COLD].map(|heat| mean * (heat * share).max(COLDEST));
    let mut state = start;
    for stage in 0..STAGES {
        let done = f64::from(stage) / f64::from(STAGES - 1);
        let heat = hot * (cold / hot).powf(done);
        for _ in 0..moves / STAGES {
            state.begin();
            groups.step(&mut state, problem, random);
            let gain = state.gain();
            let is_taken = gain >= 0.0 || unit(random) < (gain / heat).exp();
            if !(state.is_good() && is_taken) {
                state.undo();
            }
        }
        if state.total() > best.total() + EPSILON {
            best = state.clone();
        }
    }
    polish(&mut state, problem);
    polish(&mut best, problem);
    if state.total() > best.total() + EPSILON { state } else { best }
}

/// Subscribers that compete for legs, by the publisher's node and by their own.
struct Groups {
    by_publisher: Vec<Vec<u32>>,
    by_node: Vec<Vec<u32>>,
}

impl Groups {
    fn of(problem: &Problem) -> Self {
        let mut groups = Self {
            by_publisher: vec![Vec::new(); problem.nodes.len()],
            by_node: vec![Vec::new(); problem.nodes.len()],
        };
        for (who, subscriber) in (0..).zip(&problem.subscribers) {
            let publisher = problem.streams[subscriber.stream as usize].publisher;
            groups.by_publisher[publisher as usize].push(who);
            groups.by_node[subscriber.node as usize].push(who);
        }
        groups
    }

    /// Takes a random step.
    fn step(&self, state: &mut State<'_>, problem: &Problem, random: &mut dyn Rng) {
        let who = below(problem.subscribers.len(), random) as u32;
        match below(100, random) {
            0..50 => {
                let choice = other_choice(state, problem, who, random);
                give(state, problem, who, choice, random);
            }
            50..70 => reroute(state, problem, who, random),
            70..79 => together(state, problem, who, random),
            79..81 => rebuild(state, problem, problem.subscribers[who as usize].stream, random),
            _ => self.swap(state, problem, who, random),
        }
    }

    /// Lowers one subscriber and raises another one that may use the same legs.
    fn swap(&self, state: &mut State<'_>, problem: &Problem, who: u32, random: &mut dyn Rng) {
        let subscriber = &problem.subscribers[who as usize];
        let publisher = problem.streams[subscriber.stream as usize].publisher;
        let group = match below(2, random) {
            0 => &self.by_publisher[publisher as usize],
            _ => &self.by_node[subscriber.node as usize],
        };
        let other = group[below(group.len(), random)];
        let (up, down) = (state.choice(who), state.choice(other));
        if other == who || up == 0 || down == NOTHING {
            return;
        }
        let worse = problem.subscribers[other as usize].preferences.len() as u8 - down;
        let lower = down + 1 + below(usize::from(worse), random) as u8;
        let is_some = usize::from(lower) < problem.subscribers[other as usize].preferences.len();
        state.set_choice(other, if is_some { lower } else { NOTHING });
        let most = up.min(subscriber.preferences.len() as u8);
        give(state, problem, who, below(usize::from(most), random) as u8, random);
    }
}

/// A random choice other than the current one.
fn other_choice(state: &State<'_>, problem: &Problem, who: u32, random: &mut dyn Rng) -> u8 {
    let count = problem.subscribers[who as usize].preferences.len();
    let now = usize::from(state.choice(who)).min(count);
    let drawn = below(count, random);
    let other = if drawn < now { drawn } else { drawn + 1 };
    if other == count { NOTHING } else { other as u8 }
}

/// Gives a subscriber this choice, by a random route if it has none.
fn give(state: &mut State<'_>, problem: &Problem, who: u32, choice: u8, random: &mut dyn Rng) {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, node) = (subscriber.stream, subscriber.node);
    if !state.is_in(stream, node) {
        if choice == NOTHING {
            return;
        }
        let Some(way) = way(state, problem, stream, node, random) else { return };
        state.attach(stream, node, way.down().nodes());
    }
    if state.is_good() {
        state.set_choice(who, choice);
    }
}

/// Sets another parent for the subscriber's node or for one of its ancestors.
fn reroute(state: &mut State<'_>, problem: &Problem, who: u32, random: &mut dyn Rng) {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, mut node) = (subscriber.stream, subscriber.node);
    let publisher = problem.streams[stream as usize].publisher;
    if node == publisher || !state.is_in(stream, node) {
        return;
    }
    let above = state.parent(stream, node);
    if above != publisher && below(4, random) == 0 {
        node = above;
    }
    if let Some(way) = way(state, problem, stream, node, random)
        && way.nodes()[0] != state.parent(stream, node)
    {
        state.attach(stream, node, way.down().nodes());
    }
}

/// Sets the same choice for a whole subtree: a part that a leg carries for one subscriber is free for the others.
fn together(state: &mut State<'_>, problem: &Problem, who: u32, random: &mut dyn Rng) {
    let subscriber = &problem.subscribers[who as usize];
    let stream = subscriber.stream;
    let of_stream = &problem.by_place[stream as usize];
    if !state.is_in(stream, subscriber.node) || of_stream.len() > MOST_TOGETHER {
        return;
    }
    let mut top = subscriber.node;
    while below(3, random) > 0 && state.parent(stream, top) != NONE {
        top = state.parent(stream, top);
    }
    let choice = below(subscriber.preferences.len(), random) as u8;
    for (node, other) in of_stream {
        let lowest = problem.subscribers[*other as usize].preferences.len() as u8 - 1;
        if state.is_in(stream, *node) && state.is_beneath(stream, *node, top) {
            state.set_choice(*other, choice.min(lowest));
        }
    }
}

/// Rebuilds a tree: adds subscribers in random order, each with the best choice that fits on a random route.
fn rebuild(state: &mut State<'_>, problem: &Problem, stream: u32, random: &mut dyn Rng) {
    let of_stream = &problem.by_place[stream as usize];
    if problem.subscribers.len() > MOST_REBUILT {
        return;
    }
    let mut order: Vec<u32> = of_stream.iter().map(|(_, who)| *who).collect();
    order.iter().for_each(|who| {
        if state.choice(*who) != NOTHING {
            state.set_choice(*who, NOTHING);
        }
    });
    order = distinct(order, of_stream.len(), random);
    for who in order {
        for choice in 0..problem.subscribers[who as usize].preferences.len() as u8 {
            let mark = state.mark();
            give(state, problem, who, choice, random);
            if state.is_good() && state.choice(who) == choice {
                break;
            }
            state.undo_to(mark);
        }
    }
}

/// A random route from the tree to the node.
fn way(
    state: &State<'_>,
    problem: &Problem,
    stream: u32,
    node: u32,
    random: &mut dyn Rng,
) -> Option<CandidateWay> {
    let mut way = CandidateWay::default();
    let mut at = node;
    for _ in 0..problem.terms.max_legs {
        let parent = parent(state, problem, stream, at, random)?;
        let is_usable = parent != node && problem.may_send(stream, parent);
        if !is_usable || way.nodes().contains(&parent) || !way.push(parent) {
            return None;
        }
        if state.is_in(stream, parent) {
            return (!state.is_beneath(stream, parent, node)).then_some(way);
        }
        at = parent;
    }
    None
}

/// A random sender to a node: the publisher, another subscriber's node, or the roomier of two random legs.
fn parent(
    state: &State<'_>,
    problem: &Problem,
    stream: u32,
    node: u32,
    random: &mut dyn Rng,
) -> Option<u32> {
    let publisher = problem.streams[stream as usize].publisher;
    let of_stream = &problem.by_place[stream as usize];
    let parent = match below(8, random) {
        0..3 => publisher,
        3..5 => of_stream[below(of_stream.len(), random)].0,
        _ => {
            let into = &problem.into[node as usize];
            let mut drawn = || into.get(below(into.len().max(1), random)).copied();
            let (one, other) = (drawn()?, drawn()?);
            let leg = if state.room(one) >= state.room(other) { one } else { other };
            problem.legs[leg as usize].from
        }
    };
    (parent != node && problem.leg_of(parent, node).is_some()).then_some(parent)
}

/// A route from the bottom up, without an allocation.
#[derive(Clone, Copy, Debug, Default)]
struct CandidateWay {
    nodes: [u32; MOST_LEGS],
    count: usize,
}

impl CandidateWay {
    fn nodes(&self) -> &[u32] {
        &self.nodes[..self.count]
    }

    /// Adds a node at the top. Returns false if the route is too long.
    fn push(&mut self, node: u32) -> bool {
        let Some(place) = self.nodes.get_mut(self.count) else { return false };
        *place = node;
        self.count += 1;
        true
    }

    /// Reverses it: from the top down.
    fn down(mut self) -> Self {
        self.nodes[..self.count].reverse();
        self
    }
}

/// Reverts changes without a gain, and raises each subscriber as far as there is room.
fn polish(state: &mut State<'_>, problem: &Problem) {
    for _ in 0..2 {
        let before = state.total();
        for who in 0..problem.subscribers.len() as u32 {
            revert(state, problem, who);
            lift(state, problem, who);
        }
        if state.total() <= before + EPSILON {
            break;
        }
    }
}

fn keep_if_not_worse(state: &mut State<'_>) {
    if !state.is_good() || state.gain() < 0.0 {
        state.undo();
    }
}

/// Reverts a subscriber to its present route and choice if that loses nothing.
fn revert(state: &mut State<'_>, problem: &Problem, who: u32) {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, node) = (subscriber.stream, subscriber.node);
    let Some(was) = problem.present.choices[who as usize] else { return };
    if let Some(flow) = problem.was(stream, node)
        && state.is_in(stream, node)
        && state.parent(stream, node) != flow.parent
        && !state.is_beneath(stream, flow.parent, node)
    {
        let way = former_way(state, problem, stream, node);
        state.begin();
        state.attach(stream, node, way.down().nodes());
        keep_if_not_worse(state);
    }
    if state.choice(who) != was && state.is_in(stream, node) {
        state.begin();
        state.set_choice(who, was);
        keep_if_not_worse(state);
    }
}

/// The present route, up to a node that is in the tree.
fn former_way(state: &State<'_>, problem: &Problem, stream: u32, node: u32) -> CandidateWay {
    let (mut way, mut at) = (CandidateWay::default(), node);
    while let Some(flow) = problem.was(stream, at) {
        at = flow.parent;
        if !way.push(at) || state.is_in(stream, at) {
            break;
        }
    }
    way
}

/// Gives a subscriber the best preference that has room, and the direct route if it has room.
fn lift(state: &mut State<'_>, problem: &Problem, who: u32) {
    let subscriber = &problem.subscribers[who as usize];
    let (stream, node) = (subscriber.stream, subscriber.node);
    let now = state.choice(who).min(subscriber.preferences.len() as u8);
    for choice in 0..now {
        let before = state.total();
        if serve(state, problem, who, choice, &mut 0) {
            if state.total() < before {
                state.undo();
                continue;
            }
            break;
        }
    }
    let publisher = problem.streams[stream as usize].publisher;
    let is_there = node != publisher && state.is_in(stream, node);
    if is_there && state.parent(stream, node) != publisher {
        state.begin();
        state.attach(stream, node, &[publisher]);
        keep_if_not_worse(state);
    }
}
