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
pub mod tracer;
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
    /// Run an undisturbed download and a disturbed one
    Pair(pair::Args),
    /// Kill a download at points distributed evenly over its bytes
    Kills(kills::Args),
    /// Kill a download before and after each system call that makes data durable
    Holds(holds::Args),
    /// Let system calls fail that write data or make it durable
    Refusals(refusals::Args),
    /// Fill the file system (it must be a small, separate one)
    Full(full::Args),
}

/// What all trials need.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// The URL of `thalweg-lab tool web-faults`; `@n` is replaced by the number of the trial
    #[arg(long)]
    url: String,
    /// File with the expected content
    #[arg(long, value_name = "FILE")]
    content: PathBuf,
    /// Working directory; it is created
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
