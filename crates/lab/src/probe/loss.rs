//! By how many standard errors the frequency of losses misses the mean that
//! the topology says.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
    theory::Gilbert,
};
use anyhow::bail;
use std::time::Duration;
use thalweg_units::{format_duration, parse_duration};

/// 8000 packets of 250 bytes a second: many samples at little CPU.
const BLAST: [&str; 4] = ["--rate", "16 Mbit/s", "--size", "250"];

/// Arguments of `probe loss`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long each model is sampled
    #[arg(long = "for", value_name = "TIME", default_value = "10 s", value_parser = parse_duration)]
    duration: Duration,
    /// Seed of the links' generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// 1 % random loss; then a Gilbert chain of the same order: 0.99 % in bursts
/// of ten.
///
/// # Errors
/// When the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let gilbert = Gilbert { good_to_bad: 0.001, bad_to_good: 0.1 };
    let scene = Scene::start(&topology(args.seed))?;
    let mut metrics = Metrics::default();
    scene.lab.reset_stats()?;
    sample(&scene, args, "random", Gilbert::random(0.01), &mut metrics)?;
    sample(&scene, args, "gilbert", gilbert, &mut metrics)?;
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Two paths, one for each model; the ways back lose nothing.
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

fn sample(
    scene: &Scene,
    args: &Args,
    name: &str,
    model: Gilbert,
    metrics: &mut Metrics,
) -> anyhow::Result<()> {
    let sink = scene.serve(name, "train-sink")?;
    let duration = format_duration(args.duration);
    let blast = ["udp-blast", "--to", &sink.address, "--for", &duration];
    let report = scene.run("source", &[&blast[..], &BLAST[..]].concat())?;
    if number(&report, "/host_drops")? > 0.0 {
        bail!("the receiving host lost packets by itself, so the link's loss cannot be told");
    }
    let (n, loss) = (number(&report, "/sent")?, number(&report, "/loss/value")?);
    let burst = number(&report, "/mean_burst/value")?;
    let bursts = number(&report, "/bursts")?;
    let mut add = |key: &str, unit, value| metrics.add(&format!("{name}_{key}"), unit, value);
    add("packets", "1", n);
    add("loss", "1", loss);
    add("loss_expected", "1", model.mean());
    add("loss_sigmas", "1", (loss - model.mean()).abs() / model.standard_error(n));
    add("mean_burst", "packets", burst);
    add("mean_burst_expected", "packets", model.mean_burst());
    let error = model.burst_standard_error(bursts);
    add("mean_burst_sigmas", "1", (burst - model.mean_burst()).abs() / error);
    Ok(())
}
