//! `thalweg-bench load bond`: measures one byte stream over several interfaces, with bonds and with their competitors.
//!
//! - [`serve`]: the far end: a daemon whose bonds lead their streams to a server of known bytes, and that server for
//!   plain TCP, or for MPTCP under `mptcpize`;
//! - [`bulk`]: the rate after slow start;
//! - [`transfers`]: small transfers, timed from the first packet to the last byte;
//! - [`failover`]: streams whose interfaces fail and recover; [`trouble`]: the failures; [`gaps`]: a stream that
//!   reports when no bytes arrived;
//! - [`mix`]: the paper's load of connections that arrive and end;
//! - [`sharing`]: several clients, each with its own bond, over the same links;
//! - [`cost`]: CPU time of a stream between copying programs; [`pipe`]: such a program;
//! - [`capped`]: the bytes that a metered interface carries;
//! - [`near`]: how the client connects to the far end; [`members`]: the keys and the roster of both ends;
//! - [`counters`]: the kernel's counters of interfaces and of MPTCP.
//!
//! A bonded stream is measured without the encrypted channel that the product runs over it, because its competitors
//! have no TLS either.

mod bulk;
mod capped;
mod cost;
mod counters;
mod failover;
mod gaps;
mod members;
mod mix;
mod near;
mod pipe;
mod serve;
mod sharing;
mod transfers;
mod trouble;

use clap::Subcommand;

/// Arguments of `thalweg-bench load bond`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: BondCommand,
}

#[derive(Subcommand)]
enum BondCommand {
    /// Run the far end
    Serve(serve::Args),
    /// Transfer bytes for some time
    Bulk(bulk::Args),
    /// Measure small transfers, one after the other
    Transfers(transfers::Args),
    /// Generate the paper's load: connections that arrive and end
    Mix(mix::Args),
    /// Run several clients that share the links
    Sharing(sharing::Args),
    /// Read a stream and report when no data arrived
    Gaps(gaps::Args),
    /// Copy connections on loopback to streams
    Pipe(pipe::Args),
    /// Measure the bytes on an interface that has a cap
    Capped(capped::Args),
    /// Measure the CPU time of a stream between two programs that copy
    Cost(cost::Args),
    /// Measure streams while interfaces fail and recover
    Failover(failover::Args),
}

/// Runs the command.
///
/// # Errors
/// When a part does not start or fails, or a byte is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        BondCommand::Serve(args) => serve::run(args).await,
        BondCommand::Bulk(args) => bulk::run(args).await,
        BondCommand::Transfers(args) => transfers::run(args).await,
        BondCommand::Mix(args) => mix::run(args).await,
        BondCommand::Sharing(args) => sharing::run(args).await,
        BondCommand::Gaps(args) => gaps::run(args).await,
        BondCommand::Pipe(args) => pipe::run(args).await,
        BondCommand::Capped(args) => tokio::task::block_in_place(|| capped::run(args)),
        BondCommand::Cost(args) => tokio::task::block_in_place(|| cost::run(args)),
        // This process only waits; other processes do the work.
        BondCommand::Failover(args) => tokio::task::block_in_place(|| failover::run(args)),
    }
}
