//! `probe loss`: by how many standard errors the frequency of losses differs from the mean that the topology sets.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
    theory::GilbertChain,
};
use anyhow::{Context, bail};
use std::{
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::topology::{LinkChange, Loss};
use thalweg_units::{format_duration, parse_duration};

/// 8000 packets of 250 bytes a second: many samples at little CPU.
const BLAST: [&str; 4] = ["--rate", "16 Mbit/s", "--size", "250"];
/// The time between two packets of the blast.
const GAP: Duration = Duration::from_micros(125);

/// A blast has ended when fewer than [`QUIET_PACKETS`] packets entered the link in this time; a running blast sends
/// 2,400.
const QUIET: Duration = Duration::from_millis(300);
const QUIET_PACKETS: u64 = 100;
/// A blast that has not ended this long after its duration never started; its own error says why.
const LATEST: Duration = Duration::from_secs(15);

/// The help text about the output of `probe loss`.
const METRICS: &str = "\
Metrics, each for MODEL `random` and `gilbert`:
  MODEL_packets                     packets sent
  MODEL_loss                        share of them that did not arrive
  MODEL_loss_expected               the chain's stationary share of losses
  MODEL_loss_sigmas                 |loss - expected| in standard errors of so many packets,
                                    the correlation within bursts counted
  MODEL_lost_elsewhere              losses that are not in the link's own record: must be 0
  MODEL_bursts                      runs of consecutive losses
  MODEL_mean_burst                  packets lost per run
  MODEL_mean_burst_expected         1 / (step from bad to good)
  MODEL_mean_burst_sigmas           |mean burst - expected| in standard errors of so many runs
  MODEL_mean_burst_relative_error   |mean burst / expected - 1|
To pool runs: weigh loss by packets, and mean burst by bursts.";

/// Arguments of `probe loss`.
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Packets sent for each model, 8000 a second
    #[arg(long, default_value_t = 80_000,
        value_parser = clap::value_parser!(u32).range(1000..=4_000_000))]
    packets: u32,
    /// Time for which packets are sent, instead of --packets
    #[arg(long = "for", value_name = "TIME", conflicts_with = "packets",
        value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Seed of the links' generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Samples 1 % random loss, then a Gilbert chain with about as many losses: 0.99 % in bursts of ten.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let gilbert = GilbertChain { good_to_bad: 0.001, bad_to_good: 0.1 };
    let scene = Scene::start(&topology(args.seed))?;
    let mut metrics = Metrics::default();
    scene.lab.reset_stats()?;
    sample(&scene, args, "random", GilbertChain::random(0.01), &mut metrics)?;
    sample(&scene, args, "gilbert", gilbert, &mut metrics)?;
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Two paths, one for each loss model, with lossless return paths.
fn topology(seed: u64) -> String {
    let models = [
        ("random", "\"1 %\""),
        ("gilbert", "{ good_to_bad = \"0.1 %\", bad_to_good = \"10 %\", in_bad = \"100 %\" }"),
    ];
    let mut text = format!("seed = {seed}\n[host.source]\n");
    for (name, loss) in models {
        text += &format!(
            "[host.{name}]\n[link.{name}]\nsimplex = true\ndelay = \"5 ms\"\nloss = {loss}\n"
        );
    }
    text += "[link.back]\nsimplex = true\ndelay = \"5 ms\"\n";
    for (name, _) in models {
        text += &format!(
            "[[path]]\nfrom = \"source\"\nto = \"{name}\"\nlinks = [\"{name}\"]\nback = [\"back\"]\n"
        );
    }
    text
}

/// Waits until the link named `name` is quiet after the blast. Returns its losses so far.
///
/// # Errors
/// If the lab does not answer.
fn losses_of_blast(scene: &Scene, name: &str, blast: Duration) -> anyhow::Result<f64> {
    let (began, mut before) = (Instant::now(), 0);
    loop {
        thread::sleep(QUIET);
        let stats = scene.lab.stats(false)?;
        let link = stats.link(name).context("the probe's own link is missing")?;
        let (sent, quiet) = (link.packets, link.packets - before < QUIET_PACKETS);
        let late = began.elapsed() > blast + LATEST;
        if began.elapsed() > blast && (quiet || late) {
            return Ok(link.random_losses as f64);
        }
        before = sent;
    }
}

/// Sends packets over the path of `model` and adds the comparison with theory.
fn sample(
    scene: &Scene,
    args: &Args,
    name: &str,
    model: GilbertChain,
    metrics: &mut Metrics,
) -> anyhow::Result<()> {
    let sink = scene.serve(name, "train-sink")?;
    let duration = format_duration(args.duration.unwrap_or(GAP * args.packets));
    let blast = ["udp-blast", "--to", &sink.address, "--for", &duration];
    let blast = scene.spawn("source", &[&blast[..], &BLAST[..]].concat())?;
    let recorded = losses_of_blast(scene, name, args.duration.unwrap_or(GAP * args.packets))?;
    // The chain steps with each packet. If the blast left it in its bad state, the report of the tools could take
    // minutes, because a connection retransmits less and less often.
    scene.lab.set(name, &LinkChange { loss: Some(Loss::None), ..LinkChange::default() })?;
    let report = blast.report()?;
    if number(&report, "/host_drops")? > 0.0 {
        bail!("the receiving host itself dropped packets, so the link's loss cannot be determined");
    }
    let (n, loss) = (number(&report, "/sent")?, number(&report, "/loss/value")?);
    let burst = number(&report, "/mean_burst/value")?;
    let bursts = number(&report, "/bursts")?;
    let mut add = |key: &str, unit, value| metrics.add(&format!("{name}_{key}"), unit, value);
    add("packets", "1", n);
    add("loss", "1", loss);
    add("loss_expected", "1", model.mean());
    add("loss_sigmas", "1", (loss - model.mean()).abs() / model.standard_error(n));
    // The link's record also has the few lost packets of the tools' control connection.
    add("lost_elsewhere", "packets", (number(&report, "/lost")? - recorded).max(0.0));
    add("bursts", "1", bursts);
    add("mean_burst", "packets", burst);
    add("mean_burst_expected", "packets", model.mean_burst());
    let error = model.burst_standard_error(bursts);
    add("mean_burst_sigmas", "1", (burst - model.mean_burst()).abs() / error);
    add("mean_burst_relative_error", "1", (burst / model.mean_burst() - 1.0).abs());
    Ok(())
}
