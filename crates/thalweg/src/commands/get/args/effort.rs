//! Options of `thalweg get` about parallelism, rates, deadlines and retries.

use super::super::duration::seconds;
use clap::builder::RangedU64ValueParser;
use std::time::Duration;
use thalweg_base::rate_timetable::RateTimetable;

/// The most downloads at a time: each has a connection per path and an open file.
const MAX_PARALLEL: u64 = 256;

/// Limits of a call.
#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct Effort {
    /// The number of downloads at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_PARALLEL))]
    pub parallel: usize,

    /// Start no further download after one has failed
    #[arg(long)]
    pub fail_early: bool,

    /// The highest rate of all downloads together: bytes per second as for curl (500k, 2M), with a unit
    /// ("40 Mbit/s"), or by time of day ("08:00,512k 19:00,10M 23:00,off")
    #[arg(long, alias = "bwlimit", value_name = "RATE")]
    pub limit_rate: Option<RateTimetable>,

    /// Yield to other traffic on the connections of this host: take only what it leaves over
    #[arg(long)]
    pub background: bool,

    /// Stop after this time and keep what was received; in seconds unless a unit is given
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub max_time: Option<Duration>,

    /// Finish within this time at the least cost: interfaces with a price (`[interfaces]` in the
    /// settings) are used as late and as little as possible; without this option only if no other
    /// interface is available
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub within: Option<Duration>,

    /// How often to retry a download after a network failure or server error; what was received is
    /// kept
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retry: u32,
}
