//! `probe rtt`: by how much pings differ from the round-trip time that the topology sets.

use super::{
    metrics::{Metrics, quantile},
    scene::Scene,
};
use anyhow::Context;
use std::time::Duration;
use thalweg_console::note;
use thalweg_units::{format_duration, parse_duration};

/// The help text about the output of `probe rtt`.
const METRICS: &str = "\
Metrics, ms; `udp_` by UDP pings, `icmp_` by the distribution's `ping` if it is installed:
  *_error_mean   |mean of all round-trip times - theory|
  *_error_p50    |their median - theory|
  *_error_p99    |their 99th percentile (nearest rank) - theory|
  *_error_max    |the longest - theory|: the worst packet
  udp_lost       pings without an answer
The theory is --rtt. Packets never arrive early, so these values are delays. UDP: from just before
the send call to the kernel's receive timestamp, less the time between the echo's own timestamp
and its send call. ICMP: as printed by `ping`, in steps of about 0.1 ms from 10 ms on, including
its wake-up.";

/// Arguments of `probe rtt`.
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Round-trip time of the path
    #[arg(long, default_value = "40 ms", value_parser = parse_duration)]
    rtt: Duration,
    /// Number of pings
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    count: u32,
}

/// Pings by UDP, and by ICMP if `ping` is installed.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let delay = format_duration(args.rtt / 2);
    // Without a rate there is only propagation delay, so that any difference is an error.
    let scene = Scene::start(&format!(
        "[host.a]\n[host.b]\n[link.line]\ndelay = \"{delay}\"\n\
         [[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"line\"]\n"
    ))?;
    let echo = scene.serve("b", "udp-echo")?;
    let (count, theory_ms) = (args.count.to_string(), args.rtt.as_secs_f64() * 1e3);
    scene.lab.reset_stats()?;
    let ping = ["udp-ping", "--to", &echo.address, "--count", &count, "--interval", "10 ms"];
    let report = scene.run("a", &ping)?;
    let mut metrics = Metrics::default();
    for key in ["mean", "p50", "p99", "max"] {
        let found = super::metrics::number(&report, &format!("/rtt/{key}"))?;
        metrics.add(&format!("udp_error_{key}"), "ms", (found - theory_ms).abs());
    }
    metrics.add_from_report("udp_lost", "packets", &report, "/lost", 1.0)?;
    icmp(&scene, args, theory_ms, &mut metrics)?;
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Pings by ICMP with the distribution's `ping`, if it is installed.
fn icmp(scene: &Scene, args: &Args, theory_ms: f64, metrics: &mut Metrics) -> anyhow::Result<()> {
    if !is_installed("ping") {
        note!("rtt: ICMP skipped, because the program `ping` is not installed");
        return Ok(());
    }
    let to = scene.lab.address("b").to_string();
    let count = args.count.min(200).to_string();
    let output = scene
        .lab
        .command("a", "ping")
        .args(["-n", "-i", "0.02", "-c", &count, &to])
        .output()
        .context("cannot run `ping` in the lab")?;
    let mut times = icmp_times(&String::from_utf8_lossy(&output.stdout));
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let rank = |percent| quantile(&times, percent).context("`ping` in the lab received no answer");
    for (key, found) in
        [("mean", mean), ("p50", rank(50)?), ("p99", rank(99)?), ("max", rank(100)?)]
    {
        metrics.add(&format!("icmp_error_{key}"), "ms", (found - theory_ms).abs());
    }
    Ok(())
}

/// Whether a directory of PATH has `program`.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The times in the output of `ping`, ms: "… time=40.1 ms".
fn icmp_times(output: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    output.lines().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_only_from_the_reply_lines_of_ping() {
        let output = "PING 10.1.0.2 (10.1.0.2) 56(84) bytes of data.\n\
                      64 bytes from 10.1.0.2: icmp_seq=1 ttl=64 time=40.1 ms\n\
                      64 bytes from 10.1.0.2: icmp_seq=2 ttl=64 time=40 ms\n\n\
                      rtt min/avg/max/mdev = 40.000/40.050/40.100/0.050 ms\n";
        assert_eq!(icmp_times(output), [40.1, 40.0]);
    }
}
