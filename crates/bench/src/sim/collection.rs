//! `thalweg-bench sim collection`: Fig. 5, 6 and 7 of the paper on data collection, at full size.

use super::{summarise_seeds, summary::Summary};
use anyhow::{Context, ensure};
use std::{process::ExitCode, str::FromStr, time::Duration};
use thalweg_console::say;
use thalweg_plan::collection::Grid;
use thalweg_sim::{
    collection::{Ratio, Settings, figures},
    figures::Report,
};
use thalweg_units::ByteSize;

/// Arguments of `thalweg-bench sim collection`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of background flows; the paper uses 0, 24, 72 and 120
    #[arg(long, default_value_t = 120, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000))]
    flows: u32,
    /// Ratio of the flows at the two peering points
    #[arg(long, default_value = "1:3", value_name = "A:B")]
    ratio: Division,
    /// Size of all data, on seven hosts
    #[arg(long, default_value = "350 MB", value_name = "SIZE")]
    size: ByteSize,
    /// The plan's time unit, s
    #[arg(long, default_value_t = 8.0, value_name = "SECONDS")]
    slot: f64,
    /// The plan's data unit; with several, each is planned separately and marks its metrics' names
    #[arg(long, default_value = "64 KiB", value_name = "SIZE")]
    unit: Vec<ByteSize>,
    /// Largest relative error of the estimated capacities, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    wrong_by: f64,
    /// Maximum distance of a leg in the order of hosts; smaller values give longer paths
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u8).range(1..=7))]
    reach: Option<u8>,
    /// Plan with the access link that all legs to the destination share; the paper does not use it
    #[arg(long)]
    access_known: bool,
    /// Only this method; may be repeated (default: all)
    #[arg(long, value_name = "NAME")]
    method: Vec<String>,
    /// Seed of all random choices; with several, medians over them are shown
    #[arg(long, default_value = "1", value_name = "N")]
    seed: Vec<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// A ratio such as 1:3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division(Ratio);

impl FromStr for Division {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (a, b) = text.split_once(':').context("a ratio must have the form 1:3")?;
        let [a, b] = [a, b].map(str::parse::<u16>);
        let ratio = (u32::from(a?), u32::from(b?));
        ensure!(ratio.0 + ratio.1 > 0, "a ratio must have a number above 0");
        Ok(Self(ratio))
    }
}

/// The methods' names, as they appear in the metrics.
const METHODS: [&str; 10] = [
    "all_at_once",
    "one_by_one",
    "spread_in_time",
    "concurrent",
    "path_sync_100",
    "path_sync_95",
    "path_delay",
    "best_path",
    "all_at_once_over_4",
    "fluid",
];

/// Runs the command.
///
/// # Errors
/// When an argument is invalid, or a network is too slow for the grid.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let summary = summarise_seeds("collection", &args.seed, |seed| report(args, seed))?;
    print(args, &summary)?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args) -> anyhow::Result<()> {
    if let Some(name) = args.method.iter().find(|name| !METHODS.contains(&name.as_str())) {
        anyhow::bail!("there is no method {name}; available: {}", METHODS.join(", "));
    }
    ensure!((0.001..=1e6).contains(&args.slot), "--slot: {} s is out of range", args.slot);
    ensure!((0.0..=1.0).contains(&args.wrong_by), "--wrong-by must be from 0 to 1");
    ensure!(args.unit.iter().all(|unit| unit.as_bytes() > 0), "--unit must be at least one byte");
    ensure!(args.size.as_bytes() >= 7, "--size must be at least 7 bytes, one for each host");
    Ok(())
}

fn report(args: &Args, seed: u64) -> anyhow::Result<Report> {
    let mut parts = Vec::new();
    for unit in &args.unit {
        let grid = Grid { slot: Duration::from_secs_f64(args.slot), unit: *unit };
        let settings = Settings {
            flows: args.flows,
            ratio: args.ratio.0,
            bytes: args.size.as_bytes() as f64,
            grid,
            wrong_by: args.wrong_by,
            reach: args.reach.map(usize::from),
            access_known: args.access_known,
        };
        parts.push((unit.as_bytes().to_string(), figures(seed, settings, &args.method)?));
    }
    Ok(Report::merged(parts.iter().map(|(name, part)| (name.as_str(), part.clone())).collect()))
}

fn print(args: &Args, summary: &Summary) -> anyhow::Result<()> {
    if args.json {
        let Division((a, b)) = args.ratio;
        let input = format!("{} flows, {a}:{b}", args.flows);
        return Ok(say(&format!("{}\n", summary.json("collection", &input, &args.seed)))?);
    }
    Ok(say(&summary.text(|name| name.replace('_', " ")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_parsed() {
        assert_eq!("1:3".parse::<Division>().unwrap(), Division((1, 3)));
        for wrong in ["", "1", "0:0", "a:b", "1:-1", "1:2:3"] {
            assert!(wrong.parse::<Division>().is_err(), "{wrong}");
        }
    }
}
