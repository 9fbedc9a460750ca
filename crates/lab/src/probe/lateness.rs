//! `probe lateness`: how late packets are delivered while many flows run among many hosts.

use super::{
    metrics::{Metrics, number},
    scene::{RunningTool, Scene, add_truth},
};
use anyhow::bail;
use std::{thread, time::Duration};
use thalweg_lab::stats::Stats;
use thalweg_units::{Rate, format_duration, parse_duration};

/// The measurement window of lateness ends this long before the flows do.
const MARGIN: Duration = Duration::from_millis(300);

/// Arguments of `probe lateness`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of flows, each between a pair of hosts of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    flows: u32,
    /// Rate of every host's access link
    #[arg(long, default_value = "20 Mbit/s")]
    rate: Rate,
    /// Number of hosts
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=1000))]
    hosts: u32,
    /// Duration of the flows
    #[arg(long = "for", value_name = "TIME", default_value = "20 s", value_parser = parse_duration)]
    duration: Duration,
    /// Time at the start that is not counted
    #[arg(long, value_name = "TIME", default_value = "5 s", value_parser = parse_duration)]
    warmup: Duration,
}

/// Runs cubic flows with an RTT of 40 ms and a queue of 1 BDP.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    if args.warmup.is_zero() || args.warmup + 2 * MARGIN > args.duration {
        bail!("--for must be at least 0.6 s longer than --warmup, and --warmup must be above zero");
    }
    if 2 * args.flows > args.hosts {
        bail!("{} flows need {} hosts", args.flows, 2 * args.flows);
    }
    let (rate, hosts) = (args.rate, args.hosts);
    let scene = Scene::start(&format!(
        "congestion = \"cubic\"\n[generate]\nkind = \"star\"\nhosts = {hosts}\n\
         access = {{ rate = \"{rate}\", delay = \"10 ms\", queue = \"1 BDP of 40 ms\" }}\n"
    ))?;
    let (before, after, goodput) = load(&scene, args)?;
    let mut metrics = Metrics::default();
    metrics.add("goodput", "Mbit/s", goodput / 1e6);
    let limit = rate.as_bps() as f64 * f64::from(args.flows);
    metrics.add("utilisation", "1", goodput / limit);
    let window = after.elapsed_s - before.elapsed_s;
    let busy = (after.emulator_cpu_s - before.emulator_cpu_s) / window;
    metrics.add("emulator_cpu", "cores", busy);
    metrics.add("packets", "1", after.lateness.n as f64);
    add_truth(&mut metrics, &after);
    Ok(metrics)
}

/// Runs the flows. Returns the statistics at the start and at the end of the window, and the sum of the goodputs,
/// bit/s.
fn load(scene: &Scene, args: &Args) -> anyhow::Result<(Stats, Stats, f64)> {
    let hosts: Vec<&str> = scene.lab.resolved().hosts.iter().map(|h| h.name.as_str()).collect();
    let pairs: Vec<_> = hosts.chunks_exact(2).take(args.flows as usize).collect();
    let sinks = pairs.iter().map(|p| scene.serve(p[1], "tcp-sink"));
    let sinks = sinks.collect::<Result<Vec<_>, _>>()?;
    let (duration, warmup) = (format_duration(args.duration), format_duration(args.warmup));
    let start = |(pair, sink): (&&[&str], &super::scene::ToolServer)| {
        let flow = ["tcp-source", "--to", &sink.address, "--congestion", "cubic"];
        let times = ["--for", &duration, "--warmup", &warmup];
        scene.spawn(pair[0], &[&flow[..], &times[..]].concat())
    };
    let flows: Vec<RunningTool> = pairs.iter().zip(&sinks).map(start).collect::<Result<_, _>>()?;
    scene.warm_up(args.warmup)?;
    let before = scene.lab.stats(false)?;
    thread::sleep(args.duration - args.warmup - MARGIN);
    let after = scene.lab.stats(false)?;
    let mut goodput = 0.0;
    for flow in flows {
        goodput += number(&flow.report()?, "/goodput/value")?;
    }
    Ok((before, after, goodput))
}
