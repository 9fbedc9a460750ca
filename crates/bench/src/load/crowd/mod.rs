//! `thalweg-bench load crowd`: casts among many nodes of this machine, each a process of its own on loopback.
//!
//! - [`scale`]: one tree of hundreds of receivers: what does the source spend, and what is said beside data?
//! - [`relay`]: one node between the source and a receiver: how much does a core of it pass on?
//! - [`large`]: an object that is larger than the memory that a receiver may have;
//! - [`mesh`]: the nodes; [`casting`]: `thalweg cast` and what it told; [`sockets`]: bytes on the wire;
//!   [`limit`]: a memory limit.

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
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Cast to hundreds of nodes in one tree
    Scale(scale::Args),
    /// Cast through one node; what does it spend for each bit?
    Relay(relay::Args),
    /// Cast what is larger than a receiver's memory
    Large(large::Args),
}

/// Runs it.
///
/// # Errors
/// When a node does not start, a cast fails, or what came is not what was sent.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        Work::Scale(args) => scale::run(args),
        Work::Relay(args) => relay::run(args),
        Work::Large(args) => large::run(args),
    }
}
