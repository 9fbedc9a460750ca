//! `thalweg-bench load cast`: casts through the hosts of a lab, and the programs that casts are compared with.
//!
//! - [`mod@run`]: founds a mesh in the hosts and casts once: rates, completion, redundant bytes; [`mesh`]: its nodes,
//!   [`record`]: the events of the cast, [`fault`]: faults during the cast, [`outcome`]: its results, [`depth`]: rates
//!   along a chain, [`cause`]: why they fall;
//! - [`solo`]: TCP alone on each leg, or on several legs at once;
//! - [`each`]: another program in each host, until all hosts have the file;
//! - [`tee`]: a tree of plain TCP in which each node waits for its slowest child; [`copy`]: one of its nodes;
//! - [`capacities`]: gives links the rates of a table, if it exists;
//! - [`network`]: the rates of the lab's links; [`legs`]: trees and rates as texts; [`content`]: compares files.

mod capacities;
mod cause;
mod content;
mod copy;
mod depth;
mod each;
mod fault;
mod legs;
pub mod mesh;
mod network;
mod outcome;
mod record;
mod run;
mod solo;
mod tee;

use clap::Subcommand;

/// Arguments of `thalweg-bench load cast`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: CastCommand,
}

#[derive(Subcommand)]
enum CastCommand {
    /// Cast once through a new mesh
    Run(Box<run::Args>),
    /// Measure TCP alone on each leg
    Solo(solo::Args),
    /// Run another program in each host until all have the file
    Each(each::Args),
    /// Send a file through a tree of plain TCP with back-pressure
    Tee(tee::Args),
    /// Run one node of such a tree
    Copy(copy::Args),
    /// Give the lab's links the rates of a table
    Capacities(capacities::Args),
}

/// Runs the command.
///
/// # Errors
/// When a part does not start or fails, or received bytes differ from the sent ones.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        CastCommand::Run(args) => run::run(args),
        CastCommand::Solo(args) => solo::run(args),
        CastCommand::Each(args) => each::run(args),
        CastCommand::Tee(args) => tee::run(args),
        CastCommand::Copy(args) => copy::run(args),
        CastCommand::Capacities(args) => capacities::run(args),
    }
}
