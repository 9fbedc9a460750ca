//! `thalweg sim`: UKAIRO's figures in the simulator, by the product's own planning code.
//!
//! - [`input`]: which network: synthetic, a published data set, or a file;
//! - [`grid`]: reads the files;
//! - [`figure`]: which figure;
//! - [`summary`]: of several seeds, as a table or as JSON for the experiments;
//! - [`labels`]: names and order of the table's lines;
//! - [`waiting`]: how long it takes.

mod figure;
mod grid;
mod input;
mod labels;
mod summary;
mod waiting;

use super::text::say;
use figure::Figure;
use input::Source;
use std::{path::PathBuf, process::ExitCode};
use summary::Summary;
use thalweg_console::note;
use waiting::Waiting;

/// Arguments of `thalweg sim`.
#[derive(clap::Args)]
pub struct Args {
    /// What to compute
    #[arg(value_enum)]
    figure: Figure,
    /// The network: planetlab, cloud (both synthetic), grid, grid-earlier-predicts-later, or a
    /// CSV file with the columns src, dst, mbps and perhaps planned_mbps, rtt_ms
    #[arg(long, default_value = "planetlab", value_name = "NAME|FILE.csv")]
    input: Source,
    /// Where cloud-grid.csv is (default: $THALWEG_DATA)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Of all random choices; several: medians over them
    #[arg(long, default_value = "1", value_name = "N")]
    seed: Vec<u64>,
    /// Random sets of detours for each seed, in fig-1 and fig-9 (default: 1000 and 4)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    draws: Option<u64>,
    /// Only this schedule of fig-9, or this strategy of fig-8 and population
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the data is missing or has a fault; the message says where it was looked for.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = args.data.or_else(|| std::env::var_os("THALWEG_DATA").map(PathBuf::from));
    let network = input::open(&args.input, data.as_deref())?;
    let mut summary = Summary::default();
    for (at, &seed) in args.seed.iter().enumerate() {
        if args.seed.len() > 1 {
            note!("thalweg: seed {seed}, {} of {}", at + 1, args.seed.len());
        }
        let what = format!("{}, seed {seed}", args.figure);
        let _waiting = Waiting::begin(what);
        let input = network.input(seed, args.figure.outside());
        summary.add(args.figure.compute(&input, seed, args.draws, args.only.as_deref())?);
    }
    if args.json {
        let all = summary.json(&args.figure.to_string(), &args.input, &args.seed);
        say(&format!("{all}\n"))?;
    } else {
        say(&summary.text(args.figure))?;
    }
    Ok(ExitCode::SUCCESS)
}
