//! Steps 1 and 2 of clients at one host.

use super::{super::report::Report, client::Client};
use crate::commands::{here::Place, submit::Identity};
use anyhow::Context as _;
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{sync::Arc, time::Duration};
use thalweg_units::ByteSize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// Arguments of `thalweg load bistro push`.
#[derive(clap::Args)]
pub struct Args {
    /// The drop box: BOX@NODE
    #[arg(long)]
    to: String,
    /// How many clients, all at once
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Bytes of each
    #[arg(long, default_value = "100 kB")]
    size: ByteSize,
    /// Where their data comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: Place,
}

/// Commits and pushes, and prints the report.
///
/// # Errors
/// If any of them fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::of(&args.place)?;
    let target = Arc::new(identity.target(&args.to, &args.place)?);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let size = usize::try_from(args.size.as_bytes()).context("--size")?;
    let clients: anyhow::Result<Vec<Client>> =
        (0..args.clients).map(|number| Client::new(number, size, &mut random)).collect();
    let (since, mut running) = (Instant::now(), JoinSet::new());
    for client in clients? {
        let (target, draw) = (target.clone(), f64::from(random.next_u32()) / f64::from(u32::MAX));
        running.spawn(async move {
            let begun = Instant::now();
            let stamp = client.commit(&target).await?.context("the commitment")?;
            let committed = begun.elapsed();
            let sheet = client.sheet(&target).await?;
            // Nodes that are busy are busy for as long as a push takes.
            while let Err(e) = client.push(sheet.value(), &stamp, draw).await {
                thalweg_console::note!("thalweg: {e:#}");
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
