//! Who gets which candidates: the rankings as clients of a crowd meet them.

use crate::{
    crowd::{Ask, Choice, Outcome},
    input::{Cast, Input},
    random::{self, Stream},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt, str::FromStr};
use thalweg_plan::{
    Graph,
    assignment::{Assigner, Client, RelayLoad, Seen},
    ranking::Ranking,
};
use thalweg_units::Rate;

/// How the oracle draws up a client's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The same best relays for all (UKAIRO §3.1.2).
    Oblivious,
    /// Random ones of the better half, drawn for each client (§3.1.2).
    Balanced,
    /// Ours: by what each relay still has to give, and what the client saw of it before.
    LoadAware,
    /// Ours without what the client saw: what either part does.
    LoadOnly,
    /// Any.
    Random,
}

impl Strategy {
    /// All.
    pub const ALL: [Self; 5] =
        [Self::Oblivious, Self::Balanced, Self::LoadAware, Self::LoadOnly, Self::Random];

    /// As metrics and the command line name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oblivious => "oblivious",
            Self::Balanced => "balanced",
            Self::LoadAware => "load_aware",
            Self::LoadOnly => "load_only",
            Self::Random => "random",
        }
    }
}

/// There is no such strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no strategy is called \"{0}\"; there are oblivious, balanced, load_aware, load_only and random"
)]
pub struct UnknownStrategy(String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let named = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        named.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An oracle that hands out `m` candidates by a strategy.
pub(super) struct Oracle<'a> {
    strategy: Strategy,
    m: usize,
    cast: &'a Cast,
    graph: Graph,
    ranking: Ranking,
    /// What each relay may forward, Mbit/s.
    limits: Vec<f64>,
    /// Lists of clients that keep theirs.
    lists: BTreeMap<usize, Vec<usize>>,
    /// Downloads under way that were given each relay.
    assigned: Vec<u32>,
    given: BTreeMap<(usize, usize), Vec<usize>>,
    /// What each client's own downloads said of relays.
    seen: BTreeMap<usize, Vec<Seen>>,
    /// When relays reported last, s, and what they forwarded then.
    reported: Option<(f64, Vec<f64>)>,
    random: Stream,
}

/// Relays report their load this often, s.
const REPORTS: f64 = 1.0;

impl<'a> Oracle<'a> {
    pub(super) fn new(
        input: &Input,
        cast: &'a Cast,
        strategy: Strategy,
        m: usize,
        seed: u64,
    ) -> Self {
        let graph = input.planned.among(&cast.detours).graph();
        Self {
            strategy,
            m,
            cast,
            ranking: Ranking::oblivious(&graph),
            graph,
            limits: cast.detours.iter().map(|&l| input.world.forward[l]).collect(),
            lists: BTreeMap::new(),
            assigned: vec![0; cast.detours.len()],
            given: BTreeMap::new(),
            seen: BTreeMap::new(),
            reported: None,
            random: random::stream(seed, "oracle", 0),
        }
    }

    fn positions(&mut self, ask: &Ask<'_>) -> Vec<usize> {
        let (m, random) = (self.m, &mut self.random);
        match self.strategy {
            Strategy::Oblivious => self.ranking.top(m),
            Strategy::Balanced => {
                let draw = || self.ranking.balanced(m, random);
                self.lists.entry(ask.client).or_insert_with(draw).clone()
            }
            Strategy::Random => {
                let draw = || random::sample(random, self.cast.detours.len(), m);
                self.lists.entry(ask.client).or_insert_with(draw).clone()
            }
            Strategy::LoadAware | Strategy::LoadOnly => self.load_aware(ask),
        }
    }

    fn load_aware(&mut self, ask: &Ask<'_>) -> Vec<usize> {
        let used = self.used(ask);
        let load = |at: usize| RelayLoad {
            used: Rate::from_mbps(used[at]),
            limit: Some(Rate::from_mbps(self.limits[at])),
            assigned: self.assigned[at],
        };
        let loads: Vec<RelayLoad> = (0..self.limits.len()).map(load).collect();
        let seen = self.seen.get(&ask.client).filter(|_| self.strategy == Strategy::LoadAware);
        // Clients are not among the measured nodes.
        let client = Client { node: None, seen: seen.map_or(&[], Vec::as_slice) };
        let assigner = Assigner::new(&self.graph, &self.ranking);
        assigner.assign(&client, &loads, self.m, &mut self.random)
    }

    /// A client tells what its download's sampling said: a running mean for each relay.
    fn learn(&mut self, outcome: &Outcome) {
        let seen = self.seen.entry(outcome.client).or_default();
        for (node, gain) in outcome.gains() {
            let Some(relay) = self.cast.detours.iter().position(|&l| l == node) else { continue };
            match seen.iter_mut().find(|seen| seen.relay == relay) {
                Some(known) => {
                    known.tries += 1;
                    known.gain += (gain - known.gain) / f64::from(known.tries);
                }
                None => seen.push(Seen { relay, gain, tries: 1 }),
            }
        }
    }

    /// What relays said last, Mbit/s.
    fn used(&mut self, ask: &Ask<'_>) -> Vec<f64> {
        let fresh = self.reported.take().filter(|(at, _)| ask.now - at < REPORTS);
        let report = fresh.unwrap_or_else(|| {
            (ask.now, self.cast.detours.iter().map(|&l| ask.forwards(l)).collect())
        });
        self.reported.insert(report).1.clone()
    }
}

impl Choice for Oracle<'_> {
    fn relays(&mut self, ask: &Ask<'_>) -> Vec<usize> {
        let positions = self.positions(ask);
        positions.iter().for_each(|&at| self.assigned[at] += 1);
        let relays = positions.iter().map(|&at| self.cast.detours[at]).collect();
        self.given.insert((ask.client, ask.server), positions);
        relays
    }

    fn ended(&mut self, outcome: &Outcome) {
        self.learn(outcome);
        let given = self.given.remove(&(outcome.client, outcome.server)).unwrap_or_default();
        given.into_iter().for_each(|at| self.assigned[at] -= 1);
    }
}
