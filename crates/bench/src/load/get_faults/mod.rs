//! Downloads with injected faults, for the experiment `get-faults`.
//!
//! Each trial has its own directory, in which an older file has the final name. That name is watched all the time, see
//! [`watch`]. This module only counts and measures; the experiment has the limits.
//!
//! - [`pair`]: the same download undisturbed and disturbed, by a fault of the experiment's choice;
//! - [`kills`]: killed at points spread over its bytes; [`holds`]: before and after each call that makes something
//!   durable; [`refusals`]: such calls fail; [`full`]: the disk is full.

mod cost;
mod counts;
mod download;
mod full;
mod holds;
mod kills;
mod pair;
mod refusals;
mod tally;
mod tracer;
mod watch;

use super::report::Report;
use anyhow::Context as _;
use clap::Subcommand;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Arguments of `thalweg-bench load get-faults`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    trial: Trials,
}

#[derive(Subcommand)]
enum Trials {
    /// One undisturbed download, and one that something happens to
    Pair(pair::Args),
    /// Kill it at points uniform over its bytes
    Kills(kills::Args),
    /// Kill it before and after each call that makes something durable
    Holds(holds::Args),
    /// Let calls that write or make durable fail
    Refusals(refusals::Args),
    /// Let the file system be full (it must be a small one of its own)
    Full(full::Args),
}

/// What all trials need.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// The URL, of `thalweg-lab tool web-faults`; `@n` in it becomes the number of the trial
    #[arg(long)]
    url: String,
    /// What the file must hold at the end
    #[arg(long, value_name = "FILE")]
    content: PathBuf,
    /// Where to work: this is created
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Further arguments of `thalweg get`
    #[arg(last = true)]
    get: Vec<String>,
}

impl Common {
    fn url(&self, n: usize) -> String {
        self.url.replace("@n", &n.to_string())
    }

    /// Creates the directory and reads the right content.
    fn begin(&self) -> anyhow::Result<Arc<Vec<u8>>> {
        fs::create_dir_all(&self.dir)?;
        read(&self.content)
    }
}

fn read(file: &Path) -> anyhow::Result<Arc<Vec<u8>>> {
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(Arc::new(bytes))
}

/// Runs the trials and prints the report.
///
/// # Errors
/// When a trial cannot be set up; failures in a trial are counted.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    match &args.trial {
        Trials::Pair(args) => pair::run(args, &mut report),
        Trials::Kills(args) => kills::run(args, &mut report),
        Trials::Holds(args) => holds::run(args, &mut report),
        Trials::Refusals(args) => refusals::run(args, &mut report),
        Trials::Full(args) => full::run(args, &mut report),
    }?;
    report.print().context("cannot print the report")
}
