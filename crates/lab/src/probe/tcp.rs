//! `probe tcp`: the share of a link that one cubic flow gets.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
    theory::{TCP_SHARE_MAX, cubic_period},
};
use anyhow::bail;
use std::time::Duration;
use thalweg_units::{Rate, format_duration, parse_duration};

/// The shortest default run: slow start and then some losses.
const SHORTEST: Duration = Duration::from_secs(15);
/// The longest default run, so that a plan with several rates stays short.
const LONGEST: Duration = Duration::from_secs(30);

/// The help text about the output of `probe tcp`.
const METRICS: &str = "\
Metrics, of the time after --warmup:
  goodput                    payload received, Mbit/s
  utilisation                goodput / --rate; 0.965 at most: 1448 of a packet's 1500 bytes
  utilisation_of_tcp_limit   the same as a share of that limit
  retransmitted_segments     of the whole run
  receive_window_limited, send_buffer_limited
                             shares of the run in which the hosts and not the path were the limit
  cubic_period               K, s: the time in which cubic regains the window of its last loss,
                             the cube root of 0.3 W / 0.4 (RFC 9438, 4.2), W = 2 BDP in segments;
                             13.6 s at 500 Mbit/s and 40 ms, 7.9 s at 100, 6.3 s at 50, 3.7 s at 10
  duration                   --for, s";

/// Arguments of `probe tcp`.
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Rate of the link
    #[arg(long)]
    rate: Rate,
    /// Round-trip time of the path
    #[arg(long, default_value = "40 ms", value_parser = parse_duration)]
    rtt: Duration,
    /// Duration of the flow; by default two of cubic's periods, limited to 15 to 30 s
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time at the start that is not counted, for slow start to end
    #[arg(long, value_name = "TIME", default_value = "5 s", value_parser = parse_duration)]
    warmup: Duration,
}

impl Args {
    /// The length of the run: by default two periods of cubic. The first one may begin with slow start's overshoot, so
    /// that only the second is whole.
    fn duration(&self) -> Duration {
        let periods = 2 * cubic_period(self.rate, self.rtt);
        self.duration.unwrap_or(periods.clamp(SHORTEST, LONGEST))
    }
}

/// A topology of `pairs` pairs of hosts, a1–b1 …, over one link with a queue of 1 BDP.
pub fn topology(pairs: usize, rate: Rate, rtt: Duration) -> String {
    let (delay, rtt) = (format_duration(rtt / 2), format_duration(rtt));
    let link = format!("rate = \"{rate}\"\nqueue = \"1 BDP of {rtt}\"\ndelay = \"{delay}\"\n");
    let mut text = format!("congestion = \"cubic\"\n[link.bottleneck]\n{link}");
    for i in 1..=pairs {
        text += &format!("[host.a{i}]\n[host.b{i}]\n");
    }
    for i in 1..=pairs {
        text += &format!("[[path]]\nfrom = \"a{i}\"\nto = \"b{i}\"\nlinks = [\"bottleneck\"]\n");
    }
    text
}

/// The arguments of a cubic flow to `address`.
pub fn flow<'a>(address: &'a str, duration: &'a str, warmup: &'a str) -> [&'a str; 9] {
    let cubic = ["--congestion", "cubic"];
    ["tcp-source", "--to", address, "--for", duration, "--warmup", warmup, cubic[0], cubic[1]]
}

/// Checks that at least a second is left to measure after the warm-up.
///
/// # Errors
/// If it is not.
pub fn check(duration: Duration, warmup: Duration) -> anyhow::Result<()> {
    if warmup.is_zero() || warmup + Duration::from_secs(1) > duration {
        bail!(
            "--for must be at least one second longer than --warmup, and --warmup must be above zero"
        );
    }
    Ok(())
}

/// Runs one flow over the link.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let length = args.duration();
    check(length, args.warmup)?;
    let scene = Scene::start(&topology(1, args.rate, args.rtt))?;
    let sink = scene.serve("b1", "tcp-sink")?;
    let (duration, warmup) = (format_duration(length), format_duration(args.warmup));
    let source = scene.spawn("a1", &flow(&sink.address, &duration, &warmup))?;
    scene.warm_up(args.warmup)?;
    let report = source.report()?;
    let utilisation = number(&report, "/goodput/value")? / args.rate.as_bps() as f64;
    let mut metrics = Metrics::default();
    metrics.add_from_report("goodput", "Mbit/s", &report, "/goodput/value", 1e-6)?;
    metrics.add("utilisation", "1", utilisation);
    metrics.add("utilisation_of_tcp_limit", "1", utilisation / TCP_SHARE_MAX);
    let segments = "/flows/0/retransmitted_segments";
    metrics.add_from_report("retransmitted_segments", "1", &report, segments, 1.0)?;
    let limited = "/flows/0/receive_window_limited";
    metrics.add_from_report("receive_window_limited", "1", &report, limited, 1.0)?;
    metrics.add_from_report(
        "send_buffer_limited",
        "1",
        &report,
        "/flows/0/send_buffer_limited",
        1.0,
    )?;
    metrics.add("cubic_period", "s", cubic_period(args.rate, args.rtt).as_secs_f64());
    metrics.add("duration", "s", length.as_secs_f64());
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_lab::topology::Topology;

    #[test]
    fn a_flow_runs_for_two_periods_of_cubic_within_bounds() {
        let length = |mbps: f64, duration| {
            let (rate, rtt) = (Rate::from_mbps(mbps), Duration::from_millis(40));
            Args { rate, rtt, duration, warmup: Duration::from_secs(5) }.duration().as_secs_f64()
        };
        assert_eq!((length(10.0, None), length(1e4, None)), (15.0, 30.0));
        assert!((length(500.0, None) - 27.144).abs() < 1e-3);
        assert_eq!(length(500.0, Some(Duration::from_secs(6))), 6.0);
    }

    #[test]
    fn the_topology_has_the_requested_rate_and_rtt() {
        let text = topology(2, Rate::from_mbps(50.0), Duration::from_millis(40));
        let resolved = Topology::from_toml(&text).unwrap().resolve().unwrap();
        let interface =
            |name: &str| resolved.hosts.iter().find(|h| h.name == name).unwrap().interfaces[0];
        for (a, b) in [("a1", "b1"), ("a2", "b2")] {
            let (a, b) = (interface(a), interface(b));
            assert_eq!(resolved.physical_limit(a, b), Some(Rate::from_mbps(50.0)));
            assert_eq!(resolved.rtt(a, b), Some(Duration::from_millis(40)));
        }
    }
}
