//! `thalweg-bench load crowd`: casts among many nodes on this machine, each a process of its own on loopback.
//!
//! - [`scale`]: one tree of hundreds of receivers: the source's costs and the bytes beside data;
//! - [`relay`]: one node between the source and a receiver: the rate that one core of it forwards;
//! - [`large`]: an object that is larger than the memory that a receiver may use;
//! - [`mesh`]: the nodes; [`casting`]: `thalweg cast` and its events; [`sockets`]: bytes on the wire; [`limit`]: a
//!   memory limit.

mod casting;
mod large;
mod limit;
mod mesh;
mod relay;
mod scale;
mod sockets;

use clap::Subcommand;

/// Arguments of `thalweg-bench load crowd`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: CrowdCommand,
}

#[derive(Subcommand)]
enum CrowdCommand {
    /// Cast to hundreds of nodes in one tree
    Scale(scale::Args),
    /// Cast through one node and measure what it spends per bit
    Relay(relay::Args),
    /// Cast an object that is larger than a receiver's memory
    Large(large::Args),
}

/// Runs the command.
///
/// # Errors
/// When a node does not start, a cast fails, or received bytes differ from the sent ones.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        CrowdCommand::Scale(args) => scale::run(args),
        CrowdCommand::Relay(args) => relay::run(args),
        CrowdCommand::Large(args) => large::run(args),
    }
}
