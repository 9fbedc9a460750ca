//! `probe setup`: how long a network takes until all its hosts are up.

use super::{metrics::Metrics, scene::Scene};
use std::time::Instant;

/// Arguments of `probe setup`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of hosts
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=1000))]
    hosts: u32,
}

/// Starts a star and pings across it, to verify that it is up.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let hosts = args.hosts;
    let begin = Instant::now();
    let scene = Scene::start(&format!(
        "[generate]\nkind = \"star\"\nhosts = {hosts}\naccess = {{ delay = \"1 ms\" }}\n"
    ))?;
    let started = begin.elapsed().as_secs_f64();
    let names: Vec<String> = scene.lab.resolved().hosts.iter().map(|h| h.name.clone()).collect();
    let (first, last) = (&names[0], &names[names.len() - 1]);
    let echo = scene.serve(last, "udp-echo")?;
    let report = scene.run(first, &["udp-ping", "--to", &echo.address, "--count", "10"])?;
    let mut metrics = Metrics::default();
    metrics.add("hosts", "1", names.len() as f64);
    metrics.add("setup", "s", started);
    metrics.add("setup_in_lab", "s", scene.lab.setup_seconds());
    metrics.add_from_report("pings_lost", "packets", &report, "/lost", 1.0)?;
    let begin = Instant::now();
    drop((echo, scene));
    metrics.add("teardown", "s", begin.elapsed().as_secs_f64());
    Ok(metrics)
}
