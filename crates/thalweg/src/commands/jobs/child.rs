//! `thalweg jobs run-child`: runs a job's command for the node, which starts it.

use anyhow::Context as _;
use std::{path::PathBuf, process::ExitCode};
use thalweg_console::note;
use thalweg_jobs::{NOT_NOW, run_child};

/// Arguments of `thalweg jobs run-child`.
#[derive(clap::Args)]
pub struct Args {
    /// The directory of the jobs
    #[arg(long)]
    directory: PathBuf,
    /// The job's number
    #[arg(long)]
    id: u64,
    /// The number of this attempt
    #[arg(long)]
    attempt: u32,
    /// The node's process
    #[arg(long)]
    parent: u32,
    /// Take a lower share of the CPU
    #[arg(long)]
    low: bool,
    /// The command line
    #[arg(last = true, required = true)]
    arguments: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If the command cannot be started, or the job's lock cannot be opened.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.low {
        // A lower priority than asked for does no harm.
        _ = rustix::process::nice(10);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let Args { directory, id, attempt, parent, arguments, .. } = args;
    let code = run_child(&program, directory, *id, *attempt, *parent, arguments);
    Ok(code
        .unwrap_or_else(|why| {
            note!("thalweg: cannot run the job: {why}");
            NOT_NOW
        })
        .into())
}
