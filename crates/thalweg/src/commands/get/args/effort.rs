//! How much at a time, how fast, how long, how often.

use super::super::{duration::seconds, rate::bytes_per_second};
use clap::builder::RangedU64ValueParser;
use std::{num::NonZeroU64, time::Duration};

/// The most downloads at the same time: each has a connection per path and a file.
const MAX_PARALLEL: u64 = 256;

/// Bounds of a call.
#[derive(clap::Args)]
#[command(next_help_heading = "Effort")]
pub struct Effort {
    /// How many downloads run at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_PARALLEL))]
    pub parallel: usize,

    /// After a failed download start no further one
    #[arg(long)]
    pub fail_early: bool,

    /// The most that is fetched, all together: bytes per second with curl's suffixes (500k, 2M),
    /// or a rate with its unit ("40 Mbit/s")
    #[arg(long, value_name = "RATE", value_parser = bytes_per_second)]
    pub limit_rate: Option<NonZeroU64>,

    /// End after this time, and keep what is there; seconds unless a unit is given
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub max_time: Option<Duration>,

    /// Be done within this time at the least cost: interfaces with a price (`[interfaces]` in the
    /// settings) are used as late and as little as that allows; without it, where there is no other
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub within: Option<Duration>,

    /// How often a download that failed for want of a network or for a server in trouble is
    /// tried again; what is there is kept meanwhile
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retry: u32,
}
