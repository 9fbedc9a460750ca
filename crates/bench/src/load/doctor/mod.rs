//! `thalweg-bench load doctor`: hosts with one fault each, and what `thalweg doctor` says of them.

mod faults;
mod names;
mod namespace;
mod peer;
mod testbed;

use super::report::Report;
use anyhow::{Context as _, ensure};
use clap::Subcommand;
use faults::{Fault, all};
use serde_json::Value;
use std::time::{Duration, Instant};
use testbed::Testbed;
use thalweg_console::note;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    part: DoctorPart,
}

#[derive(Subcommand)]
enum DoctorPart {
    /// Give hosts one fault each, and compare it with what `thalweg doctor` finds
    Run(RunArgs),
    /// Answer each DNS question without an answer, for the testbed's hosts
    Names(names::Args),
    /// Be a member whose clock or version differs, for the testbed
    Peer(peer::Args),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Only the faults whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Print what each examination found, on standard error
    #[arg(long)]
    verbose: bool,
}

/// Runs the command.
///
/// # Errors
/// When the testbed cannot be built, or a command gives no report.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.part {
        DoctorPart::Run(args) => tokio::task::block_in_place(|| compare(args)),
        DoctorPart::Names(args) => tokio::task::block_in_place(|| names::run(args)),
        DoctorPart::Peer(args) => peer::run(args).await,
    }
}

/// The findings of one examination.
struct Examination {
    /// Ids of notes, warnings and errors.
    found: Vec<String>,
    /// Warnings and errors, with their evidence.
    bad: Vec<String>,
    took: Duration,
}

fn compare(args: &RunArgs) -> anyhow::Result<()> {
    let testbed = Testbed::new()?;
    let mut report = Report::default();
    let healthy = Fault::none();
    let seen = examine(&testbed, &healthy).context("a host without a fault")?;
    note!("healthy: {} warnings{}", seen.bad.len(), listed(&seen.bad));
    report.add("healthy_warnings", "1", seen.bad.len() as f64);
    report.add_text("healthy", seen.bad.join("; "));
    let (mut named, mut others, mut times) = (0, 0, vec![seen.took]);
    let faults: Vec<Fault> = all().into_iter().filter(|f| f.name.contains(&args.only)).collect();
    ensure!(!faults.is_empty(), "no fault is called `{}`", args.only);
    for fault in &faults {
        // A machine without the means for one fault still shows the others.
        let seen = match examine(&testbed, fault) {
            Ok(seen) => seen,
            Err(why) => {
                note!("MISSED {:<28} {why:#}", fault.name);
                report.add(metric(fault), "1", 0.0);
                continue;
            }
        };
        let right = fault.expected.iter().any(|id| seen.found.iter().any(|found| found == id));
        named += usize::from(right);
        others += seen.bad.len().saturating_sub(1);
        times.push(seen.took);
        let word = if right { "named" } else { "MISSED" };
        note!("{word:<6} {:<28} {}", fault.name, fault.expected.join(" or "));
        if args.verbose || !right {
            note!("       found:{}", listed(&seen.bad));
        }
        report.add(metric(fault), "1", f64::from(u8::from(right)));
    }
    report.add("faults", "1", faults.len() as f64);
    report.add("named", "1", named as f64);
    report.add("share", "ratio", named as f64 / faults.len() as f64);
    report.add("other_warnings", "1", others as f64 / faults.len() as f64);
    report.add_times("examination", times);
    Ok(report.print()?)
}

fn metric(fault: &Fault) -> String {
    format!("named_{}", fault.name.replace('-', "_"))
}

fn listed(bad: &[String]) -> String {
    bad.iter().map(|line| format!("\n         {line}")).collect()
}

/// Builds hosts with this fault, and runs the command on the faulty one.
fn examine(testbed: &Testbed, fault: &Fault) -> anyhow::Result<Examination> {
    let hosts = testbed.hosts(fault)?;
    let begun = Instant::now();
    let printed = hosts.doctor(fault)?;
    let took = begun.elapsed();
    let report: Value = serde_json::from_str(&printed)
        .with_context(|| format!("`thalweg doctor` printed no report: {printed}"))?;
    let findings = report["findings"].as_array().context("the report has no findings")?;
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let of = |kinds: &[&str]| {
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        findings.iter().filter(move |finding| kinds.contains(&text(finding, "severity")))
    };
    let found = of(&["note", "warning", "error"]).map(|finding| text(finding, "id")).collect();
    let bad = of(&["warning", "error"])
        .map(|finding| format!("{}: {}", text(finding, "id"), text(finding, "seen")))
        .collect();
    Ok(Examination { found, bad, took })
}
