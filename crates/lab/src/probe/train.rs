//! `probe train`: by how much the dispersion of packet trains differs from the rate of the bottleneck.

use super::{
    metrics::{Metrics, number, quantile},
    scene::Scene,
};
use serde_json::Value;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate, format_duration};

/// Full packets, as pathload's first phase sends them.
const SIZE: u32 = 1500;
/// The largest relative error of a train that counts as accurate.
const TOLERANCE: f64 = 0.02;

/// The help text about the output of `probe train`.
const METRICS: &str = "\
Metrics of the trains that are sent back to back. The error of a train of n packets of L bytes
is |8L(n-1)/(t_n - t_1) / rate - 1|, t being the kernel's receive stamps; a train is complete if
all its packets arrived in order, and only complete trains have an error:
  trains_sent              trains sent
  complete_trains          complete ones among them
  share_within_2_percent   share of ALL sent trains with an error of at most 2 %; incomplete fail
  error_median, _p95, _max of the complete ones
  *_without_first          the same without the first packet, as pathload computes it:
                           8L(n-2)/(t_n - t_2); separates a late first packet from a wrong rate
  sent_rate_min            the slowest complete train by the source's own timestamps, Mbit/s; near
                           the link's rate or below, delays of the sender split the train
Metrics of trains at half the rate:
  gap_error_p50, _p99      |gap between neighbours received - gap sent|, us
Of both:
  host_drops               packets that the receiving socket dropped
Sender and receiver run at real-time priority below the emulator's where that is allowed, so
that other work on the machine neither splits a train nor fills the receiver's buffer. The rest
is the emulator's own: the first packet is about 100 us late after the processor was idle, and
on a busy machine there are occasional pauses of milliseconds, which lateness_max shows.";

/// Arguments of `probe train`.
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Rate of the bottleneck
    #[arg(long)]
    rate: Rate,
    /// Number of trains
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trains: u32,
    /// Packets in each train
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(3..=1000))]
    packets: u32,
}

/// Sends trains back to back, then trains at half the rate, whose gaps should stay the same.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    let rate = args.rate;
    // The queue holds a whole train; the return path has no rate limit.
    let scene = Scene::start(&format!(
        "[host.a]\n[host.b]\n[link.there]\nsimplex = true\nrate = \"{rate}\"\n\
         queue = \"10 MB\"\ndelay = \"10 ms\"\n[link.back]\nsimplex = true\ndelay = \"10 ms\"\n\
         [[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"there\"]\nback = [\"back\"]\n"
    ))?;
    let sink = scene.serve_promptly("b", "train-sink")?;
    let (trains, packets) = (args.trains.to_string(), args.packets.to_string());
    let size = SIZE.to_string();
    let base = ["train-source", "--to", &sink.address, "--trains", &trains];
    let shape = ["--packets", &packets, "--size", &size];
    // Long enough for the queue to drain between trains.
    let interval = rate.time_for(ByteSize::from_bytes(u64::from(SIZE * args.packets)));
    let interval = format_duration(interval + Duration::from_millis(50));
    let shape = [&base[..], &shape[..], &["--interval", &interval]].concat();
    scene.lab.reset_stats()?;
    let burst = scene.run_promptly("a", &shape)?;
    let gap = format_duration(rate.time_for(ByteSize::from_bytes(2 * u64::from(SIZE))));
    let paced = scene.run_promptly("a", &[&shape[..], &["--gap", &gap]].concat())?;
    let mut metrics = Metrics::default();
    let trains = f64::from(args.trains);
    metrics.add("trains_sent", "1", trains);
    metrics.add_from_report("complete_trains", "1", &burst, "/complete", 1.0)?;
    add_errors(&mut metrics, "", errors(&burst, "rate", rate), trains);
    let without_first = errors(&burst, "rate_without_first", rate);
    add_errors(&mut metrics, "_without_first", without_first, trains);
    add_rest(&mut metrics, &burst, &paced)?;
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Adds the metrics of both measurements besides the errors of the rate. Metrics that need a complete train are left
/// out if there is none.
fn add_rest(metrics: &mut Metrics, burst: &Value, paced: &Value) -> anyhow::Result<()> {
    let mut add = |name: &str, unit, report: &Value, pointer, factor| {
        if let Ok(found) = number(report, pointer) {
            metrics.add(name, unit, found * factor);
        }
    };
    add("sent_rate_min", "Mbit/s", burst, "/sent_rate/min", 1e-6);
    add("gap_error_p50", "us", paced, "/gap_error/p50", 1.0);
    add("gap_error_p99", "us", paced, "/gap_error/p99", 1.0);
    let drops = number(burst, "/host_drops")? + number(paced, "/host_drops")?;
    metrics.add("host_drops", "packets", drops);
    Ok(())
}

/// |found/rate − 1| of each complete train, ascending; `key` is the field of the found rate.
fn errors(report: &Value, key: &str, rate: Rate) -> Vec<f64> {
    let trains = report["trains"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = trains.iter().filter_map(|t| t[key].as_f64());
    let mut errors: Vec<f64> = found.map(|f| (f / rate.as_bps() as f64 - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Adds the share of all `sent` trains within [`TOLERANCE`], and percentiles of the errors of complete trains
/// (ascending); without complete trains, only the share.
fn add_errors(metrics: &mut Metrics, suffix: &str, errors: Vec<f64>, sent: f64) {
    let within = errors.partition_point(|e| *e <= TOLERANCE) as f64;
    metrics.add(&format!("share_within_2_percent{suffix}"), "1", within / sent);
    for (name, percent) in [("median", 50), ("p95", 95), ("max", 100)] {
        if let Some(error) = quantile(&errors, percent) {
            metrics.add(&format!("error_{name}{suffix}"), "1", error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The value of `name` for five trains, some of them with these rates (Mbit/s), through 10 Mbit/s.
    fn metric(rates: &[Option<f64>], name: &str) -> Option<f64> {
        let trains: Vec<_> = rates.iter().map(|r| json!({ "rate": r.map(|r| r * 1e6) })).collect();
        let errors = errors(&json!({ "trains": trains }), "rate", Rate::from_mbps(10.0));
        let mut metrics = Metrics::default();
        add_errors(&mut metrics, "", errors, 5.0);
        metrics.value(name)
    }

    #[test]
    fn incomplete_and_missing_trains_count_as_inaccurate() {
        let rates = [Some(10.1), Some(9.85), Some(12.0), None]; // the fifth is missing
        assert_eq!(metric(&rates, "share_within_2_percent"), Some(0.4));
        assert!((metric(&rates, "error_max").unwrap() - 0.2).abs() < 1e-12);
        assert!((metric(&rates, "error_median").unwrap() - 0.015).abs() < 1e-12);
    }

    #[test]
    fn without_a_complete_train_the_share_is_zero_and_there_are_no_errors() {
        assert_eq!(metric(&[None], "share_within_2_percent"), Some(0.0));
        assert_eq!(metric(&[None], "error_max"), None);
    }
}
