//! `thalweg-bench sim`: computes the papers' figures in a simulator, with the product's own planning code.
//!
//! - [`cast`]: one object to many receivers down a tree;
//! - [`collection`]: data collection in the paper's network, with all methods;
//! - [`planning`]: the cost of planning such collections;
//! - [`streams`]: the cost of planning streams, and the quality of the plans;
//! - [`input`]: the networks: synthetic, a published data set, or a file;
//! - [`grid`]: reads files of rates;
//! - [`figure`]: the figures;
//! - [`numbers`]: the metrics of one run;
//! - [`summary`]: the results of several seeds, as a table or as JSON for the experiments;
//! - [`labels`]: names and order of the table's lines;
//! - [`waiting`]: progress messages during long computations.

mod cast;
mod collection;
mod figure;
mod grid;
mod input;
mod labels;
mod numbers;
mod planning;
mod streams;
mod summary;
mod waiting;

use anyhow::bail;
use figure::Figure;
use input::NetworkName;
use std::{path::PathBuf, process::ExitCode};
use summary::Summary;
use thalweg_console::{note, say};
use thalweg_sim::figures::Report;
use waiting::Waiting;

/// Arguments of `thalweg-bench sim`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<OtherComputation>,
    /// The figure
    #[arg(value_enum, required = true)]
    figure: Option<Figure>,
    /// The network: planetlab, cloud (both synthetic), grid, grid-earlier-predicts-later, or a
    /// CSV file with the columns src, dst, mbps and optionally planned_mbps, rtt_ms
    #[arg(long, default_value = "planetlab", value_name = "NAME|FILE.csv")]
    input: NetworkName,
    /// The directory of cloud-grid.csv (default: $THALWEG_DATA)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The seed of all random choices; with several, medians over them are shown
    #[arg(long, default_value = "1", value_name = "N")]
    seed: Vec<u64>,
    /// The number of random sets of detours per seed, in fig-1 and fig-9 (default: 1000 and 4)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    draws: Option<u64>,
    /// Only this schedule of fig-9, or this strategy of fig-8 and population
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Computations that are not from UKAIRO.
#[derive(clap::Subcommand)]
enum OtherComputation {
    /// Delivery of an object to many receivers: completion times, the source's cost, messages
    Cast(cast::Args),
    /// Data collection by all methods in a transit-stub network (Cheng et al., Fig. 5 to 7)
    Collection(collection::Args),
    /// The cost of planning a collection: time and memory, by hosts and slots
    Planning(planning::Args),
    /// The global scheduler of streams: time to plan, and utility beside the exact optimum
    Streams(streams::Args),
}

/// Runs the command.
///
/// # Errors
/// When the data is missing or invalid; the message says where it was looked for.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let figure = match (args.other, args.figure) {
        (Some(OtherComputation::Cast(args)), _) => return cast::run(&args),
        (Some(OtherComputation::Collection(args)), _) => return collection::run(&args),
        (Some(OtherComputation::Planning(args)), _) => return planning::run(&args),
        (Some(OtherComputation::Streams(args)), _) => return streams::run(&args),
        (None, Some(figure)) => figure,
        (None, None) => bail!("give a figure or a command"),
    };
    let data = args.data.or_else(|| std::env::var_os("THALWEG_DATA").map(PathBuf::from));
    let network = input::open(&args.input, data.as_deref())?;
    let summary = summarise_seeds(&figure.to_string(), &args.seed, |seed| {
        let input = network.input(seed, figure.outside());
        figure.compute(&input, seed, args.draws, args.only.as_deref())
    })?;
    if args.json {
        let all = summary.json(&figure.to_string(), &args.input, &args.seed);
        say(&format!("{all}\n"))?;
    } else {
        say(&summary.text(|name| labels::label(figure, name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the reports of all seeds, one after the other.
fn summarise_seeds(
    what: &str,
    seeds: &[u64],
    mut compute: impl FnMut(u64) -> anyhow::Result<Report>,
) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    for (at, &seed) in seeds.iter().enumerate() {
        if seeds.len() > 1 {
            note!("thalweg-bench: seed {seed}, {} of {}", at + 1, seeds.len());
        }
        let _waiting = Waiting::begin(format!("{what}, seed {seed}"));
        summary.add(compute(seed)?);
    }
    Ok(summary)
}
