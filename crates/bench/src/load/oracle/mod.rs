//! Measures an oracle with a large synthetic mesh: the speed of its rankings, its memory, and the rate at which it
//! answers requests.
//!
//! The oracle is the daemon's own, in this process, with a signed roster of synthetic members and its API on loopback
//! channels. The legs are inserted into its table as if they had been measured. Clients have their own keys and
//! connections that stay open.
//!
//! - [`world`]: keys, the roster, the legs; [`port`]: channels to the API; [`client`]: requests; [`ranking`]: rankings
//!   and orders; [`widest`]: the most nodes and clients.

mod client;
mod port;
mod ranking;
mod widest;
pub mod world;

use super::report::Report;
use anyhow::Context as _;
use client::{ClientLoad, Strategy};
use std::{fs, time::Duration};
use thalweg_oracle::{MeasureConfig, Pace, ScheduleKind};
use tokio::{
    sync::oneshot,
    task::block_in_place,
    time::{Instant, sleep},
};
use world::SyntheticMesh;

/// The longest wait for the first ranking, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most clients when limits are sought; each has two descriptors, both in this process.
const MOST_CLIENTS: usize = 4096;

/// The bound for the time of one ranking, s.
const SECOND: f64 = 1.0;

/// Arguments of `thalweg-bench load oracle`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of members; all of them are relays
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Measured legs, as a share of all ordered pairs
    #[arg(long, default_value_t = 0.01)]
    share: f64,
    /// Seed of keys, rates and legs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of clients, each with its own key and connection
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Duration of the requests for each strategy, s
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of rankings to time
    #[arg(long, default_value_t = 5)]
    rankings: usize,
    /// Order in which legs are measured, and ranking of relays
    #[arg(long, value_enum, default_value = "algorithm-1")]
    schedule: Schedule,
    /// The share of all pairs that is measured before old ones are measured again
    #[arg(long, default_value_t = 0.4)]
    wanted: f64,
    /// Number of searches for the next order to time
    #[arg(long, default_value_t = 200)]
    orders: usize,
    /// Validity of candidates, ms; the oracle caches them for a quarter of it
    #[arg(long, default_value_t = 60_000)]
    valid_ms: u64,
    /// Find limits: add clients until they get too few answers, legs until a ranking takes a second
    /// or the table is full, and nodes of a bare graph until a ranking takes a second
    #[arg(long)]
    limit: bool,
}

/// The setting `schedule` of the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Schedule {
    #[value(name = "algorithm-1")]
    Algorithm1,
    Thrifty,
    Random,
}

impl Args {
    /// The number of clients that have keys.
    fn all_clients(&self) -> usize {
        let most = if self.limit { MOST_CLIENTS.min(self.nodes.saturating_sub(1)) } else { 0 };
        most.max(self.clients)
    }

    fn measure(&self) -> MeasureConfig {
        let schedule = match self.schedule {
            Schedule::Algorithm1 => ScheduleKind::Algorithm1,
            Schedule::Thrifty => ScheduleKind::Thrifty,
            Schedule::Random => ScheduleKind::Random,
        };
        let candidates = Duration::from_millis(self.valid_ms.max(1));
        let pace = Pace { candidates, ..Pace::default() };
        // Nobody executes orders here.
        MeasureConfig { enabled: false, schedule, p: self.wanted, pace, ..MeasureConfig::default() }
    }
}

/// Builds the mesh, runs all measurements, and prints the report.
///
/// # Errors
/// When the oracle cannot be started or an answer is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    let mut world = SyntheticMesh::new(args.nodes, args.all_clients(), args.seed)?;
    let oracle = world.oracle(args.measure()).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = oracle.clone();
    let runs = tokio::spawn(async move { running.run(async { _ = stopped.await }).await });
    oracle.assume_present().await;
    let wanted = (args.share * (args.nodes * args.nodes.saturating_sub(1)) as f64) as usize;
    thalweg_console::note!("{} members, {wanted} measured legs", args.nodes);
    oracle.assume(world.legs(wanted)).await;
    report.add("nodes", "1", args.nodes as f64);
    ranking::time_rankings(&oracle, &mut world, args.rankings, &mut report).await?;
    let port = port::OraclePort::open(&oracle, &world).await?;
    client::until_ranked(&world, &port, PATIENCE).await?;
    for strategy in Strategy::ALL {
        oracle.assume_present().await;
        let load = ClientLoad { strategy, time: Duration::from_secs(args.seconds) };
        let asked = client::ask(&world, &port, load, args.clients).await?;
        thalweg_console::note!("{}: {:.0} requests/s", strategy.name(), asked.per_second());
        report.add(format!("requests_{}", strategy.name()), "1/s", asked.per_second());
        report.add_times(&format!("answer_{}", strategy.name()), asked.times);
    }
    report.add("memory", "MiB", peak_memory()?);
    ranking::time_orders(&oracle, args.orders, &mut report).await?;
    if args.limit {
        oracle.assume_present().await;
        widest::find_client_limit(&world, &port, &mut report).await?;
        ranking::find_limit(&oracle, &mut world, wanted, &mut report).await?;
        block_in_place(|| widest::find_node_limit(args.nodes, args.share, args.seed, &mut report));
    }
    drop(port);
    _ = stop.send(());
    runs.await.context("the oracle failed at its end")?;
    report.print().context("cannot print the report")
}

/// The peak memory of this process, including the clients, MiB.
fn peak_memory() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("/proc/self/status has no VmHWM")?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

/// Waits a little before another attempt.
async fn pause_before_retry(since: Instant, limit: Duration, what: &str) -> anyhow::Result<()> {
    anyhow::ensure!(since.elapsed() < limit, "{what}: not within {limit:?}");
    sleep(Duration::from_millis(50)).await;
    Ok(())
}
