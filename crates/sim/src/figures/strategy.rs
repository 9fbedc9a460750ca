//! Which client gets which candidates: the rankings as clients of a crowd meet them.

use crate::{
    crowd::{DownloadOutcome, RelayChoice, RelayQuery},
    input::{Input, Roles},
    random::{self, Stream},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt, str::FromStr};
use thalweg_plan::{
    Graph,
    adaptive::{AdaptiveRelays, Draw},
    assignment::{Assigner, Client, RelayExperience, RelayLoad},
    ranking::Ranking,
};
use thalweg_units::Rate;

/// How the oracle makes a client's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The same best relays for all (UKAIRO §3.1.2).
    Oblivious,
    /// Random ones of the better half, drawn for each client (§3.1.2).
    Balanced,
    /// Ours: by what each relay still has to give, and by the client's own experience with it.
    LoadAware,
    /// Ours without the client's experience: the effect of each part.
    LoadOnly,
    /// The same best relays for all, by the oracle's ranking, which no single liar decides.
    Robust,
    /// The product's: a list by [`Strategy::LoadOnly`] on the oracle's ranking, from which the client draws by
    /// Algorithm 2.
    Shipped,
    /// Random relays.
    Random,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 7] = [
        Self::Oblivious,
        Self::Balanced,
        Self::LoadAware,
        Self::LoadOnly,
        Self::Robust,
        Self::Shipped,
        Self::Random,
    ];

    /// Its name in metrics and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oblivious => "oblivious",
            Self::Balanced => "balanced",
            Self::LoadAware => "load_aware",
            Self::LoadOnly => "load_only",
            Self::Robust => "robust",
            Self::Shipped => "shipped",
            Self::Random => "random",
        }
    }
}

/// No strategy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no strategy \"{name}\"; available: {}",
    Strategy::ALL.map(Strategy::name).join(", ")
)]
pub struct UnknownStrategy {
    name: String,
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let named = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        named.ok_or_else(|| UnknownStrategy { name: text.to_owned() })
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
    roles: &'a Roles,
    graph: Graph,
    ranking: Ranking,
    /// What each relay may forward, Mbit/s.
    limits: Vec<f64>,
    /// The lists of clients that keep theirs.
    lists: BTreeMap<usize, Vec<usize>>,
    /// Downloads under way that were given each relay.
    assigned: Vec<u32>,
    given: BTreeMap<(usize, usize), Vec<usize>>,
    /// Each client's experience with relays in its own downloads.
    seen: BTreeMap<usize, Vec<RelayExperience>>,
    /// The clients' lists of Algorithm 2.
    learners: BTreeMap<usize, AdaptiveRelays>,
    /// When relays last reported, s, and what they forwarded then, Mbit/s.
    reported: Option<(f64, Vec<f64>)>,
    random: Stream,
}

/// The number of relays on a client's list (`thalweg_paths::detours::LIST`).
const LIST: usize = 20;

/// Relays report their load this often, s.
const REPORTS: f64 = 1.0;

impl<'a> Oracle<'a> {
    pub(super) fn new(
        input: &Input,
        roles: &'a Roles,
        strategy: Strategy,
        m: usize,
        seed: u64,
    ) -> Self {
        let graph = input.planned.restricted_to(&roles.detours).graph();
        let ranking = match strategy {
            Strategy::Robust | Strategy::Shipped => super::default_ranking(&graph),
            _ => Ranking::oblivious(&graph),
        };
        Self {
            strategy,
            m,
            roles,
            ranking,
            graph,
            limits: roles.detours.iter().map(|&l| input.world.forward[l]).collect(),
            lists: BTreeMap::new(),
            assigned: vec![0; roles.detours.len()],
            given: BTreeMap::new(),
            seen: BTreeMap::new(),
            learners: BTreeMap::new(),
            reported: None,
            random: random::stream(seed, "oracle", 0),
        }
    }

    fn positions(&mut self, query: &RelayQuery<'_>) -> Vec<usize> {
        let (m, random) = (self.m, &mut self.random);
        match self.strategy {
            Strategy::Oblivious | Strategy::Robust => self.ranking.top(m),
            Strategy::Balanced => {
                let draw = || self.ranking.balanced(m, random);
                self.lists.entry(query.client).or_insert_with(draw).clone()
            }
            Strategy::Random => {
                let draw = || random::sample(random, self.roles.detours.len(), m);
                self.lists.entry(query.client).or_insert_with(draw).clone()
            }
            Strategy::LoadAware | Strategy::LoadOnly => self.load_aware(query, m),
            Strategy::Shipped => self.draw_from_list(query),
        }
    }

    /// The client's draw from the list that the oracle gave it for this download.
    fn draw_from_list(&mut self, query: &RelayQuery<'_>) -> Vec<usize> {
        let listed = self.load_aware(query, LIST);
        let score = |at: usize| self.ranking.scores().iter().find(|s| s.relay == at);
        let scored = listed.iter().map(|&at| (at.to_string(), score(at).map_or(0.0, |s| s.score)));
        let mut list: Vec<(String, f64)> = scored.collect();
        let learner = self.learners.entry(query.client).or_default();
        // What was learnt of other relays stays.
        let learnt = learner.known().iter().filter(|k| k.tried > 0);
        let others = learnt.filter(|k| !list.iter().any(|(name, _)| *name == k.relay));
        let others: Vec<(String, f64)> = others.map(|k| (k.relay.clone(), k.score)).collect();
        list.extend(others);
        learner.follow(&list);
        let drawn = learner.candidates(self.m, Draw::default(), &mut self.random);
        drawn.iter().filter_map(|name| name.parse().ok()).collect()
    }

    fn load_aware(&mut self, query: &RelayQuery<'_>, m: usize) -> Vec<usize> {
        let used = self.reported_loads(query);
        let load = |at: usize| RelayLoad {
            used: Rate::from_mbps(used[at]),
            limit: Some(Rate::from_mbps(self.limits[at])),
            assigned: self.assigned[at],
        };
        let loads: Vec<RelayLoad> = (0..self.limits.len()).map(load).collect();
        let seen = self.seen.get(&query.client).filter(|_| self.strategy == Strategy::LoadAware);
        // Clients are not among the measured nodes.
        let client = Client { node: None, seen: seen.map_or(&[], Vec::as_slice) };
        let assigner = Assigner::new(&self.graph, &self.ranking);
        assigner.assign(&client, &loads, m, &mut self.random)
    }

    /// Updates a client's experience with what its download's sampling measured: a running mean for each relay.
    fn learn(&mut self, outcome: &DownloadOutcome) {
        let seen = self.seen.entry(outcome.client).or_default();
        for (node, gain) in outcome.gains() {
            let Some(relay) = self.roles.detours.iter().position(|&l| l == node) else { continue };
            match seen.iter_mut().find(|seen| seen.relay == relay) {
                Some(known) => {
                    known.tries += 1;
                    known.gain += (gain - known.gain) / f64::from(known.tries);
                }
                None => seen.push(RelayExperience { relay, gain, tries: 1 }),
            }
        }
    }

    /// Runs lines 5 to 8 of Algorithm 2 for a client that has a list.
    fn teach(&mut self, outcome: &DownloadOutcome) {
        let Some(learner) = self.learners.get_mut(&outcome.client) else { return };
        let position = |node| self.roles.detours.iter().position(|&l| l == node);
        let gain = |(node, gain)| Some((position(node)?.to_string(), gain));
        let gains: Vec<(String, f64)> = outcome.gains().into_iter().filter_map(gain).collect();
        learner.learn(&gains, &mut self.random);
    }

    /// What relays last reported, Mbit/s.
    fn reported_loads(&mut self, query: &RelayQuery<'_>) -> Vec<f64> {
        let fresh = self.reported.take().filter(|(at, _)| query.now - at < REPORTS);
        let report = fresh.unwrap_or_else(|| {
            (query.now, self.roles.detours.iter().map(|&l| query.forwarded_rate(l)).collect())
        });
        self.reported.insert(report).1.clone()
    }
}

impl RelayChoice for Oracle<'_> {
    fn choose_relays(&mut self, query: &RelayQuery<'_>) -> Vec<usize> {
        let positions = self.positions(query);
        positions.iter().for_each(|&at| self.assigned[at] += 1);
        let relays = positions.iter().map(|&at| self.roles.detours[at]).collect();
        self.given.insert((query.client, query.server), positions);
        relays
    }

    fn record_outcome(&mut self, outcome: &DownloadOutcome) {
        self.learn(outcome);
        self.teach(outcome);
        let given = self.given.remove(&(outcome.client, outcome.server)).unwrap_or_default();
        given.into_iter().for_each(|at| self.assigned[at] -= 1);
    }
}
