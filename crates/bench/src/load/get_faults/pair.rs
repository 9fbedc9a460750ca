//! The same download twice: undisturbed, then disturbed.

use super::{
    Common,
    download::{Download, EndedDownload},
    read,
    tally::{FaultTrial, TrialTally},
};
use crate::load::report::Report;
use anyhow::ensure;
use serde_json::json;
use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The interval between two looks at a download's progress.
const LOOK: Duration = Duration::from_millis(5);

/// Arguments of `thalweg-bench load get-faults pair`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// The URL of the undisturbed download
    #[arg(long, value_name = "URL")]
    calm_url: String,
    /// File with the content of the undisturbed download, if different
    #[arg(long, value_name = "FILE")]
    calm_content: Option<PathBuf>,
    /// Arguments of the undisturbed download, instead of those of the disturbed one
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    calm_arg: Option<Vec<String>>,
    /// Print `{"event":"disturb"}` when this part of the bytes has arrived
    #[arg(long, value_name = "PART")]
    at: Option<f64>,
    /// Expected exit codes
    #[arg(long, value_name = "CODE", value_delimiter = ',', default_value = "0")]
    exit: Vec<i32>,
    /// Wrong bytes cannot be detected: only report what happened
    #[arg(long)]
    unprotected: bool,
    /// Relay that the download must report as the one that alters bytes
    #[arg(long, value_name = "RELAY")]
    corrupt: Option<String>,
    /// Download again afterwards and report whether the relay is avoided
    #[arg(long, requires = "corrupt")]
    again: bool,
}

/// Runs both downloads.
///
/// # Errors
/// When the undisturbed one fails.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let common = &args.common;
    let mut tally = TrialTally::default();
    let right = common.begin()?;
    let calm_content = args.calm_content.as_ref().map_or_else(|| Ok(right.clone()), |f| read(f))?;
    let calm_args = args.calm_arg.as_ref().unwrap_or(&common.get);
    let calm = FaultTrial::new(&common.dir, "calm", &args.calm_url, &[calm_content], calm_args)?;
    let undisturbed = calm.order.run()?;
    ensure!(
        undisturbed.code() == 0,
        "the undisturbed download failed: {}",
        undisturbed.last_error()
    );
    tally.expect_success(&calm, &undisturbed, "undisturbed")?;
    tally.end(calm, "undisturbed")?;
    let trial = FaultTrial::new(
        &common.dir,
        "disturbed",
        &common.url(0),
        std::slice::from_ref(&right),
        &common.get,
    )?;
    let mut download = trial.order.start(&[])?;
    if let Some(part) = args.at {
        disturb(&mut download, &trial.part(), (right.len() as f64 * part) as u64)?;
    }
    let ended = download.end()?;
    judge(args, &trial, &ended, &mut tally, report)?;
    measure(&undisturbed, &ended, report);
    if args.again {
        run_again(args, &trial, &mut tally, report)?;
    }
    match args.unprotected {
        true => TrialTally::default().end(trial, "without a digest")?,
        false => tally.end(trial, "disturbed")?,
    }
    tally.report(report);
    Ok(())
}

/// Prints the event `disturb` once `bytes` bytes are present; an error if the download ended before.
///
/// Progress events are too rare, so it reads the number of blocks that the sparse file occupies.
fn disturb(download: &mut Download, file: &Path, bytes: u64) -> anyhow::Result<()> {
    let occupied = || fs::metadata(file).map_or(0, |about| about.blocks() * 512);
    while occupied() < bytes && download.is_running()? {
        thread::sleep(LOOK);
    }
    ensure!(download.is_running()?, "the download ended before it could be disturbed");
    let mut out = io::stdout().lock();
    writeln!(out, "{}", json!({ "event": "disturb" }))?;
    Ok(out.flush()?)
}

fn judge(
    args: &Args,
    trial: &FaultTrial,
    ended: &EndedDownload,
    tally: &mut TrialTally,
    report: &mut Report,
) -> anyhow::Result<()> {
    if let Some(relay) = &args.corrupt {
        let named = ended.events("corrupt").any(|e| e["path"].as_str() == Some(relay));
        let failed = ended.events("path_failed").any(|e| e["path"].as_str() == Some(relay));
        report.add("named", "1", f64::from(named || failed));
    }
    if args.unprotected {
        let differs = fs::read(&trial.order.file)? != **args.common.begin()?;
        report.add("altered", "1", f64::from(ended.code() == 0 && differs));
        return Ok(());
    }
    if args.exit == [0] {
        return tally.expect_success(trial, ended, "disturbed");
    }
    tally.expect_code(ended, &args.exit, "disturbed");
    if ended.code() != 0 && !trial.is_untouched()? {
        tally.count_failure("disturbed", "the failed download left a file under the final name");
    }
    Ok(())
}

fn measure(undisturbed: &EndedDownload, disturbed: &EndedDownload, report: &mut Report) {
    let (calm, took) = (undisturbed.took.as_secs_f64(), disturbed.took.as_secs_f64());
    report.add("undisturbed", "s", calm);
    report.add("disturbed", "s", took);
    report.add("lost", "s", took - calm);
    report.add("ratio", "1", took / calm);
    let twice = disturbed.number("finished", "duplicate_bytes");
    report.add("twice", "MB", twice.map_or(f64::NAN, |n| n as f64 / 1e6));
    let twice = undisturbed.number("finished", "duplicate_bytes");
    report.add("twice_undisturbed", "MB", twice.map_or(f64::NAN, |n| n as f64 / 1e6));
}

fn run_again(
    args: &Args,
    trial: &FaultTrial,
    tally: &mut TrialTally,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ended = trial.order.run()?;
    tally.expect_success(trial, &ended, "again")?;
    let relay = args.corrupt.as_deref().unwrap_or_default();
    let tried = ended.events("started").any(|e| {
        e["paths"].as_array().is_some_and(|all| all.iter().any(|p| p.as_str() == Some(relay)))
    });
    report.add("tried_again", "1", f64::from(tried));
    Ok(())
}
