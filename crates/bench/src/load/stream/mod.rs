//! `thalweg-bench load stream`: MediaNet over the measurement overlay (MGRP §5), for the experiments `stream-table3`,
//! `stream-video` and `stream-upswitch`.
//!
//! ```text
//! sources ─► m3 (node) ── 100 Mbit/s ──┐                      ┌── m5 (node) ─► viewers
//!                                      x1 ── 10 Mbit/s ── x2
//! c1 (cross traffic, PEAKS) ───────────┘                      └── c2           gs (oracle): links of its own
//! ```
//!
//! - [`network`]: Fig. 15 and Fig. 16 as a lab; [`nodes`]: its mesh;
//! - [`media`]: Table 2's frames, and a decoder that follows references;
//! - [`video`]: H.264 encoded by ffmpeg, and compared by it with what the viewers receive;
//! - [`process`]: processes of the product's own commands;
//! - [`padding`]: another prober, for comparison;
//! - [`mod@run`]: the sequence of a run; [`outcome`]: its results;
//! - [`reroute`], [`fanout`] and [`peers`]: other experiments, with two paths, with many subscribers, and with HLS and
//!   SRT beside it.

pub mod fanout;
mod media;
mod network;
mod nodes;
mod outcome;
mod padding;
pub mod peers;
mod process;
pub mod reroute;
mod run;
mod video;

use clap::ValueEnum;
use std::time::Duration;
use thalweg_lab::topology::Queue;
use thalweg_units::parse_duration;

/// Arguments of `thalweg-bench load stream`.
#[derive(clap::Args)]
pub struct Args {
    /// The tool that measures the legs
    #[arg(long, value_enum)]
    tool: StreamTool,
    /// Whether the streams' packets ride in its trains
    #[arg(long, value_enum, default_value = "off")]
    riders: Riders,
    /// How streams adapt
    #[arg(long, value_enum, default_value = "levels")]
    adapt: Adapt,
    /// The source of the streams' frames
    #[arg(long, value_enum, default_value = "table2")]
    media: Media,
    /// When the tool measures
    #[arg(long, value_enum, default_value = "always")]
    measure: Measure,
    /// The component that chooses levels
    #[arg(long, value_enum, default_value = "local")]
    scheduler: Scheduler,
    /// The deadline: frames that are older on arrival do not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// The round trip without queues
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = parse_duration)]
    rtt: Duration,
    /// The duration of all seven intervals of PEAKS together
    #[arg(long, value_name = "TIME", default_value = "240s", value_parser = parse_duration)]
    span: Duration,
    /// How long streams are counted before PEAKS
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    before: Duration,
    /// How long they are counted after PEAKS
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    after: Duration,
    /// The bottleneck's queue, such as `75 kB` or `50 packets`
    #[arg(long, value_name = "SIZE", default_value = "50 packets")]
    queue: Queue,
    /// How many of the seven intervals to run
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=7))]
    peaks: u8,
    /// Instead of PEAKS, this many cycles of 15 s of cross traffic at 8 Mbit/s and 15 s at 4 Mbit/s
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["span", "peaks"])]
    cycles: Option<u8>,
    /// The time reserved for founding the mesh, because cross traffic follows the lab's clock
    #[arg(long, value_name = "TIME", default_value = "14s", value_parser = parse_duration)]
    found: Duration,
    /// The lab's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A further line of `[carrier]`, such as `share = "50 %"`
    #[arg(long, value_name = "LINE")]
    carrier: Vec<String>,
    /// Copy the nodes' logs to this directory
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<std::path::PathBuf>,
}

/// The measurement tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamTool {
    /// None: only the legs' reports (`pOFF`)
    None,
    /// Pathload with the public tool's pauses
    Pslow,
    /// Pathload with pauses of one round trip
    Pfast,
    /// Padding beside the streams, and viewers that choose their levels by it
    Padding,
}

/// Whether packets ride in trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Riders {
    /// No packets ride (`mgrpOFF`)
    Off,
    /// Packets ride by the carrier's defaults (`mgrp10`)
    On,
    /// Every probe may carry a packet: `follow_tcp = false`
    Free,
}

/// The source of the streams' frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Media {
    /// Synthetic frames of Table 2's sizes
    Table2,
    /// H.264 of ffmpeg's test picture, received by `thalweg stream subscribe` and decoded by ffmpeg
    Picture,
    /// The test picture with camera noise
    Noise,
}

/// How streams adapt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Adapt {
    /// By levels, chosen by the known rate of the path
    Levels,
    /// By the legs' queues alone
    Queue,
}

/// Who chooses levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// The publisher's node
    Local,
    /// The oracle
    Oracle,
}

/// When the tool measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Back to back
    Always,
    /// While a viewer gets less than it requests
    Degraded,
}

/// Runs the experiment and prints the report.
///
/// # Errors
/// When a component does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    run::run(args)
}
