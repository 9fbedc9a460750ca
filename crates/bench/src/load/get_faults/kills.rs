//! `kill -9` at points spread uniformly over the bytes, then the same command again.

use super::{
    Common,
    cost::{Cost, measure_undisturbed},
    counts,
    download::EndedDownload,
    tally::{FaultTrial, TrialTally},
};
use crate::load::report::Report;
use std::{sync::Arc, thread, time::Duration};

/// The interval between two reads of the server's count: at 20 MB/s every 40 kB.
const LOOK: Duration = Duration::from_millis(2);

/// Arguments of `thalweg-bench load get-faults kills`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Number of points
    #[arg(long, default_value_t = 10)]
    points: usize,
}

/// Runs a trial for each point.
///
/// # Errors
/// When a trial cannot be set up.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let right = args.common.begin()?;
    let mut tally = TrialTally::default();
    let calm = measure_undisturbed(&args.common, &args.common.url, &right, &mut tally)?;
    let mut cost = Cost::default();
    for n in 0..args.points {
        // The middle of each of `points` equal ranges.
        let point = right.len() as u64 * (2 * n as u64 + 1) / (2 * args.points as u64);
        let [killed, again] = kill_at_point(args, n, point, &right, &mut tally)?;
        cost.add(calm, [&killed, &again], &args.common.url(n), right.len())?;
    }
    cost.report(report);
    tally.report(report);
    Ok(())
}

/// Runs one trial; returns the killed run and the next one.
fn kill_at_point(
    args: &Args,
    n: usize,
    point: u64,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
) -> anyhow::Result<[EndedDownload; 2]> {
    let (what, url) = (format!("killed at byte {point}"), args.common.url(n));
    let right = [Arc::clone(right)];
    let trial = FaultTrial::new(&args.common.dir, "kill", &url, &right, &args.common.get)?;
    let mut download = trial.order.start(&[])?;
    while counts::sent_bytes(&url)? < point && download.is_running()? {
        thread::sleep(LOOK);
    }
    let killed = download.kill()?;
    tally.expect_code(&killed, &[137], &what);
    if !trial.is_untouched()? {
        tally.count_failure(&what, "the final name already has other content");
    }
    let ended = trial.order.run()?;
    tally.expect_success(&trial, &ended, &what)?;
    tally.end(trial, &what)?;
    Ok([killed, ended])
}
