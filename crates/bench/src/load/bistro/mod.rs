//! Drop boxes under load: commitments just before a deadline, pushes, and the collection.
//!
//! - [`deadline`]: a destination on loopback and any number of clients, each with its own key, connection and
//!   handshake;
//! - [`push`]: clients that push data to a node that they choose;
//! - [`collect`]: waits for their receipts and times `thalweg drop-box collect`.

mod client;
mod collect;
mod deadline;
mod push;

use clap::Subcommand;

/// Arguments of `thalweg-bench load bistro`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: BistroCommand,
}

#[derive(Subcommand)]
enum BistroCommand {
    /// Commit in the last seconds before a deadline
    Deadline(deadline::Args),
    /// Commit and push the data of many clients
    Push(push::Args),
    /// Wait for receipts, then collect
    Collect(collect::Args),
}

/// Runs one of the commands and prints its report.
///
/// # Errors
/// When a node does not start or too many clients fail.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        BistroCommand::Deadline(args) => deadline::run(args).await,
        BistroCommand::Push(args) => push::run(args).await,
        BistroCommand::Collect(args) => collect::run(args).await,
    }
}
