//! Fig. 5 and 6: one client at a time, with several strategies.

use super::{Oracle, Report, Strategy, vivaldi};
use crate::{
    crowd::{self, Direct, Programme, RelayChoice, RelayQuery, Settings},
    input::{Input, Roles},
    matrix::Matrix,
    random, stats,
};
use std::collections::BTreeMap;

/// Clients (§4.1), and servers among PlanetLab's nodes.
const CLIENTS: usize = 10;
const SERVERS: usize = 25;
/// A detour below this share of the direct rate is clearly slower.
const CLEARLY: f64 = 0.9;

/// Rates as multiples of the direct path's, for servers inside, or outside if there are any.
pub fn compute(input: &Input, seed: u64) -> Report {
    let roles = input.draw_roles(seed, 0, input.scale_count(50));
    let clients = &roles.others[..CLIENTS.min(roles.others.len())];
    let outside: Vec<usize> = (input.inside..input.world.nodes()).collect();
    let inside = roles.others.iter().skip(CLIENTS).take(SERVERS).copied().collect();
    let servers = if outside.is_empty() { inside } else { outside };
    let programmes: Vec<Programme> =
        clients.iter().map(|&client| Programme { client, servers: servers.clone() }).collect();
    let mut report = Report::default();
    let direct = run_alone(input, 0, &programmes, &mut Direct);
    for (strategy, m) in [
        (Strategy::Oblivious, 5),
        (Strategy::Balanced, 5),
        (Strategy::Oblivious, 1),
        (Strategy::Balanced, 1),
        (Strategy::Robust, 5),
    ] {
        let mut oracle = Oracle::new(input, &roles, strategy, m, seed);
        let rates = run_alone(input, 1, &programmes, &mut oracle);
        add(input, &format!("{strategy}_{m}"), &direct, &rates, &mut report);
    }
    let rates = run_alone(input, 1, &programmes, &mut PeerWise::new(input, &roles, seed));
    add(input, "peerwise", &direct, &rates, &mut report);
    report
}

/// The rate of each (client, server).
type PairRates = BTreeMap<(usize, usize), f64>;

/// Runs the programmes one after the other, each alone.
fn run_alone(
    input: &Input,
    round: u64,
    programmes: &[Programme],
    choice: &mut dyn RelayChoice,
) -> PairRates {
    let noise = crowd::Noise { round, ..input.settings.noise };
    let settings = Settings { noise, ..input.settings };
    let each = programmes
        .iter()
        .flat_map(|one| crowd::run(&input.world, &settings, std::slice::from_ref(one), choice));
    each.map(|outcome| ((outcome.client, outcome.server), outcome.rate)).collect()
}

fn add(input: &Input, name: &str, direct: &PairRates, rates: &PairRates, report: &mut Report) {
    let below = direct.iter().filter(|(_, rate)| **rate > 0.0 && **rate < input.limit);
    let ratios: Vec<f64> =
        below.filter_map(|(pair, direct)| Some(rates.get(pair)? / direct)).collect();
    report.add(format!("median_{name}"), "×", stats::median(&ratios));
    report.add(format!("not_slower_{name}"), "%", stats::percent(&ratios, |x| x >= 1.0));
    report.add(format!("half_more_{name}"), "%", stats::percent(&ratios, |x| x >= 1.5));
    report.add(format!("doubled_{name}"), "%", stats::percent(&ratios, |x| x >= 2.0));
    report.add(format!("clearly_slower_{name}"), "%", stats::percent(&ratios, |x| x < CLEARLY));
    report.curve(name, stats::distribution(&ratios));
}

/// The relay that lowers latency most according to coordinates, used without measuring rates.
struct PeerWise<'a> {
    roles: &'a Roles,
    predicted: Matrix,
}

impl<'a> PeerWise<'a> {
    fn new(input: &Input, roles: &'a Roles, seed: u64) -> Self {
        let mut random = random::stream(seed, "coordinates", 0);
        Self { roles, predicted: vivaldi::predicted(&input.world.rtt, &mut random) }
    }
}

impl RelayChoice for PeerWise<'_> {
    fn choose_relays(&mut self, query: &RelayQuery<'_>) -> Vec<usize> {
        let by =
            |l: usize| self.predicted.raw(query.client, l) + self.predicted.raw(l, query.server);
        let relays = self.roles.detours.iter().copied();
        relays.min_by(|&a, &b| by(a).total_cmp(&by(b))).into_iter().collect()
    }

    fn is_sampling(&self) -> bool {
        false
    }
}
