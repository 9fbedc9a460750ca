//! The harness of this project: all measurements of `thalweg`, which users do not need.
//!
//! Its inputs are plans (`experiments/*.toml`), topologies and command lines; its outputs are tables, results and
//! pictures. The product's binary does not link it.
//!
//! ```text
//!  thalweg-bench experiment ──► plan ──► arms ──► thalweg, thalweg-bench load|sim, peers
//!                demo ────────► lab ───► thalweg on eight hosts
//!                sim ─────────► thalweg_sim ──► the papers' figures
//!                lab ─────────► becomes thalweg-lab
//!   make-tree, compare-trees ──► trees of files, and the differences of two
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

mod demo;
mod experiment;
mod lab;
mod load;
mod program;
mod sim;
mod trees;

use clap::{Parser, Subcommand};
use std::{io, process::ExitCode};
use thalweg_console::note;
use tokio::runtime::{Builder, Runtime};

/// Measures thalweg: experiments, an emulated Internet, a simulator, load generators.
#[derive(Parser)]
#[command(name = "thalweg-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show a download through relays in an emulated Internet
    Demo(demo::Args),
    /// List and run the experiments, and write the tables of their results
    Experiment(experiment::Args),
    /// Emulate an Internet for real processes on this machine
    Lab(lab::Args),
    /// Compute the papers' figures in a simulator that runs the product's planning code
    Sim(sim::Args),
    /// Generate load and measure what it costs: the arms of the experiments
    Load(load::Args),
    /// Create a tree of files of every kind from a seed
    MakeTree(trees::MakeArgs),
    /// List everything in which two trees of files differ
    CompareTrees(trees::CompareArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Load(args) => load::run(args),
        Command::MakeTree(args) => trees::run_make(&args),
        Command::CompareTrees(args) => trees::run_compare(&args),
    };
    result.unwrap_or_else(|error| {
        note!("thalweg-bench: {}", thalweg_console::causes(error.as_ref()));
        ExitCode::FAILURE
    })
}

/// A runtime with a thread per core.
///
/// # Errors
/// When the system cannot create threads.
fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}
