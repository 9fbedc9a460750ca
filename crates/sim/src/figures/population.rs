//! The effect of detours on clients that go directly (UKAIRO §4.4's open question).

use super::{Oracle, Report, Strategy};
use crate::{
    crowd::{self, DownloadOutcome, Programme, RelayChoice, RelayQuery},
    input::{Input, Roles},
    random, stats,
};
use std::collections::{BTreeMap, BTreeSet};

/// The percentages of the population that detour.
pub const SHARES: [usize; 6] = [0, 10, 25, 50, 75, 100];
/// The number of downloads of each client, one after the other.
const DOWNLOADS: usize = 4;
/// Candidates per client.
const M: usize = 5;
/// The capacity of the links between areas, as a multiple of what all direct downloads would get.
const HEADROOM: f64 = 1.0;

/// Rates as multiples of those when no client detours: of clients that detour and of clients that do not.
pub fn compute(input: &Input, seed: u64, strategies: &[Strategy]) -> Report {
    let roles = input.draw_roles(seed, 0, input.scale_count(50));
    let programmes = programmes(&roles.others, seed);
    let mut input = input.clone();
    let pairs = programmes.iter().flat_map(|p| p.servers.iter().map(|&s| (s, p.client)));
    input.add_trunks(&pairs.collect::<Vec<_>>(), HEADROOM / DOWNLOADS as f64);
    let one = |&strategy: &Strategy| {
        (strategy.name(), compute_strategy(&input, &roles, &programmes, strategy, seed))
    };
    Report::merged(strategies.iter().map(one).collect())
}

fn compute_strategy(
    input: &Input,
    roles: &Roles,
    programmes: &[Programme],
    strategy: Strategy,
    seed: u64,
) -> Report {
    // Only slow direct paths are detoured (§4): these pairs, by their rates when no client detoured.
    let run = |share: usize, slow: &BTreeSet<(usize, usize)>| {
        let count = roles.others.len() * share / 100;
        let users: BTreeSet<usize> = roles.others[..count].iter().copied().collect();
        let oracle = Oracle::new(input, roles, strategy, M, seed);
        let mut some = SomeDetour { users: users.clone(), slow: slow.clone(), oracle };
        let outcomes = crowd::run(&input.world, &input.settings, programmes, &mut some);
        (users, by_download(&outcomes))
    };
    let mut report = Report::default();
    let (_, before) = run(0, &BTreeSet::new());
    let slow = before.iter().filter(|(_, rate)| **rate < input.limit).map(|(pair, _)| *pair);
    let slow: BTreeSet<(usize, usize)> = slow.collect();
    for share in SHARES {
        let (users, after) = run(share, &slow);
        add(share, &users, &before, &after, &mut report);
    }
    report
}

fn programmes(clients: &[usize], seed: u64) -> Vec<Programme> {
    let one = |&client: &usize| {
        let mut random = random::stream(seed, "population", client as u64);
        let others: Vec<usize> = clients.iter().copied().filter(|&other| other != client).collect();
        let servers = random::sample(&mut random, others.len(), DOWNLOADS);
        Programme { client, servers: servers.into_iter().map(|at| others[at]).collect() }
    };
    clients.iter().map(one).collect()
}

/// The rate of each (client, server).
type DownloadRates = BTreeMap<(usize, usize), f64>;

fn by_download(outcomes: &[DownloadOutcome]) -> DownloadRates {
    outcomes.iter().map(|outcome| ((outcome.client, outcome.server), outcome.rate)).collect()
}

fn add(
    share: usize,
    users: &BTreeSet<usize>,
    before: &DownloadRates,
    after: &DownloadRates,
    report: &mut Report,
) {
    let ratios = |detour: bool| -> Vec<f64> {
        let of = after.iter().filter(|((client, _), _)| users.contains(client) == detour);
        of.map(|(pair, rate)| rate / before[pair]).filter(|x| x.is_finite()).collect()
    };
    let [stay, go] = [ratios(false), ratios(true)];
    report.add(format!("others_{share}"), "×", stats::mean(&stay));
    report.add(format!("others_worst_tenth_{share}"), "×", stats::quantile(&stay, 0.1));
    report.add(format!("users_{share}"), "×", stats::mean(&go));
    let whole = |rates: &DownloadRates| rates.values().sum::<f64>();
    report.add(format!("all_{share}"), "×", whole(after) / whole(before));
}

/// Some clients ask the oracle, the others go directly.
struct SomeDetour<'a> {
    users: BTreeSet<usize>,
    slow: BTreeSet<(usize, usize)>,
    oracle: Oracle<'a>,
}

impl RelayChoice for SomeDetour<'_> {
    fn choose_relays(&mut self, query: &RelayQuery<'_>) -> Vec<usize> {
        let detours =
            self.users.contains(&query.client) && self.slow.contains(&(query.client, query.server));
        if detours { self.oracle.choose_relays(query) } else { Vec::new() }
    }

    fn record_outcome(&mut self, outcome: &DownloadOutcome) {
        self.oracle.record_outcome(outcome);
    }
}
