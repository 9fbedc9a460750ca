//! `thalweg doctor`: finds what is wrong with this host, and says how to repair it.

mod display;
mod examination;
mod members;

use super::{
    host::{self, StateDir},
    text::say,
};
use anyhow::Context as _;
use std::{path::PathBuf, process::ExitCode};
use thalweg_doctor::Report;
use thalweg_wire::mesh::Name;

const HELP: &str = "\
Examines this host: clock, port, NAT, MTU, interfaces, names, TCP settings, limits, disks, timers,
certificates, settings, keys, roster and oracle; a running node is asked, and up to three other
members connect back. Shows only what is wrong, with a command that repairs it. Changes nothing.

  thalweg doctor
  thalweg doctor -v                 # also what is in order, and what could not be checked
  thalweg doctor --peer nyc         # the pair of this host and nyc; nyc adds its own findings
  thalweg doctor --json | jq -r '.findings[] | select(.severity == \"error\") | .id'

Exit codes: 0 nothing is wrong (notes are not); 1 a warning or an error, or it could not run; 2
wrong usage. docs/doctor.md lists all findings.";

/// Arguments of `thalweg doctor`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The member with which the pair is examined, instead of up to three members
    #[arg(long, value_name = "NODE")]
    peer: Option<Name>,
    /// Show all checks, not only problems
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The settings file of the node [default: $XDG_CONFIG_HOME/thalweg/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it cannot run at all; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let findings = host::block_on(examination::examine(&args))?;
    let report = Report::new(findings);
    let text = match args.json {
        true => {
            serde_json::to_string_pretty(&display::json(&report)).context("cannot print")? + "\n"
        }
        false => display::text(&report, args.verbose),
    };
    say(&text)?;
    Ok(if report.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
