//! `thalweg-bench load stream`: MediaNet over the measurement overlay (MGRP §5), for the experiment `stream-table3`.
//!
//! ```text
//! sources ─► m3 (node) ── 100 Mbit/s ──┐                      ┌── m5 (node) ─► viewers
//!                                      x1 ── 10 Mbit/s ── x2
//! c1 (cross traffic, PEAKS) ───────────┘                      └── c2           gs (oracle): links of its own
//! ```
//!
//! - [`network`]: Fig. 15 and Fig. 16 as a lab; [`nodes`]: its mesh;
//! - [`media`]: Table 2's frames, and a decoder that knows what refers to what;
//! - [`video`]: H.264 by ffmpeg, and what it decodes of what came;
//! - [`mod@run`]: a run's order in time; [`outcome`]: what came of it.

mod media;
mod network;
mod nodes;
mod outcome;
mod run;
mod video;

use clap::ValueEnum;
use std::time::Duration;
use thalweg_units::parse_duration;

/// Arguments of `thalweg-bench load stream`.
#[derive(clap::Args)]
pub struct Args {
    /// What measures the legs
    #[arg(long, value_enum)]
    tool: Tool,
    /// Whether the streams' packets ride in its trains
    #[arg(long, value_enum, default_value = "off")]
    riders: Riders,
    /// What holds streams back
    #[arg(long, value_enum, default_value = "levels")]
    adapt: Adapt,
    /// What the streams are made of
    #[arg(long, value_enum, default_value = "table2")]
    media: Media,
    /// When the tool measures
    #[arg(long, value_enum, default_value = "always")]
    measure: Measure,
    /// A frame that is older than this when it comes is of no use
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// The round trip without queues
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = parse_duration)]
    rtt: Duration,
    /// PEAKS takes so long, all seven intervals together
    #[arg(long, value_name = "TIME", default_value = "240s", value_parser = parse_duration)]
    span: Duration,
    /// How many of the seven intervals there are
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=7))]
    peaks: u8,
    /// Founding the mesh takes so long at most: cross traffic begins by the lab's clock
    #[arg(long, value_name = "TIME", default_value = "14s", value_parser = parse_duration)]
    found: Duration,
    /// Of the lab
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A further line of `[carrier]`, such as `share = "50 %"`
    #[arg(long, value_name = "LINE")]
    carrier: Vec<String>,
    /// Leave the nodes' logs here
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<std::path::PathBuf>,
}

/// What measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// Nothing: reports of the legs alone (`pOFF`)
    None,
    /// Pathload with its public tool's pauses
    Pslow,
    /// Pathload with pauses of one round trip
    Pfast,
}

/// Whether packets ride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Riders {
    /// None do (`mgrpOFF`)
    Off,
    /// As the carrier does unless told otherwise (`mgrp10`)
    On,
    /// Every probe carries: `follow_tcp = false`
    Free,
}

/// What the streams are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Media {
    /// Frames of Table 2's sizes
    Table2,
    /// H.264 of ffmpeg's test picture, which ffmpeg decodes at the viewers
    Picture,
    /// The same with a camera's noise
    Noise,
}

/// What holds streams back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Adapt {
    /// Levels, by what is known of the way
    Levels,
    /// The legs' queues alone
    Queue,
}

/// When the tool measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// One measurement after the other
    Always,
    /// While something is left out
    Degraded,
}

/// Runs it, and prints the report.
///
/// # Errors
/// When something does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    run::run(args)
}
