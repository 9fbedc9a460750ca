//! The table as a graph and a ranking: made beside, shared by all who ask.

use super::{known::Known, nodes::Slot};
use std::{collections::BTreeMap, thread, time::Duration};
use thalweg_measure::{Bound, Metric, Subject, Table};
use thalweg_plan::{
    Graph,
    graph::MAX_AGE,
    ranking::{ROBUST_MOST_GAIN, Ranking},
};
use thalweg_units::{Rate, Time};

/// What is ranked, taken out of the table under its lock.
#[derive(Debug)]
pub(super) struct Picture {
    pub graph: Graph,
    sole: BTreeMap<(Slot, Slot), Slot>,
    ages: Vec<Duration>,
    at: Time,
    changes: u64,
}

impl Picture {
    /// O(entries).
    pub fn of(known: &Known, now: Time) -> Self {
        // Two passes over the table, which is locked meanwhile: beside each other.
        let (graph, ages) = thread::scope(|scope| {
            let ages = scope.spawn(|| ages(known.table(), now));
            let mut graph = Graph::from_table(known.table(), now);
            complete(&mut graph, known, now);
            (graph, ages.join().unwrap_or_default())
        });
        Self { graph, sole: known.sole().clone(), ages, at: now, changes: known.changes() }
    }

    /// The ranking that liars cannot decide: see [`Ranking::robust`]. O(n·d²).
    pub fn rank(self) -> Ranked {
        let sole = |from: usize, to: usize| {
            self.sole.get(&(from as Slot, to as Slot)).map(|slot| *slot as usize)
        };
        let ranking = Ranking::robust(&self.graph, ROBUST_MOST_GAIN, sole);
        let trusted = (!self.sole.is_empty()).then(|| without(&self.graph, &self.sole));
        let Self { graph, ages, at, changes, .. } = self;
        Ranked { graph, trusted, ranking, ages, at, changes }
    }
}

/// Adds the legs of which nothing but a measured lower bound is known.
fn complete(graph: &mut Graph, known: &Known, now: Time) {
    let fresh = known.capped().filter(|(_, _, at)| now.since(*at) <= MAX_AGE);
    for ((from, to), bps, _) in fresh {
        let (from, to) = (from as usize, to as usize);
        if graph.rate(from, to).is_none() {
            graph.set(from, to, Some(Rate::from_bps(bps.round() as u64)));
        }
    }
}

/// The graph without legs that one end alone vouches for.
fn without(graph: &Graph, sole: &BTreeMap<(Slot, Slot), Slot>) -> Graph {
    let mut trusted = graph.clone();
    for (from, to) in sole.keys() {
        trusted.set(*from as usize, *to as usize, None);
    }
    trusted
}

/// The middle age of the exact legs of each node.
fn ages(table: &Table, now: Time) -> Vec<Duration> {
    let mut all: Vec<Vec<u32>> = vec![vec![]; table.nodes() as usize];
    let exact =
        |e: &thalweg_measure::Estimate| e.metric == Metric::Throughput && e.bound == Bound::Exact;
    for estimate in table.iter(now).filter(exact) {
        if let Subject::Leg { from, to } = estimate.subject {
            let age = u32::try_from(estimate.age.as_secs()).unwrap_or(u32::MAX);
            all[from.node.0 as usize].push(age);
            all[to.0 as usize].push(age);
        }
    }
    let middle = |mut ages: Vec<u32>| {
        let half = ages.len() / 2;
        let middle = (half < ages.len()).then(|| *ages.select_nth_unstable(half).1);
        Duration::from_secs(middle.unwrap_or(0).into())
    };
    all.into_iter().map(middle).collect()
}

/// One look at the table.
#[derive(Debug)]
pub(super) struct Ranked {
    pub graph: Graph,
    /// Without what one end alone vouches for, if there is such.
    trusted: Option<Graph>,
    pub ranking: Ranking,
    ages: Vec<Duration>,
    at: Time,
    /// [`Known::changes`] that it shows.
    pub changes: u64,
}

impl Ranked {
    /// Nothing is known.
    pub fn nothing() -> Self {
        let (graph, ranking) = (Graph::new(0), Ranking::default());
        Self { graph, trusted: None, ranking, ages: vec![], at: Time::ZERO, changes: 0 }
    }

    /// The legs that a client's own ranking is made of: for it the bounds of the robust
    /// ranking do not hold.
    pub fn trusted(&self) -> &Graph {
        self.trusted.as_ref().unwrap_or(&self.graph)
    }

    /// The middle age of a relay's legs.
    pub fn age(&self, slot: Slot, now: Time) -> Duration {
        self.ages.get(slot as usize).copied().unwrap_or_default() + now.since(self.at)
    }
}
