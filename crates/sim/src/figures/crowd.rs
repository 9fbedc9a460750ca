//! Fig. 8: many clients at once.

use super::{Oracle, Report, Strategy};
use crate::{
    crowd::{self, Direct, DownloadOutcome, Noise, Programme, RelayChoice, Settings},
    input::{Input, Roles},
    random, stats,
};
use std::collections::BTreeMap;

/// UKAIRO §4.2: up to 20 clients, which all download from 20 servers.
const CLIENTS: usize = 20;
const SERVERS: usize = 20;
/// Candidates per client.
const M: usize = 5;

/// The numbers of clients at once that the figure shows.
pub const COUNTS: [usize; 7] = [1, 2, 4, 8, 12, 16, 20];

/// The average improvement over all paths, by strategy and number of clients.
pub fn compute(input: &Input, seed: u64, strategies: &[Strategy]) -> Report {
    let roles = input.draw_roles(seed, 0, input.scale_count(50));
    let one =
        |&strategy: &Strategy| (strategy.name(), compute_strategy(input, &roles, strategy, seed));
    Report::merged(strategies.iter().map(one).collect())
}

fn compute_strategy(input: &Input, roles: &Roles, strategy: Strategy, seed: u64) -> Report {
    let mut report = Report::default();
    let mut points = Vec::new();
    for count in COUNTS {
        let ratios = ratios(input, roles, strategy, count, seed);
        let average = average(&ratios);
        report.add(format!("improvement_{count}"), "×", average);
        report.add(format!("mean_{count}"), "×", stats::mean(&ratios));
        report.add(format!("median_{count}"), "×", stats::median(&ratios));
        points.push((count as f64, average));
    }
    report.curve("improvement", points);
    report
}

/// The geometric mean, in which twice as fast and half as fast cancel out. In the arithmetic one, the few congested
/// direct paths, which any detour multiplies, outweigh all others.
fn average(ratios: &[f64]) -> f64 {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    stats::mean(&logarithms).exp()
}

/// Each path's rate as a multiple of the direct path's, both among `count` clients at once.
fn ratios(input: &Input, roles: &Roles, strategy: Strategy, count: usize, seed: u64) -> Vec<f64> {
    let mut programmes = programmes(roles, count, seed);
    let direct = by_pair(&run_round(input, 0, &programmes, &mut Direct));
    // Only these are detoured at all (§4).
    for one in &mut programmes {
        one.servers.retain(|&server| direct[&(one.client, server)] < input.limit);
    }
    let mut oracle = Oracle::new(input, roles, strategy, M, seed);
    let detoured = by_pair(&run_round(input, 1, &programmes, &mut oracle));
    let ratio = |(pair, rate): (&(usize, usize), &f64)| rate / direct[pair];
    detoured.iter().map(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect()
}

/// The first `count` clients, each with all servers in its own order.
fn programmes(roles: &Roles, count: usize, seed: u64) -> Vec<Programme> {
    let servers: Vec<usize> = roles.others.iter().skip(CLIENTS).take(SERVERS).copied().collect();
    let clients = roles.others.iter().take(count);
    let one = |&client: &usize| {
        let mut random = random::stream(seed, "order of servers", client as u64);
        let order = random::sample(&mut random, servers.len(), servers.len());
        Programme { client, servers: order.into_iter().map(|at| servers[at]).collect() }
    };
    clients.map(one).collect()
}

fn run_round(
    input: &Input,
    round: u64,
    programmes: &[Programme],
    choice: &mut dyn RelayChoice,
) -> Vec<DownloadOutcome> {
    let noise = Noise { round, ..input.settings.noise };
    crowd::run(&input.world, &Settings { noise, ..input.settings }, programmes, choice)
}

fn by_pair(outcomes: &[DownloadOutcome]) -> BTreeMap<(usize, usize), f64> {
    outcomes.iter().map(|outcome| ((outcome.client, outcome.server), outcome.rate)).collect()
}
