//! `thalweg-bench demo`: downloads over detours in an emulated Internet on this machine.
//!
//! The demonstration has eight hosts, a real web server, and a mesh of six relays and a client, which is founded and
//! joined with a user's commands. It downloads the same file directly, through each relay, with `thalweg get` over all
//! paths, and with `thalweg get` while the chosen relay is killed. In the end it revokes the client in the middle of a
//! download. It installs nothing and leaves nothing behind.

mod download;
mod mesh;
mod network;
mod process;
mod report;
mod scratch;
mod tail;
mod watch;
mod web;

use crate::program;
use anyhow::Context;
use download::{DownloadOutcome, RELAY_LIMIT, Stage};
use mesh::{DemoMesh, Hosts, ORACLE};
use network::{CLIENT, PathProperties, RELAYS};
use report::{DemoReport, DownloadRow};
use scratch::Scratch;
use std::process::ExitCode;
use thalweg_console::{INTERRUPTED, note, say};
use thalweg_experiment::run::installed_programs;
use thalweg_experiment::run::stop::StopFlag;
use thalweg_lab::client::Lab;
use thalweg_units::ByteSize;
use web::FileServer;

/// Arguments of `thalweg-bench demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the file that is downloaded
    #[arg(long, default_value = "40 MB")]
    size: ByteSize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command. The exit code is 0 if every download delivered the right bytes and the revoked client's download
/// ended.
///
/// # Errors
/// When the lab cannot be started or a program in it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = StopFlag::on_signals()?;
    let report = match show(args.size.as_bytes(), &stop) {
        // A signal also reaches the programs, whose failure may be noticed first.
        Err(_) if stop.check().is_err() => {
            note!("thalweg-bench: interrupted; the network and the scratch directory are removed");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other?,
    };
    if args.json {
        say(&format!("{:#}\n", report.json()))?;
    } else {
        say(&format!("\n{}", report.table()))?;
    }
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(size: u64, stop: &StopFlag) -> anyhow::Result<DemoReport> {
    note!("creating a file of {} MB and a network of 8 hosts", size as f64 / 1e6);
    let scratch = Scratch::create(size, stop)?;
    let lab = Lab::start(&network::topology()?).context("cannot start the lab")?;
    let web = FileServer::start(&lab, &scratch, stop)?;
    let product = program::product()?;
    let hosts = Hosts { product: &product, lab: &lab, scratch: &scratch, stop };
    let mut mesh = create_mesh(hosts)?;
    let stage = Stage { hosts, web: &web, size };
    let mut rows = alone(&stage)?;
    rows.extend(together(&stage, &mut mesh)?);
    rows.push(revoked(&stage, &mesh, &rows)?);
    let (version, founded, lateness) = (mesh.version, mesh.took, lab.stats(false)?.lateness);
    Ok(DemoReport { size, server: web.program, rows, version, founded, lateness })
}

fn create_mesh(hosts: Hosts<'_>) -> anyhow::Result<DemoMesh<'_>> {
    note!(
        "founding a mesh: {ORACLE} is the oracle and a relay, {} more relays, {CLIENT}",
        RELAYS.len() - 1
    );
    let mesh = DemoMesh::create(hosts)?;
    note!(
        "mesh: all {} nodes know all {} members, {:.1} s after the first command",
        mesh.nodes.len(),
        RELAYS.len() + 1,
        mesh.took.as_secs_f64()
    );
    Ok(mesh)
}

/// Downloads over the direct path, with `get` and with curl, then through each relay.
fn alone(stage: &Stage<'_>) -> anyhow::Result<Vec<DownloadRow>> {
    let network = stage.hosts.lab.resolved();
    let direct = network::course(network, None);
    let mut rows = vec![row(
        "get direct",
        Ok(stage.download_alone("get direct", "direct", None)?),
        direct.clone(),
    )];
    rows.push(row("curl direct", curl(stage)?, direct));
    for relay in RELAYS {
        let (name, course) = (via(relay), network::course(network, Some(relay)));
        rows.push(row(&name, Ok(stage.download_alone(&name, relay, Some(RELAY_LIMIT))?), course));
    }
    Ok(rows)
}

fn curl(stage: &Stage<'_>) -> anyhow::Result<Result<DownloadOutcome, String>> {
    match installed_programs::find("curl") {
        Some(_) => Ok(Ok(stage.curl("curl direct")?)),
        None => Ok(Err("curl is not installed".into())),
    }
}

/// Downloads with `get` over the direct path and all relays, then once more and kills the chosen relay.
fn together(stage: &Stage<'_>, mesh: &mut DemoMesh<'_>) -> anyhow::Result<Vec<DownloadRow>> {
    let limit = network::limit_of_all(stage.hosts.lab.resolved());
    let all = PathProperties { limit, ..PathProperties::default() };
    let whole = row("get", Ok(stage.all("get", mesh, false)?), all.clone());
    let killed = stage.all("get, relay killed", mesh, true)?;
    // `get` may have chosen the direct path, or finished before the choice was seen.
    let name = match (killed.killed_at, killed.chosen.first()) {
        (Some(_), Some(relay)) => {
            mesh.restart(relay)?;
            "get, relay killed"
        }
        _ => "get, none killed",
    };
    Ok(vec![whole, row(name, Ok(killed), all)])
}

/// Downloads through the best relay and revokes the client meanwhile.
fn revoked(
    stage: &Stage<'_>,
    mesh: &DemoMesh<'_>,
    rows: &[DownloadRow],
) -> anyhow::Result<DownloadRow> {
    let rate = |relay: &str| {
        let row = rows.iter().find(|row| row.name == via(relay));
        row.and_then(|row| row.outcome.as_ref().ok()).map(DownloadOutcome::rate)
    };
    let best = RELAYS.into_iter().max_by_key(|relay| rate(relay)).unwrap_or(ORACLE);
    let course = network::course(stage.hosts.lab.resolved(), Some(best));
    let cut = stage.revoked("get, revoked", best, mesh)?;
    let cut = cut.ok_or_else(|| "the download finished first; use a larger --size".to_owned());
    Ok(row("get, revoked", cut, course))
}

/// The name of a download through one relay.
fn via(relay: &str) -> String {
    format!("get via {relay}")
}

/// Prints a finished step as one line of progress and returns its row of the table.
fn row(
    name: &str,
    outcome: Result<DownloadOutcome, String>,
    course: PathProperties,
) -> DownloadRow {
    match &outcome {
        Ok(done) => note!(
            "{name}: {:.1} MB in {:.1} s, {:.1} Mbit/s",
            done.bytes as f64 / 1e6,
            done.took.as_secs_f64(),
            done.rate().as_mbps()
        ),
        Err(reason) => note!("{name}: skipped, {reason}"),
    }
    DownloadRow { name: name.to_owned(), outcome, course }
}
