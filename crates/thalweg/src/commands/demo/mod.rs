//! `thalweg demo`: a download by detour, in an emulated Internet on this machine.
//!
//! Eight hosts, a real web server, six relays. The same file comes by curl directly,
//! by curl through each relay, by `thalweg get`, and by `thalweg get` whose chosen
//! relay is killed. Nothing is installed and nothing stays behind.

mod download;
mod network;
mod process;
mod report;
mod scratch;
mod servers;
mod watch;

use super::signals::INTERRUPTED;
use anyhow::Context;
use download::{Outcome, Stage};
use network::{Course, RELAYS};
use report::{Report, Row};
use scratch::Scratch;
use servers::{Relay, Web};
use std::process::ExitCode;
use thalweg_experiment::run::installed;
use thalweg_experiment::run::stop::Stop;
use thalweg_lab::client::Lab;
use thalweg_units::ByteSize;

/// Arguments of `thalweg demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the file that is downloaded
    #[arg(long, default_value = "40 MB")]
    size: ByteSize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command. Exit: 0 when every download brought the right bytes.
///
/// # Errors
/// When the lab cannot be started or a program in it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let report = match show(args.size.as_bytes(), &stop) {
        // A signal also reaches the programs, whose failure may be seen first.
        Err(_) if stop.check().is_err() => {
            eprintln!("thalweg: interrupted; the network and the scratch directory are removed");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other?,
    };
    if args.json {
        println!("{:#}", report.json());
    } else {
        print!("\n{}", report.table());
    }
    Ok(if report.right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(size: u64, stop: &Stop) -> anyhow::Result<Report> {
    eprintln!("making a file of {} MB and a network of 8 hosts", size as f64 / 1e6);
    let scratch = Scratch::create(size, stop)?;
    let lab = Lab::start(&network::topology()?).context("cannot start the lab")?;
    let web = Web::start(&lab, &scratch, stop)?;
    let mut relays = RELAYS
        .iter()
        .map(|host| Relay::start(&lab, &scratch, stop, host))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let stage = Stage { lab: &lab, scratch: &scratch, web: &web, size, stop };
    let mut rows = alone(&stage, &relays)?;
    let all = Course { limit: network::limit_of_all(lab.resolved()), ..Course::default() };
    rows.push(row("get", Ok(stage.get("get", &mut relays, false)?), all.clone()));
    let killed = stage.get("get, relay killed", &mut relays, true)?;
    // It may have chosen the direct path, or been done before the choice was seen.
    let name = if killed.killed_at.is_some() { "get, relay killed" } else { "get, none killed" };
    rows.push(row(name, Ok(killed), all));
    Ok(Report { size, server: web.program, rows, stats: lab.stats(false)? })
}

/// Curl on the direct path, then through each relay.
fn alone(stage: &Stage<'_>, relays: &[Relay]) -> anyhow::Result<Vec<Row>> {
    let network = stage.lab.resolved();
    let paths = std::iter::once(None).chain(relays.iter().map(Some));
    paths
        .map(|relay| {
            let course = network::course(network, relay.map(Relay::name));
            let name = relay.map_or("curl direct".into(), |r| format!("curl via {}", r.name()));
            if installed::find("curl").is_none() {
                return Ok(row(&name, Err("curl is not installed".into()), course));
            }
            Ok(row(&name, Ok(stage.curl(&name, relay)?), course))
        })
        .collect()
}

/// A finished step: one line of progress, one row of the table.
fn row(name: &str, outcome: Result<Outcome, String>, course: Course) -> Row {
    match &outcome {
        Ok(done) => eprintln!(
            "{name}: {:.1} MB in {:.1} s, {:.1} Mbit/s",
            done.bytes as f64 / 1e6,
            done.took.as_secs_f64(),
            done.rate().as_mbps()
        ),
        Err(reason) => eprintln!("{name}: skipped, {reason}"),
    }
    Row { name: name.to_owned(), outcome, course }
}
