//! `thalweg-bench load carrier`: measures the cost of packets through the carrier.
//!
//! - [`cost`]: CPU time of a TCP connection over the carrier, over plain veth, and over WireGuard in user space;
//! - [`testbed`]: two network namespaces and the programs in them; [`wireguard`]: a tunnel of `boringtun-cli`.

mod cost;
pub(super) mod testbed;
mod wireguard;

use clap::Subcommand;

/// Arguments of `thalweg-bench load carrier`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: CarrierCommand,
}

#[derive(Subcommand)]
enum CarrierCommand {
    /// Measure the CPU time of a TCP connection and of an idle carrier
    Cost(cost::Args),
}

/// Runs the command.
///
/// # Errors
/// When a part does not start or fails, or a byte is wrong.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        CarrierCommand::Cost(args) => cost::run(args),
    }
}
