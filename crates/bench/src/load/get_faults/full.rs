//! A full disk: from the start, and midway, when another program takes the space.

use super::{
    Common,
    cost::{Cost, measure_undisturbed},
    counts,
    tally::{FaultTrial, TrialTally},
};
use crate::load::report::Report;
use anyhow::ensure;
use std::{
    fs,
    io::Write as _,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// The most bytes written to fill the file system, which must be a small one.
const SMALL: u64 = 256 << 20;

/// The longest wait for the first durable batch.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `thalweg-bench load get-faults full`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// A URL of a file that is larger than the file system
    #[arg(long, value_name = "URL")]
    large_url: String,
}

/// Runs both cases.
///
/// # Errors
/// When a trial cannot be set up or the file system is not small.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let right = args.common.begin()?;
    let free = rustix::fs::statvfs(&args.common.dir)?;
    ensure!(
        free.f_bfree * free.f_frsize < SMALL,
        "the file system is not small enough for this test"
    );
    let mut tally = TrialTally::default();
    test_too_large(args, &right, &mut tally, report)?;
    test_space_taken(args, &right, &mut tally, report)?;
    tally.report(report);
    Ok(())
}

/// An object that cannot fit must be refused before much is fetched, and nothing may be left.
fn test_too_large(
    args: &Args,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (what, common) = ("too large", &args.common);
    let url = args.large_url.replace("@n", "large");
    let trial = FaultTrial::new(&common.dir, "large", &url, &[Arc::clone(right)], &common.get)?;
    let ended = trial.order.run()?;
    tally.expect_code(&ended, &[6], what);
    if !trial.is_untouched()? || trial.temporary()? > 0 {
        tally.count_failure(what, "the failed download left files behind");
    }
    report.add("fetched_too_large", "MB", counts::sent_bytes(&url)? as f64 / 1e6);
    tally.end(trial, what)
}

/// Another program takes the space once a batch is durable. After the space is freed, the download must resume.
fn test_space_taken(
    args: &Args,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (what, common) = ("space taken midway", &args.common);
    let url = common.url(1);
    let calm = measure_undisturbed(common, &common.url, right, tally)?;
    let trial = FaultTrial::new(&common.dir, "midway", &url, &[Arc::clone(right)], &common.get)?;
    let mut download = trial.order.start(&[])?;
    let until = Instant::now() + PATIENCE;
    while trial.temporary()? < 2 && download.is_running()? {
        ensure!(Instant::now() < until, "nothing became durable within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
    let hog = common.dir.join("hog");
    fill_disk(&hog)?;
    let ended = download.end()?;
    tally.expect_code(&ended, &[6], what);
    if !trial.is_untouched()? {
        tally.count_failure(what, "the failed download left a file under the final name");
    }
    fs::remove_file(&hog)?;
    let again = trial.order.run()?;
    tally.expect_success(&trial, &again, what)?;
    report.add("kept", "MB", again.number("resumed", "bytes").unwrap_or(0) as f64 / 1e6);
    let mut cost = Cost::default();
    cost.add(calm, [&ended, &again], &url, right.len())?;
    cost.report(report);
    tally.end(trial, what)
}

fn fill_disk(hog: &Path) -> anyhow::Result<()> {
    let mut file = fs::File::create(hog)?;
    let mut written = 0;
    for block in [vec![1; 64 << 10], vec![1; 4 << 10]] {
        while file.write_all(&block).is_ok() {
            written += block.len() as u64;
            ensure!(written < SMALL, "the file system is not small enough for this test");
        }
    }
    Ok(())
}
