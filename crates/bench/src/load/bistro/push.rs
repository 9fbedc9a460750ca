//! Steps 1 and 2 for the clients of one host.

use super::{super::report::Report, client::Client};
use anyhow::{Context as _, bail};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{path::PathBuf, sync::Arc, time::Duration};
use thalweg_dropbox::{NodeAddress, Target};
use thalweg_mesh::State;
use thalweg_node::config::state_directory;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// Arguments of `thalweg-bench load bistro push`.
#[derive(clap::Args)]
pub struct Args {
    /// The drop box: BOX@NODE
    #[arg(long)]
    to: String,
    /// Number of clients, all at the same time
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Bytes of each client's data
    #[arg(long, default_value = "100 kB")]
    size: ByteSize,
    /// Seed of the clients' data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This host's state directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Commits and pushes the data of all clients and prints the report.
///
/// # Errors
/// If any client fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let target = Arc::new(target(args)?);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let size = usize::try_from(args.size.as_bytes()).context("--size")?;
    let clients: anyhow::Result<Vec<Client>> =
        (0..args.clients).map(|number| Client::new(number, size, &mut random)).collect();
    let (since, mut running) = (Instant::now(), JoinSet::new());
    for client in clients? {
        let (target, draw) = (target.clone(), f64::from(random.next_u32()) / f64::from(u32::MAX));
        running.spawn(async move {
            let begun = Instant::now();
            let submission =
                client.commit(&target).await?.context("the drop box refused the commitment")?;
            let committed = begun.elapsed();
            // A busy node stays busy for as long as a push takes.
            while let Err(e) = client.push(&submission, draw).await {
                thalweg_console::note!("thalweg-bench: {e:#}");
                sleep(Duration::from_millis(500)).await;
            }
            Ok::<_, anyhow::Error>((committed, begun.elapsed()))
        });
    }
    let (mut committed, mut pushed) = (Vec::new(), Vec::new());
    while let Some(done) = running.join_next().await {
        let (commit, push) = done??;
        committed.push(commit);
        pushed.push(push);
    }
    let mut report = Report::default();
    report.add("makespan", "s", since.elapsed().as_secs_f64());
    report.add("bytes", "B", args.clients as f64 * size as f64);
    report.add_times("commit", committed);
    report.add_times("push", pushed);
    report.print().context("cannot print the report")
}

/// The drop box that `--to` names, looked up in this host's roster.
fn target(args: &Args) -> anyhow::Result<Target> {
    let state = State::open(&state_directory(args.state.as_deref())?)?;
    let roster = state.membership()?.current().context("this host has no roster")?;
    let Some((drop_box, node)) = args.to.split_once('@') else {
        bail!("--to must have the form BOX@NODE")
    };
    let node: Name = node.parse()?;
    let member =
        roster.by_name(&node).with_context(|| format!("the roster has no member {node}"))?;
    let port = NodeAddress::of_member(member)
        .with_context(|| format!("the member {node} does not run a node"))?;
    Ok(Target { drop_box: drop_box.parse()?, port })
}
