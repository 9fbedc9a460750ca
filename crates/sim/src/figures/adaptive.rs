//! Fig. 7: what a client learns in a hundred downloads (Algorithm 2, by the client's own code).

use super::Report;
use crate::{
    crowd::{self, Direct, DownloadOutcome, Noise, Programme, RelayChoice, RelayQuery, Settings},
    input::{Input, Roles},
    random::{self, Stream},
    stats,
};
use thalweg_plan::{
    adaptive::{AdaptiveRelays, Draw},
    ranking::Ranking,
};

/// UKAIRO §4.1.2: the numbers of clients, of servers tested by each, and of candidates.
const CLIENTS: usize = 10;
const TESTED: usize = 5;
const CANDIDATES: usize = 5;
/// Servers that clients learn from: Fig. 5's destinations.
const SERVERS: usize = 25;
/// The numbers of downloads after which the improvement is tested.
const TESTS: [u64; 8] = [0, 5, 10, 20, 40, 60, 80, 100];

/// The median improvement after each number of downloads, for both ways to draw candidates.
pub fn compute(input: &Input, seed: u64) -> Report {
    let roles = input.draw_roles(seed, 0, input.scale_count(50));
    let mut report = Report::default();
    for (draw, name) in [(Draw::Proportional, "proportional"), (Draw::Top, "top")] {
        let mut ratios = vec![Vec::new(); TESTS.len()];
        for &client in &roles.others[..CLIENTS.min(roles.others.len())] {
            let mut learner = Learner::new(input, &roles, seed, client, draw);
            ratios.iter_mut().zip(TESTS).for_each(|(all, after)| all.extend(learner.test(after)));
        }
        let medians: Vec<f64> = ratios.iter().map(|all| stats::median(all)).collect();
        for (after, median) in TESTS.iter().zip(&medians) {
            report.add(format!("{name}_{after}"), "×", *median);
        }
        let points = TESTS.iter().zip(&medians).map(|(x, y)| (*x as f64, *y));
        report.curve(name, points.collect());
    }
    report
}

/// A client that downloads alone.
struct Learner<'a> {
    input: &'a Input,
    client: usize,
    learning: Vec<usize>,
    tested: Vec<usize>,
    state: LearnerState<'a>,
    downloads: u64,
}

/// A client's list, and how the client uses it.
struct LearnerState<'a> {
    adaptive: AdaptiveRelays,
    roles: &'a Roles,
    draw: Draw,
    /// Whether the best of the list are used and nothing is learnt.
    testing: bool,
    /// Whether it has downloaded at least once.
    learnt: bool,
    random: Stream,
}

impl<'a> Learner<'a> {
    fn new(input: &'a Input, roles: &'a Roles, seed: u64, client: usize, draw: Draw) -> Self {
        let graph = input.planned.restricted_to(&roles.detours).graph();
        let ranking = Ranking::oblivious(&graph);
        let list = ranking.scores().iter().map(|s| (s.relay.to_string(), s.score));
        let mut adaptive = AdaptiveRelays::default();
        adaptive.follow(&list.collect::<Vec<_>>());
        let random = random::stream(seed, "learner", client as u64);
        let state = LearnerState { adaptive, roles, draw, testing: false, learnt: false, random };
        let servers = &roles.others[CLIENTS.min(roles.others.len())..];
        let mut learning: Vec<usize> = servers.iter().take(SERVERS).copied().collect();
        let mut random = random::stream(seed, "tested servers", client as u64);
        let tested = random::sample(&mut random, learning.len(), TESTED);
        let tested = tested.iter().map(|&at| learning[at]).collect();
        learning.truncate(SERVERS);
        Self { input, client, learning, tested, state, downloads: 0 }
    }

    /// Downloads until there were `after` downloads, then tests. Returns rates as multiples of the direct ones.
    fn test(&mut self, after: u64) -> Vec<f64> {
        while self.downloads < after {
            self.downloads += 1;
            let at = random::index(&mut self.state.random, self.learning.len());
            let server = self.learning[at];
            let round = 10 + self.downloads;
            crowd::run(
                &self.input.world,
                &self.settings(round),
                &self.single_programme(server),
                &mut self.state,
            );
        }
        self.state.testing = true;
        let tested = self.tested.clone();
        let ratios = tested.iter().filter_map(|&server| self.ratio(server)).collect();
        self.state.testing = false;
        ratios
    }

    /// `None` if the direct path is too fast to be detoured.
    fn ratio(&mut self, server: usize) -> Option<f64> {
        let one = self.single_programme(server);
        let rate = |settings: Settings, choice: &mut dyn RelayChoice| {
            crowd::run(&self.input.world, &settings, &one, choice).first().map(|o| o.rate)
        };
        let direct = rate(self.settings(0), &mut Direct)?;
        let detoured = rate(self.settings(1), &mut self.state)?;
        (direct > 0.0 && direct < self.input.limit).then_some(detoured / direct)
    }

    fn settings(&self, round: u64) -> Settings {
        let noise = Noise { round, ..self.input.settings.noise };
        Settings { noise, ..self.input.settings }
    }

    fn single_programme(&self, server: usize) -> [Programme; 1] {
        [Programme { client: self.client, servers: vec![server] }]
    }
}

impl RelayChoice for LearnerState<'_> {
    fn choose_relays(&mut self, _: &RelayQuery<'_>) -> Vec<usize> {
        let names: Vec<String> = if self.testing && self.learnt {
            self.adaptive.known().iter().take(CANDIDATES).map(|k| k.relay.clone()).collect()
        } else {
            let mut names = self.adaptive.candidates(CANDIDATES, self.draw, &mut self.random);
            // The last one is the test detour, which is not part of the tested set.
            names.truncate(if self.testing { CANDIDATES } else { names.len() });
            names
        };
        let positions = names.iter().filter_map(|name| name.parse::<usize>().ok());
        positions.map(|at| self.roles.detours[at]).collect()
    }

    fn record_outcome(&mut self, outcome: &DownloadOutcome) {
        if self.testing {
            return;
        }
        self.learnt = true;
        let position = |relay: usize| self.roles.detours.iter().position(|&l| l == relay);
        let gains: Vec<(String, f64)> = outcome
            .gains()
            .into_iter()
            .filter_map(|(relay, gain)| Some((position(relay)?.to_string(), gain)))
            .collect();
        self.adaptive.learn(&gains, &mut self.random);
    }
}
