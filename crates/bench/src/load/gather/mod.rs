//! `thalweg-bench load gather`: runs a collection in the lab's network for collections and reports its makespan, its
//! effect on other traffic, and the lower bound of this run.
//!
//! - [`background`]: the rates of the background, from its receiver's record;
//! - [`bound`]: the least time in which the data could have arrived, from the lab's records of all links;
//! - [`content`]: compares the collected files with the sent ones.

mod background;
mod bound;
mod content;

use super::report::Report;
use anyhow::{Context as _, bail};
use background::Background;
use bound::{LEFT_TO_OTHERS, LinkRecords, QuietBackground};
use serde_json::Value;
use std::{
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use thalweg_lab::client::Lab;

/// The most output of a collection; progress a few times per second for ten minutes is a few megabytes.
const OUTPUT_MAX: u64 = 256 << 20;

/// Arguments of `thalweg-bench load gather`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// The topology's seed
    #[arg(long)]
    seed: u64,
    /// File that the receiver of the background traffic writes
    #[arg(long, value_name = "FILE")]
    background: Option<PathBuf>,
    /// Directory of the sources' files, `s1/…` to `s7/…`; without it only the background traffic is measured
    #[arg(long, value_name = "DIR", requires = "into")]
    data: Option<PathBuf>,
    /// Directory in which the command puts the files, under the same names
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Write the mean background traffic on each link while the command runs to this file
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    record_quiet: Option<PathBuf>,
    /// File written by --record-quiet, for the bound beside background traffic that keeps 84 % of its rate
    #[arg(long, value_name = "FILE", requires = "data")]
    quiet: Option<PathBuf>,
    /// The command that collects
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the collection and prints the report.
///
/// # Errors
/// When it fails or collected files differ from the sources'.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    let begun = lab_time(&lab)?;
    let started = Instant::now();
    let (printed, clock) = collect(args)?;
    let call = started.elapsed();
    let stats = lab.stats(true)?;
    let ended = stats.links.first().map_or(stats.elapsed_s, |link| link.until_s);
    let event = ended_event(&printed);
    let reported =
        event.as_ref().and_then(|event| event.pointer("/seconds")).and_then(Value::as_f64);
    let makespan = reported.unwrap_or(ended - begun);
    let mut report = Report::default();
    if let Some(file) = &args.background {
        let rates = Background::read(file)?.rates(clock - makespan, clock)?;
        report.add("background", "Mbit/s", rates.downloads);
        report.add("streams", "Mbit/s", rates.streams);
    }
    if let (Some(data), Some(into)) = (&args.data, &args.into) {
        let amounts = content::compare(data, into)?;
        let records = LinkRecords::new(args.seed, &stats.links, ended - makespan)?;
        let bound = records.least_time(&amounts, makespan)?;
        report.add("makespan", "s", makespan);
        report.add("call", "s", call.as_secs_f64());
        report.add("bound", "s", bound);
        report.add("over_bound", "ratio", makespan / bound);
        if let Some(file) = &args.quiet {
            let quiet = QuietBackground::read(file, args.seed)?;
            add_fair(
                records.least_time_beside(&quiet, LEFT_TO_OTHERS, &amounts)?,
                makespan,
                &mut report,
            );
        }
        let total: u64 = amounts.iter().sum();
        report.add("rate", "Mbit/s", total as f64 * 8e-6 / makespan);
        if let Some(event) = &event {
            add_event(event, &amounts, &mut report);
        }
    }
    if let Some(file) = &args.record_quiet {
        LinkRecords::new(args.seed, &stats.links, begun)?.quiet(ended - begun).write(file)?;
    }
    Ok(report.print()?)
}

/// Reports the bound beside a background that loses no more than in the paper, if there is one.
fn add_fair(bound: f64, makespan: f64, report: &mut Report) {
    if bound.is_finite() {
        report.add("fair_bound", "s", bound);
        report.add("over_fair_bound", "ratio", makespan / bound);
    }
}

/// Reports further values of the event `ended`; missing ones are NaN.
fn add_event(event: &Value, amounts: &[u64], report: &mut Report) {
    let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let total = amounts.iter().sum::<u64>() as f64;
    report.add("planned", "s", number("/planned_seconds"));
    report.add("storage", "%", storage(event, amounts));
    report.add("off_plan", "%", number("/off_plan_bytes") / total * 100.0);
    report.add("synchronising", "s", number("/overhead_seconds"));
    report.add("messages", "messages", number("/messages"));
}

/// For each source the peak of others' data that it stored, in % of its own data; the mean over all sources (Fig. 6).
fn storage(event: &Value, amounts: &[u64]) -> f64 {
    let Some(stored) = event.pointer("/storage").and_then(Value::as_array) else { return f64::NAN };
    let share = |one: &Value| {
        let node = one.pointer("/node")?.as_str()?.strip_prefix('s')?;
        let own = *amounts.get(node.parse::<usize>().ok()?.checked_sub(1)?)?;
        Some(one.pointer("/bytes")?.as_f64()? / own as f64)
    };
    stored.iter().filter_map(share).fold(0.0, std::ops::Add::add) * 100.0 / amounts.len() as f64
}

/// The present time of the lab's records.
fn lab_time(lab: &Lab) -> anyhow::Result<f64> {
    let stats = lab.stats(false)?;
    Ok(stats.links.first().map_or(stats.elapsed_s, |link| link.until_s))
}

/// Runs the command to its end; returns its output and the time of its end, s since 1970.
fn collect(args: &Args) -> anyhow::Result<(String, f64)> {
    let (program, rest) = args.command.split_first().context("no command is given")?;
    let mut child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut printed = String::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_MAX).read_to_string(&mut printed)?;
    }
    let status = child.wait()?;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    if !status.success() {
        let last = printed.lines().last().unwrap_or_default();
        bail!("{program} failed ({status}): {last}");
    }
    Ok((printed, clock))
}

/// The last line with `"event": "ended"`.
fn ended_event(printed: &str) -> Option<Value> {
    let lines = printed.lines().rev().filter(|line| line.starts_with('{'));
    let mut events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.find(|event| event.pointer("/event").and_then(Value::as_str) == Some("ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ended_event_counts() {
        let printed = "{\"event\":\"ended\",\"seconds\":1}\nnoise\n{\"event\":\"ended\",\"seconds\":2}\n\
                       {\"event\":\"progress\"}\n";
        assert_eq!(ended_event(printed).unwrap()["seconds"], 2);
        assert!(ended_event("nothing\n").is_none());
    }

    #[test]
    fn storage_is_the_mean_share_of_all_sources() {
        let event = serde_json::json!({ "storage": [
            { "node": "s1", "bytes": 10 }, { "node": "s2", "bytes": 40 }, { "node": "x", "bytes": 9 },
        ]});
        let share = storage(&event, &[100, 200, 300]);
        assert!((share - 10.0).abs() < 1e-9, "{share}");
        assert!(storage(&serde_json::json!({}), &[1]).is_nan());
    }
}
