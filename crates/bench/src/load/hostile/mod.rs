//! Attacks on a node by a member without rights and by strangers, while a well-behaved peer uses the same node.
//!
//! ```text
//! run ── scene: a node (the product, a process of its own), a member `good`, a member `bad`
//!  ├── for each attack: a process of this program, which attacks until its time is over
//!  ├── peer: small operations of `good` at the same door, timed
//!  └── watched: memory and descriptors of the node
//! ```
//!
//! This module only counts and times; the limits are in the experiment `members-hostile`.
//!
//! - [`plan`]: the list of attacks; [`messages`]: their messages;
//! - [`attack`]: the attacking process; [`channels`], [`raw`]: attacks over channels and without channels;
//! - [`trains`]: sessions of probe trains;
//! - [`scene`]: the mesh; [`peer`]: the well-behaved peer; [`mod@run`]: runs all attacks and prints the report.

mod attack;
mod channels;
mod messages;
mod peer;
mod plan;
mod raw;
mod run;
mod scene;
mod trains;

use clap::Subcommand;

/// Arguments of `thalweg-bench load hostile`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: HostileCommand,
}

#[derive(Subcommand)]
enum HostileCommand {
    /// Attack a node of a new mesh in every way, and measure the effect on a well-behaved peer
    Run(run::Args),
    /// Attack one node for some time; started by `run`
    Attack(attack::Args),
}

/// Runs the command.
///
/// # Errors
/// When the mesh cannot be founded or the node ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        HostileCommand::Run(args) => run::run(args).await,
        HostileCommand::Attack(args) => attack::run(args).await,
    }
}
