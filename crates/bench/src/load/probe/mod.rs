//! `thalweg-bench load probe`: compares findings of probe trains with the emulator's record, for the experiments
//! `probe-accuracy`, `badabing` and `pacing`.
//!
//! ```text
//! a (node, tool) ── one bottleneck with cross traffic ── b (node)
//! ```
//!
//! - [`probe_lab`]: the lab and its two nodes; [`drive`]: runs a tool over the probe service of one node;
//! - [`mod@accuracy`]: available bandwidth; [`peers`]: the public tools in the same lab;
//! - [`mod@badabing`]: loss episodes; [`mod@pacing`]: the accuracy of gaps on this host, idle and busy.

mod accuracy;
mod badabing;
mod drive;
mod pacing;
mod peers;
mod probe_lab;

use clap::Subcommand;

/// Arguments of `thalweg-bench load probe`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: ProbeCommand,
}

#[derive(Subcommand)]
enum ProbeCommand {
    /// Estimate available bandwidth and compare with the emulator's record
    Accuracy(accuracy::Args),
    /// Estimate how often and for how long packets are lost, and compare with the emulator's record
    Badabing(badabing::Args),
    /// Send trains over loopback and compare the accuracy of their gaps with the calibration
    Pacing(pacing::Args),
}

/// Runs the command.
///
/// # Errors
/// When a part does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        ProbeCommand::Accuracy(args) => accuracy::run(args),
        ProbeCommand::Badabing(args) => badabing::run(args),
        ProbeCommand::Pacing(args) => pacing::run(args),
    }
}

/// The median; NaN if there are no values.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let middle = of.len() / 2;
    match of.len() % 2 {
        _ if of.is_empty() => f64::NAN,
        0 => f64::midpoint(of[middle - 1], of[middle]),
        _ => of[middle],
    }
}
