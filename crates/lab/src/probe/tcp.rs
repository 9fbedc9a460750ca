//! How much of a link cubic gets, alone and against another.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
    theory::TCP_SHARE_MAX,
};
use anyhow::bail;
use std::time::Duration;
use thalweg_units::{Rate, format_duration, parse_duration};

/// Arguments of `probe tcp`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rate of the link
    #[arg(long)]
    rate: Rate,
    /// Round-trip time of the path
    #[arg(long, default_value = "40 ms", value_parser = parse_duration)]
    rtt: Duration,
    /// How long the flow runs
    #[arg(long = "for", value_name = "TIME", default_value = "20 s", value_parser = parse_duration)]
    duration: Duration,
    /// How much of that is left out at its start, for slow start to end
    #[arg(long, value_name = "TIME", default_value = "5 s", value_parser = parse_duration)]
    warmup: Duration,
}

/// Arguments of `probe fairness`.
///
/// Cubic takes K = ∛(0.3·W/0.4) s to regain a window of W segments (RFC 9438
/// §4.2). By default each flow has W = 17, K = 2.3 s, so that a minute holds
/// enough congestion events for the shares to even out; at 50 Mbit/s and 40 ms
/// it is 5 s, and 40 s were seen to end anywhere from 36:64 to 50:50.
#[derive(Debug, clap::Args)]
pub struct FairnessArgs {
    /// Rate of the link
    #[arg(long, default_value = "10 Mbit/s")]
    rate: Rate,
    /// Round-trip time of both paths
    #[arg(long, default_value = "20 ms", value_parser = parse_duration)]
    rtt: Duration,
    /// How long the flows run
    #[arg(long = "for", value_name = "TIME", default_value = "60 s", value_parser = parse_duration)]
    duration: Duration,
    /// How much of that is left out at its start, for the flows to converge
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = parse_duration)]
    warmup: Duration,
}

/// `pairs` pairs of hosts, a1–b1 …, over one link with a queue of 1 BDP.
fn topology(pairs: usize, rate: Rate, rtt: Duration) -> String {
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

/// The arguments of a flow to `address`.
fn flow<'a>(address: &'a str, duration: &'a str, warmup: &'a str) -> [&'a str; 9] {
    let cubic = ["--congestion", "cubic"];
    ["tcp-source", "--to", address, "--for", duration, "--warmup", warmup, cubic[0], cubic[1]]
}

fn check(duration: Duration, warmup: Duration) -> anyhow::Result<()> {
    if warmup.is_zero() || warmup + Duration::from_secs(1) > duration {
        bail!("--for must be longer than --warmup by a second at least, and --warmup not zero");
    }
    Ok(())
}

/// One flow over the link.
///
/// # Errors
/// When the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    check(args.duration, args.warmup)?;
    let scene = Scene::start(&topology(1, args.rate, args.rtt))?;
    let sink = scene.serve("b1", "tcp-sink")?;
    let (duration, warmup) = (format_duration(args.duration), format_duration(args.warmup));
    let source = scene.spawn("a1", &flow(&sink.address, &duration, &warmup))?;
    scene.warm_up(args.warmup)?;
    let report = source.report()?;
    let utilisation = number(&report, "/goodput/value")? / args.rate.as_bps() as f64;
    let mut metrics = Metrics::default();
    metrics.take("goodput", "Mbit/s", &report, "/goodput/value", 1e-6)?;
    metrics.add("utilisation", "1", utilisation);
    metrics.add("utilisation_of_tcp_limit", "1", utilisation / TCP_SHARE_MAX);
    let segments = "/flows/0/retransmitted_segments";
    metrics.take("retransmitted_segments", "1", &report, segments, 1.0)?;
    let limited = "/flows/0/receive_window_limited";
    metrics.take("receive_window_limited", "1", &report, limited, 1.0)?;
    metrics.take("send_buffer_limited", "1", &report, "/flows/0/send_buffer_limited", 1.0)?;
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Two flows over the link, from hosts of their own.
///
/// # Errors
/// When the lab or a tool in it fails.
pub fn run_fairness(args: &FairnessArgs) -> anyhow::Result<Metrics> {
    check(args.duration, args.warmup)?;
    let scene = Scene::start(&topology(2, args.rate, args.rtt))?;
    let sinks = [scene.serve("b1", "tcp-sink")?, scene.serve("b2", "tcp-sink")?];
    let (duration, warmup) = (format_duration(args.duration), format_duration(args.warmup));
    let start =
        |(host, i): (&str, usize)| scene.spawn(host, &flow(&sinks[i].address, &duration, &warmup));
    let flows = [start(("a1", 0))?, start(("a2", 1))?];
    scene.warm_up(args.warmup)?;
    let mut rates = Vec::new();
    for flow in flows {
        rates.push(number(&flow.report()?, "/goodput/value")?);
    }
    let (sum, squares) = (rates[0] + rates[1], rates[0].powi(2) + rates[1].powi(2));
    if sum <= 0.0 {
        bail!("neither flow got anything through");
    }
    let mut metrics = Metrics::default();
    metrics.add("share_1", "1", rates[0] / sum);
    metrics.add("share_2", "1", rates[1] / sum);
    metrics.add("share_min", "1", rates[0].min(rates[1]) / sum);
    // Jain, Chiu, Hawe 1984: (Σx)²/(n·Σx²).
    metrics.add("jain_index", "1", sum * sum / (2.0 * squares));
    metrics.add("utilisation", "1", sum / args.rate.as_bps() as f64);
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_lab::topology::Topology;

    #[test]
    fn the_network_is_what_the_probe_says() {
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
