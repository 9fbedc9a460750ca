//! `thalweg-bench load mgrp`: the network of the paper's Fig. 4, for the experiments `mgrp-overhead`, `mgrp-source` and
//! `mgrp-completion`.
//!
//! ```text
//! m3 (node, source, tool) ── 100 Mbit/s ──┐                      ┌── m5 (node, sink)
//!                                         x1 ── 10 Mbit/s ── x2
//! c1 (cross traffic) ─────────────────────┘                      └── c2
//! ```
//!
//! Independent copies of this network run side by side with the same tool, to get several runs at once.
//!
//! - [`network`]: the copies as a lab; [`pair`]: a copy's two nodes; [`program`]: tools of the lab in its hosts;
//! - [`shots`] (pk1 to pk3) and [`pathload`]: tools that send through the node's probe service;
//! - [`mod@run`]: the sequence of a run; [`outcome`]: its results; [`summary`]: the results as metrics and series.

mod network;
mod outcome;
mod pair;
mod pathload;
pub(super) mod program;
mod run;
mod shots;
pub(super) mod starved;
mod summary;

use clap::ValueEnum;
use std::time::Duration;
use thalweg_units::{Rate, parse_duration};

/// Arguments of `thalweg-bench load mgrp`.
#[derive(clap::Args)]
pub struct Args {
    /// The tool that probes
    #[arg(long, value_enum)]
    tool: ProbingTool,
    /// Whether the source's packets ride
    #[arg(long, value_enum)]
    riders: RiderUse,
    /// Cross traffic on the bottleneck
    #[arg(long, value_enum)]
    cross: Cross,
    /// The round trip without queues
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = parse_duration)]
    rtt: Duration,
    /// Duration of each of the six steps of the measurement
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_duration)]
    step: Duration,
    /// Rate of the source (default: as fast as TCP allows)
    #[arg(long, value_name = "RATE")]
    source: Option<Rate>,
    /// WEB's mean rate
    #[arg(long, value_name = "RATE", default_value = "3Mbit/s")]
    web: Rate,
    /// Number of networks that run at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    copies: u8,
    /// The time reserved for founding one network, because cross traffic follows the lab's clock
    #[arg(long, value_name = "TIME", default_value = "9s", value_parser = parse_duration)]
    found: Duration,
    /// Seed of WEB; each copy uses the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A further line of `[carrier]`, such as `share = "50 %"`
    #[arg(long, value_name = "LINE")]
    carrier: Vec<String>,
    /// Time after which a Pathload measurement is aborted
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
}

impl Args {
    /// The time that is measured.
    fn span(&self) -> Duration {
        self.step * network::STEPS.len() as u32
    }
}

/// The tool that probes (§4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbingTool {
    /// Pathload with its public tool's pauses, one measurement after the other
    Pslow,
    /// Pathload with pauses of one round trip
    Pfast,
    /// Trains of Table 1, PK1
    Pk1,
    /// Trains of Table 1, PK2
    Pk2,
    /// Trains of Table 1, PK3
    Pk3,
    /// No probing
    None,
}

/// Whether the source's packets ride in probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RiderUse {
    /// The carrier holds no packets (`mgrpOFF`)
    Off,
    /// The carrier's default: packets are held while a train is under way or due (`mgrp10`)
    On,
    /// Packets are always held, as in the paper
    Always,
    /// The source sends to m5's own address, without the carrier, to show the cost of the carrier's headers
    Plain,
}

/// Cross traffic on the bottleneck (§4.1, Fig. 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cross {
    /// UDP of 1, 3, 5, 6, 4 and 2 Mbit/s
    Step,
    /// Short TCP flows, ten at most
    Web,
    /// No cross traffic
    None,
}

/// Runs the measurement and prints the report.
///
/// # Errors
/// When a part does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    run::run(args)
}
