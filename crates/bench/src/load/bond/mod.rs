//! `thalweg-bench load bond`: one byte stream over several interfaces, by bonds and by their competitors.
//!
//! - [`serve`]: the far end: a daemon whose bonds' streams lead to a server of known bytes, and that
//!   server for plain TCP; under `mptcpize` the latter takes MPTCP;
//! - [`bulk`]: bytes for a time, after slow start;
//! - [`transfers`]: small ones, from the first packet to the last byte;
//! - [`failover`]: streams whose interfaces are lost and come back; [`trouble`] what is done to them, [`gaps`] a stream
//!   that says when nothing came;
//! - [`mix`]: the paper's load, connections that come and go;
//! - [`sharing`]: several clients, each with a bond of its own, over the same links;
//! - [`cost`]: CPU time of a stream between programs that copy, and [`pipe`], such a program;
//! - [`capped`]: what goes by an interface that has a cap;
//! - [`near`]: how the client comes there; [`members`]: who the two ends are to each other;
//! - [`counters`]: what the kernel says of interfaces, and of MPTCP.
//!
//! A bonded stream is measured as such, without the channel that is within it in the product: what it is compared
//! with has no TLS either.

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
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// The far end
    Serve(serve::Args),
    /// Bytes for a time
    Bulk(bulk::Args),
    /// Small transfers, one after the other
    Transfers(transfers::Args),
    /// The paper's load: connections that come and go
    Mix(mix::Args),
    /// Several clients that share the links
    Sharing(sharing::Args),
    /// A stream that says when nothing came
    Gaps(gaps::Args),
    /// A program that copies: what comes on loopback goes by a stream
    Pipe(pipe::Args),
    /// What goes by an interface that has a cap
    Capped(capped::Args),
    /// CPU time of a stream between two such programs
    Cost(cost::Args),
    /// Streams whose interfaces are lost and come back
    Failover(failover::Args),
}

/// Runs it.
///
/// # Errors
/// When something does not start, fails, or a byte is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        Work::Serve(args) => serve::run(args).await,
        Work::Bulk(args) => bulk::run(args).await,
        Work::Transfers(args) => transfers::run(args).await,
        Work::Mix(args) => mix::run(args).await,
        Work::Sharing(args) => sharing::run(args).await,
        Work::Gaps(args) => gaps::run(args).await,
        Work::Pipe(args) => pipe::run(args).await,
        Work::Capped(args) => tokio::task::block_in_place(|| capped::run(args)),
        Work::Cost(args) => tokio::task::block_in_place(|| cost::run(args)),
        // Other processes do the work.
        Work::Failover(args) => tokio::task::block_in_place(|| failover::run(args)),
    }
}
