//! An oracle with a mesh that nobody has: how fast it ranks, how much it holds, how many it
//! answers.
//!
//! The oracle is the daemon's own, in this process, with a signed roster of synthetic members
//! and its API on loopback channels; the legs are put into its table as if they were
//! measured. Clients have keys of their own and connections that stay open.
//!
//! - [`world`]: keys, the roster, the legs; [`port`]: channels to the API; [`client`]: requests.

mod client;
mod port;
mod world;

use super::report::Report;
use anyhow::Context as _;
use client::{Load, Strategy};
use std::{fs, time::Duration};
use thalweg_oracle::Oracle;
use tokio::{
    sync::oneshot,
    task::{block_in_place, spawn_blocking},
    time::{Instant, sleep},
};
use world::World;

/// By then the first ranking is out, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The bound for the time of one ranking, s.
const SECOND: f64 = 1.0;

/// Arguments of `thalweg load oracle`.
#[derive(clap::Args)]
pub struct Args {
    /// Members; all of them relay
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Measured legs, as a share of all ordered pairs
    #[arg(long, default_value_t = 0.01)]
    share: f64,
    /// Where keys, rates and legs come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients, each with a key and a connection of its own
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How long each strategy is asked for, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rankings to time
    #[arg(long, default_value_t = 5)]
    rankings: usize,
    /// Add legs until a ranking takes a second
    #[arg(long)]
    limit: bool,
}

/// Builds the mesh, asks, and prints the report.
///
/// # Errors
/// When the oracle cannot be started, or does not answer as it should.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    let mut world = World::new(args.nodes, args.clients, args.seed)?;
    let oracle = world.oracle().await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = oracle.clone();
    let runs = tokio::spawn(async move { running.run(async { _ = stopped.await }).await });
    oracle.assume_present().await;
    let wanted = (args.share * (args.nodes * args.nodes.saturating_sub(1)) as f64) as usize;
    eprintln!("{} members, {wanted} measured legs", args.nodes);
    oracle.assume(world.legs(wanted)).await;
    report.add("nodes", "1", args.nodes as f64);
    rank(&oracle, args.rankings, &mut report).await?;
    let port = port::Port::open(&oracle, &world).await?;
    client::until_ranked(&world, &port, PATIENCE).await?;
    for strategy in Strategy::ALL {
        oracle.assume_present().await;
        let load = Load { strategy, time: Duration::from_secs(args.seconds) };
        let asked = client::ask(&world, &port, load).await?;
        eprintln!("{}: {:.0} requests/s", strategy.name(), asked.per_second());
        report.add(format!("requests_{}", strategy.name()), "1/s", asked.per_second());
        report.add_times(&format!("answer_{}", strategy.name()), asked.times);
    }
    report.add("memory", "MiB", peak_memory()?);
    if args.limit {
        limit(&oracle, &mut world, wanted, &mut report).await?;
    }
    drop(port);
    _ = stop.send(());
    runs.await.context("the oracle ended badly")?;
    report.print().context("cannot print the report")
}

/// Times some rankings: table to graph to ranking.
async fn rank(oracle: &Oracle, times: usize, report: &mut Report) -> anyhow::Result<()> {
    let (mut all, mut legs) = (vec![], 0);
    for _ in 0..times.max(1) {
        let (measured, took) = one_ranking(oracle).await?;
        all.push(took.as_secs_f64());
        legs = measured;
    }
    all.sort_by(f64::total_cmp);
    eprintln!("ranked {legs} legs in {:.3} s", all[all.len() / 2]);
    report.add("legs", "1", legs as f64);
    report.add("rank", "s", all[all.len() / 2]);
    report.add("rank_worst", "s", all[all.len() - 1]);
    Ok(())
}

async fn one_ranking(oracle: &Oracle) -> anyhow::Result<(usize, Duration)> {
    let oracle = oracle.clone();
    Ok(spawn_blocking(move || oracle.rank_timed()).await?)
}

/// Adds a tenth of the first legs again and again, until a ranking takes a second or the table
/// holds no more.
async fn limit(
    oracle: &Oracle,
    world: &mut World,
    step: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut within, mut took_last) = (0, 0.0);
    loop {
        let (legs, took) = one_ranking(oracle).await?;
        let is_full = legs <= within;
        if took.as_secs_f64() > SECOND || is_full {
            eprintln!("{legs} legs in {:.3} s; {within} before", took.as_secs_f64());
            report.add("legs_within_a_second", "1", within as f64);
            report.add("rank_at_limit", "s", took_last);
            report.add("table_full", "1", f64::from(u8::from(is_full)));
            return Ok(());
        }
        (within, took_last) = (legs, took.as_secs_f64());
        oracle.assume(block_in_place(|| world.legs(step.div_ceil(10)))).await;
    }
}

/// The most that this process, clients and all, has held, MiB.
fn peak_memory() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

/// Waits a little before another try.
async fn again(since: Instant, limit: Duration, what: &str) -> anyhow::Result<()> {
    anyhow::ensure!(since.elapsed() < limit, "{what}: not within {limit:?}");
    sleep(Duration::from_millis(50)).await;
    Ok(())
}
