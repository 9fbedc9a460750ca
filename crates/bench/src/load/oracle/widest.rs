//! Searches for the most clients and nodes that the oracle can serve.

use super::{
    client::{self, ClientLoad, Strategy},
    port::OraclePort,
    world::{SyntheticMesh, below, rate, unit},
};
use crate::load::report::Report;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{
    thread,
    time::{Duration, Instant},
};
use thalweg_plan::{
    Graph,
    ranking::{ROBUST_MOST_GAIN, Ranking, robust_scores},
};
use thalweg_units::Rate;

/// The bound for the rate of answers, 1/s.
const ANSWERS: f64 = 5000.0;

/// The bound for the 99th percentile of a client's wait for candidates.
const SLOW: Duration = Duration::from_secs(1);

/// How long each number of clients asks.
const ROUND: Duration = Duration::from_secs(2);

/// The factors from one number of clients to the next, and of nodes, in percent.
const MORE_CLIENTS: usize = 200;
const MORE_NODES: usize = 120;

/// Doubles the number of clients, each of which asks again as soon as it has an answer, until they get less than 5,000
/// answers per second, or one in a hundred waits for more than a second, or all clients ask.
///
/// # Errors
/// When an answer is wrong or missing.
pub async fn find_client_limit(
    world: &SyntheticMesh,
    port: &OraclePort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let load = ClientLoad { strategy: Strategy::LoadAware, time: ROUND };
    let (mut within, mut count) = (0, 64);
    loop {
        let count_now = count.min(world.clients.len());
        let mut asked = client::ask(world, port, load, count_now).await?;
        let per_second = asked.per_second();
        asked.times.sort();
        let slow = asked.times.get(asked.times.len() * 99 / 100).copied().unwrap_or_default();
        thalweg_console::note!("{count_now} clients: {per_second:.0} requests/s, p99 {slow:.1?}");
        let is_broken = per_second < ANSWERS || slow > SLOW;
        if !is_broken {
            within = count_now;
            report.add("requests_at_limit", "1/s", per_second);
            report.add("p99_at_limit", "ms", 1e3 * slow.as_secs_f64());
        }
        if is_broken || count_now == world.clients.len() {
            report.add("clients_within_bounds", "1", within as f64);
            report.add("clients_all_served", "1", f64::from(u8::from(!is_broken)));
            return Ok(());
        }
        count = count * MORE_CLIENTS / 100;
    }
}

/// Adds nodes, with the same share of pairs measured, until ranking their graph on all CPUs takes more than a second. A
/// roster has at most 10,000 members, so this shows the limit of the ranking alone.
pub fn find_node_limit(from: usize, share: f64, seed: u64, report: &mut Report) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut within, mut took_last) = (0, 0.0);
    let mut nodes = from;
    loop {
        let graph = graph(nodes, share, &mut random);
        let began = Instant::now();
        let ranking = ranked(&graph);
        let took = began.elapsed().as_secs_f64();
        let best = ranking.scores().first().map_or(0.0, |s| s.score);
        thalweg_console::note!(
            "{nodes} nodes, {} legs: ranked in {took:.3} s, best {best:.2}",
            graph.measured()
        );
        if took > super::SECOND {
            report.add("nodes_within_a_second", "1", within as f64);
            report.add("rank_of_those_nodes", "s", took_last);
            return;
        }
        (within, took_last) = (nodes, took);
        nodes = nodes * MORE_NODES / 100;
    }
}

fn graph(nodes: usize, share: f64, random: &mut Xoshiro256PlusPlus) -> Graph {
    let access: Vec<f64> = (0..nodes).map(|_| rate(random)).collect();
    let mut graph = Graph::new(nodes);
    for _ in 0..(share * (nodes * (nodes - 1)) as f64) as usize {
        let from = below(nodes, random);
        let to = (from + 1 + below(nodes - 1, random)) % nodes;
        let bps = access[from].min(access[to]) * (0.1 + 0.9 * unit(random));
        graph.set(from, to, Some(Rate::from_bps(bps as u64)));
    }
    graph
}

fn ranked(graph: &Graph) -> Ranking {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = |at: usize| {
        let relays: Vec<usize> = (at..graph.nodes()).step_by(threads).collect();
        robust_scores(graph, &relays, ROBUST_MOST_GAIN, |_, _| None)
    };
    thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads).map(|at| scope.spawn(move || part(at))).collect();
        let scores = parts.into_iter().filter_map(|part| part.join().ok()).flatten().collect();
        Ranking::from_scores(scores)
    })
}
