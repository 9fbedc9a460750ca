//! Attacks on a node, by a member without rights and by strangers, while a peer that behaves uses the same node.
//!
//! ```text
//! run ── scene: a node (the product, a process of its own), a member `good`, a member `bad`
//!  ├── for each attack: a process of this program, which attacks until its time is over
//!  ├── peer: small operations of `good` at the same door, timed
//!  └── watched: memory and descriptors of the node
//! ```
//!
//! Nothing is judged here; the report counts and times, and the experiment `members-hostile` says what must hold.
//!
//! - [`plan`]: which attacks there are; [`messages`]: what they send;
//! - [`attack`]: the process that attacks; [`channels`], [`raw`]: by channels, and without any;
//! - [`trains`]: sessions of probe trains;
//! - [`scene`]: the mesh; [`peer`]: the peer that behaves; [`mod@run`]: all of it, and the report.

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
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Attack a node of a mesh of its own in every way, and measure what a peer that behaves sees
    Run(run::Args),
    /// Attack one node until the time is over; `run` starts this
    Attack(attack::Args),
}

/// Runs it.
///
/// # Errors
/// When the mesh cannot be founded, or the node ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        Work::Run(args) => run::run(args).await,
        Work::Attack(args) => attack::run(args).await,
    }
}
