//! Step 3, timed from the last receipt to the last file.

use super::super::report::Report;
use crate::program;
use anyhow::{Context as _, ensure};
use std::{path::PathBuf, process::Stdio, time::Duration};
use thalweg_dropbox::{BoxFiles, View};
use thalweg_wire::mesh::Name;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

/// The interval between two reads of the destination's book.
const POLL: Duration = Duration::from_millis(20);

/// Arguments of `thalweg-bench load bistro collect`.
#[derive(clap::Args)]
pub struct Args {
    /// The destination's state directory
    #[arg(long)]
    state: PathBuf,
    /// The destination's configuration file
    #[arg(long)]
    config: PathBuf,
    /// The name of the drop box
    #[arg(long)]
    name: Name,
    /// Number of submissions to wait for
    #[arg(long)]
    count: usize,
    /// Directory for the collected submissions
    #[arg(long, required_unless_present = "wait_only")]
    into: Option<PathBuf>,
    /// Only wait for the data, which is sent to this node without a collection
    #[arg(long)]
    wait_only: bool,
    /// Method of collection, as in `thalweg gather --method`
    #[arg(long, default_value = "fluid")]
    method: String,
}

/// Waits, collects, and prints the report.
///
/// # Errors
/// If the collection fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let (since, files) = (Instant::now(), BoxFiles::new(&args.state, &args.name, None));
    let bytes = loop {
        let view = View::read(&files)?;
        if view.arrivals.len() >= args.count {
            break view.stamps.iter().map(|stamp| stamp.commitment.content_size()).sum::<u64>();
        }
        sleep(POLL).await;
    };
    let (waited, begun) = (since.elapsed().as_secs_f64(), Instant::now());
    let Some(into) = &args.into else {
        let mut report = Report::default();
        report.add("delivery", "s", waited);
        report.add("total", "s", waited);
        return report.print().context("cannot print the report");
    };
    let mut command = Command::new(program::product()?);
    command.args(["drop-box", "collect", args.name.as_str(), "--json", "--method", &args.method]);
    command.arg("--state").arg(&args.state).arg("--config").arg(&args.config);
    command.arg("--into").arg(into).stdout(Stdio::null());
    ensure!(command.status().await?.success(), "the collection failed");
    let took = begun.elapsed().as_secs_f64();
    let kept = View::read(&files)?.collected.len();
    ensure!(kept >= args.count, "{kept} of {} were collected", args.count);
    let mut report = Report::default();
    report.add("receipts_after", "s", waited);
    report.add("delivery", "s", took);
    report.add("total", "s", waited + took);
    report.add("collect_rate", "Mbit/s", bytes as f64 * 8e-6 / took);
    report.print().context("cannot print the report")
}
