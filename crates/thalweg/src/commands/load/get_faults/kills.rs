//! `kill -9` at points uniform over the bytes; then the same command again.

use super::{
    Common, counts,
    tally::{Tally, Trial},
};
use crate::commands::load::report::Report;
use std::{sync::Arc, thread, time::Duration};

/// How often the server is asked how far it is: at 20 MB/s every 40 kB.
const LOOK: Duration = Duration::from_millis(2);

/// Arguments of `thalweg load get-faults kills`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// How many points
    #[arg(long, default_value_t = 10)]
    points: usize,
}

/// Runs a trial for each point.
///
/// # Errors
/// When one cannot be made.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let right = args.common.begin()?;
    let mut tally = Tally::default();
    let mut twice = Vec::new();
    for n in 0..args.points {
        // The middle of each of so many equal stretches.
        let point = right.len() as u64 * (2 * n as u64 + 1) / (2 * args.points as u64);
        twice.push(killed_at(args, n, point, &right, &mut tally)?);
    }
    twice.sort_by(f64::total_cmp);
    report.add("twice", "MB", twice.iter().sum::<f64>() / twice.len() as f64);
    report.add("twice_most", "MB", twice.last().copied().unwrap_or(f64::NAN));
    tally.report(report);
    Ok(())
}

/// Megabytes that were fetched twice.
fn killed_at(
    args: &Args,
    n: usize,
    point: u64,
    right: &Arc<Vec<u8>>,
    tally: &mut Tally,
) -> anyhow::Result<f64> {
    let (what, url) = (format!("killed at byte {point}"), args.common.url(n));
    let right = [Arc::clone(right)];
    let trial = Trial::new(&args.common.dir, "kill", &url, &right, &args.common.get)?;
    let mut download = trial.order.start(&[])?;
    while counts::bytes(&url)? < point && download.runs()? {
        thread::sleep(LOOK);
    }
    let killed = download.kill()?;
    tally.expect_code(&killed, &[137], &what);
    if !trial.is_untouched()? {
        tally.wrong(&what, "there is something else under the final name already");
    }
    let ended = trial.order.run()?;
    tally.expect_success(&trial, &ended, &what)?;
    tally.end(trial, &what)?;
    Ok(counts::bytes(&url)?.saturating_sub(right[0].len() as u64) as f64 / 1e6)
}
