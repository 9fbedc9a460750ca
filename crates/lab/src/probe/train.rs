//! By how much the dispersion of trains misses the rate of the bottleneck.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
};
use anyhow::Context;
use serde_json::Value;
use thalweg_units::{ByteSize, Rate, format_duration};

/// Full packets, as pathload's first phase sends them.
const SIZE: u32 = 1500;

/// Arguments of `probe train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rate of the bottleneck
    #[arg(long)]
    rate: Rate,
    /// How many trains
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trains: u32,
    /// Packets in each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(3..=1000))]
    packets: u32,
}

/// Sends trains back to back, then trains at half the rate, whose gaps should
/// come out as they went in.
///
/// # Errors
/// When the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let rate = args.rate;
    // The queue takes a whole train; the way back is not limited.
    let scene = Scene::start(&format!(
        "[host.a]\n[host.b]\n[link.there]\nsimplex = true\nrate = \"{rate}\"\n\
         queue = \"10 MB\"\ndelay = \"10 ms\"\n[link.back]\nsimplex = true\ndelay = \"10 ms\"\n\
         [[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"there\"]\nback = [\"back\"]\n"
    ))?;
    let sink = scene.serve("b", "train-sink")?;
    let (trains, packets) = (args.trains.to_string(), args.packets.to_string());
    let size = SIZE.to_string();
    let base = ["train-source", "--to", &sink.address, "--trains", &trains];
    let shape = ["--packets", &packets, "--size", &size];
    // Long enough for the queue to drain between trains.
    let interval = rate.time_for(ByteSize::from_bytes(u64::from(SIZE * args.packets)));
    let interval = format_duration(interval + std::time::Duration::from_millis(50));
    let shape = [&base[..], &shape[..], &["--interval", &interval]].concat();
    scene.lab.reset_stats()?;
    let burst = scene.run("a", &shape)?;
    let gap = format_duration(rate.time_for(ByteSize::from_bytes(2 * u64::from(SIZE))));
    let paced = scene.run("a", &[&shape[..], &["--gap", &gap]].concat())?;
    let mut metrics = Metrics::default();
    for (name, key) in [("error", "rate"), ("error_without_first", "rate_without_first")] {
        add_errors(&mut metrics, name, &burst, key, rate)?;
    }
    metrics.take("complete_trains", "1", &burst, "/complete", 1.0)?;
    metrics.take("sent_rate_min", "Mbit/s", &burst, "/sent_rate/min", 1e-6)?;
    metrics.take("gap_error_p50", "us", &paced, "/gap_error/p50", 1.0)?;
    metrics.take("gap_error_p99", "us", &paced, "/gap_error/p99", 1.0)?;
    let drops = number(&burst, "/host_drops")? + number(&paced, "/host_drops")?;
    metrics.add("host_drops", "packets", drops);
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Adds the median and the largest of |found/rate − 1| over the trains.
fn add_errors(
    metrics: &mut Metrics,
    name: &str,
    report: &Value,
    key: &str,
    rate: Rate,
) -> anyhow::Result<()> {
    let trains = report["trains"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = trains.iter().filter_map(|t| t[key].as_f64());
    let mut errors: Vec<f64> = found.map(|f| (f / rate.as_bps() as f64 - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let max = errors.last().context("no train came through whole")?;
    metrics.add(&format!("{name}_median"), "1", errors[errors.len() / 2]);
    metrics.add(&format!("{name}_max"), "1", *max);
    Ok(())
}
