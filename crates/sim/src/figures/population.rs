//! The effect of detours on clients that go directly (UKAIRO §4.4's open question).

use super::{Oracle, Report, Strategy};
use crate::{
    crowd::{self, Ask, Choice, Outcome, Programme},
    input::{Cast, Input},
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
    let cast = input.cast(seed, 0, input.of_201(50));
    let programmes = programmes(&cast.others, seed);
    let mut input = input.clone();
    let pairs = programmes.iter().flat_map(|p| p.servers.iter().map(|&s| (s, p.client)));
    input.add_trunks(&pairs.collect::<Vec<_>>(), HEADROOM / DOWNLOADS as f64);
    let one =
        |&strategy: &Strategy| (strategy.name(), one(&input, &cast, &programmes, strategy, seed));
    Report::merged(strategies.iter().map(one).collect())
}

fn one(
    input: &Input,
    cast: &Cast,
    programmes: &[Programme],
    strategy: Strategy,
    seed: u64,
) -> Report {
    // Only slow direct paths are detoured (§4): these pairs, by their rates when no client detoured.
    let run = |share: usize, slow: &BTreeSet<(usize, usize)>| {
        let count = cast.others.len() * share / 100;
        let users: BTreeSet<usize> = cast.others[..count].iter().copied().collect();
        let oracle = Oracle::new(input, cast, strategy, M, seed);
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
type Rates = BTreeMap<(usize, usize), f64>;

fn by_download(outcomes: &[Outcome]) -> Rates {
    outcomes.iter().map(|outcome| ((outcome.client, outcome.server), outcome.rate)).collect()
}

fn add(share: usize, users: &BTreeSet<usize>, before: &Rates, after: &Rates, report: &mut Report) {
    let ratios = |detour: bool| -> Vec<f64> {
        let of = after.iter().filter(|((client, _), _)| users.contains(client) == detour);
        of.map(|(pair, rate)| rate / before[pair]).filter(|x| x.is_finite()).collect()
    };
    let [stay, go] = [ratios(false), ratios(true)];
    report.add(format!("others_{share}"), "×", stats::mean(&stay));
    report.add(format!("others_worst_tenth_{share}"), "×", stats::quantile(&stay, 0.1));
    report.add(format!("users_{share}"), "×", stats::mean(&go));
    let whole = |rates: &Rates| rates.values().sum::<f64>();
    report.add(format!("all_{share}"), "×", whole(after) / whole(before));
}

/// Some clients ask the oracle, the others go directly.
struct SomeDetour<'a> {
    users: BTreeSet<usize>,
    slow: BTreeSet<(usize, usize)>,
    oracle: Oracle<'a>,
}

impl Choice for SomeDetour<'_> {
    fn relays(&mut self, ask: &Ask<'_>) -> Vec<usize> {
        let detours =
            self.users.contains(&ask.client) && self.slow.contains(&(ask.client, ask.server));
        if detours { self.oracle.relays(ask) } else { Vec::new() }
    }

    fn ended(&mut self, outcome: &Outcome) {
        self.oracle.ended(outcome);
    }
}
