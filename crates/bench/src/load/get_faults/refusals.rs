//! System calls that write or make data durable fail with EIO, then the same command runs again.
//!
//! After a failed sync the state of the disk is unknown, because the system may have dropped the pages. So the data
//! file is filled with zeros before the second run, which must verify all data that the first run believed to be
//! durable.

use super::{
    Common,
    cost::{Cost, measure_undisturbed},
    download::EndedDownload,
    tally::{FaultTrial, TrialTally},
    tracer::Tracer,
};
use crate::load::report::Report;
use std::{fs, sync::Arc};

/// The calls, and which call of each kind is made to fail. `write` is left out because sockets use it, too.
const CALLS: [(&str, &[usize]); 5] = [
    ("pwrite64,pwritev,pwritev2", &[1, 2, 10, 100]),
    ("fdatasync", &[1, 2, 3, 4, 5, 6]),
    ("fsync", &[1, 2, 3, 4]),
    ("syncfs", &[1, 2]),
    ("rename,renameat,renameat2,linkat", &[1, 2, 3]),
];

/// Arguments of `thalweg-bench load get-faults refusals`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// A second URL, of a download that ends before its first journal entry
    #[arg(long, value_name = "URL")]
    short_url: Option<String>,
    /// Maximum number of calls of each kind
    #[arg(long, default_value_t = usize::MAX)]
    most: usize,
}

/// Lets each of the calls fail in turn.
///
/// # Errors
/// When a trial cannot be set up.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let right = args.common.begin()?;
    let mut tally = TrialTally::default();
    let (mut number, mut failed) = (0, 0);
    let mut cost = Cost::default();
    for url in [Some(&args.common.url), args.short_url.as_ref()].into_iter().flatten() {
        let calm = measure_undisturbed(&args.common, url, &right, &mut tally)?;
        for (calls, which) in CALLS {
            for n in which.iter().take(args.most) {
                number += 1;
                let url = url.replace("@n", &number.to_string());
                match run_failing_call(&args.common, &url, calls, *n, &right, &mut tally)? {
                    FailedCall::None => break,
                    FailedCall::Others => {}
                    FailedCall::Ours([first, again]) => {
                        cost.add(calm, [&first, &again], &url, right.len())?;
                    }
                }
                failed += 1;
            }
        }
    }
    cost.report(report);
    report.add("calls_failed", "1", f64::from(failed));
    tally.report(report);
    Ok(())
}

/// The kind of file that the failed call concerned.
enum FailedCall {
    /// No call failed, because the download makes fewer calls.
    None,
    /// Other files, without which a download may continue.
    Others,
    /// The download's own files: the run that failed, and the next one.
    Ours([EndedDownload; 2]),
}

/// Lets the n-th of these calls fail.
fn run_failing_call(
    common: &Common,
    url: &str,
    calls: &str,
    n: usize,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
) -> anyhow::Result<FailedCall> {
    let trial = FaultTrial::new(&common.dir, "refusal", url, &[Arc::clone(right)], &common.get)?;
    let tracer = Tracer::fail_call(&common.dir.join("strace"), calls, n);
    let ended = trial.order.start(&tracer.args())?.end()?;
    let failed = tracer.failed()?;
    // The path history lies elsewhere, and a download may continue without it.
    let ours: Vec<&String> = failed.iter().filter(|l| l.contains(&trial.place())).collect();
    let what = format!("EIO: {}", ours.first().map_or(calls, |line| line.as_str()));
    let met = if ours.is_empty() {
        tally.expect_success(&trial, &ended, &what)?;
        if failed.is_empty() { FailedCall::None } else { FailedCall::Others }
    } else {
        tally.expect_code(&ended, &[6], &what);
        // Only if syncing the directory failed may the file already have its final name.
        let published = !trial.is_untouched()?;
        if published && (calls != "fsync" || !trial.is_complete()?) {
            tally
                .count_failure(&what, "the download published data that could not be made durable");
        }
        lose_pages(&trial)?;
        let again = trial.order.run()?;
        tally.expect_success(&trial, &again, &format!("{what}, again"))?;
        FailedCall::Ours([ended, again])
    };
    tally.end(trial, &what)?;
    Ok(met)
}

/// Fills the data file with zeros, as if its pages had been lost.
fn lose_pages(trial: &FaultTrial) -> anyhow::Result<()> {
    let part = trial.part();
    if let Ok(about) = fs::metadata(&part) {
        fs::write(&part, vec![0; usize::try_from(about.len())?])?;
    }
    Ok(())
}
