//! `probe fairness`: how two cubic flows share a link.

use super::{
    metrics::{Metrics, number},
    scene::Scene,
    tcp::{check, flow, topology},
    theory::cubic_period,
};
use anyhow::{Context, bail};
use serde_json::Value;
use std::time::Duration;
use thalweg_units::{Rate, format_duration, parse_duration};

/// The smallest share of the smaller flow that counts as fair.
const FAIR: f64 = 0.4;
/// The shortest end of the run that shows lasting fairness: one or two losses of each flow.
const TAIL: Duration = Duration::from_secs(10);

/// The help text about the output of `probe fairness`.
const METRICS: &str = "\
Metrics, of the time after --warmup:
  share_1, share_2        each flow's part of what both received
  share_min               the smaller of these
  share_min_first_half, share_min_second_half
                          the smaller flow's part in each half of that time
  jain_index              Jain's index of both goodputs: 1 is equal, 0.5 one flow alone;
                          0.99 is 45:55, 0.96 is 40:60
  utilisation             both goodputs / --rate
Of the whole run:
  fair_from               the first second from which the smaller flow has at least 40 % until
                          the end, at least 10 s before the end; if there is none, --for
  cubic_period            K of one flow alone, s; with two each has half the window and 0.79 of K";

/// Arguments of `probe fairness`.
///
/// Cubic takes K = ∛(0.3·W/0.4) s to regain a window of W segments (RFC 9438
/// §4.2). By default each flow has W = 17, K = 2.3 s, so that a minute holds
/// enough congestion events for the shares to even out; at 50 Mbit/s and 40 ms
/// it is 5 s, and 40 s were seen to end anywhere from 36:64 to 50:50.
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Rate of the link
    #[arg(long, default_value = "10 Mbit/s")]
    rate: Rate,
    /// Round-trip time of both paths
    #[arg(long, default_value = "20 ms", value_parser = parse_duration)]
    rtt: Duration,
    /// Duration of the flows
    #[arg(long = "for", value_name = "TIME", default_value = "60 s", value_parser = parse_duration)]
    duration: Duration,
    /// Time at the start that is not counted, for the flows to converge
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = parse_duration)]
    warmup: Duration,
}

/// Bytes received by each of two flows in bins of equal width.
struct Bins {
    /// The bins of each flow, the same number for both.
    flows: [Vec<f64>; 2],
    width: f64,
}

impl Bins {
    /// Reads the bins from the reports of two runs of `tcp-source --series`.
    fn new(reports: &[Value; 2]) -> anyhow::Result<Self> {
        let series = |report: &Value| -> anyhow::Result<Vec<f64>> {
            let bins = report.pointer("/flows/0/series").and_then(Value::as_array);
            let bins = bins.context("the report of a flow in the lab has no series")?;
            Ok(bins.iter().filter_map(Value::as_f64).collect())
        };
        let mut flows = [series(&reports[0])?, series(&reports[1])?];
        let common = flows[0].len().min(flows[1].len());
        flows.iter_mut().for_each(|f| f.truncate(common));
        Ok(Self { flows, width: number(&reports[0], "/bin_s")? })
    }

    /// The time that the bins cover, s.
    fn length(&self) -> f64 {
        self.flows[0].len() as f64 * self.width
    }

    /// The smaller flow's share of the bytes received from `from` to `to`, s; `None` if there were none.
    fn share_min(&self, from: f64, to: f64) -> Option<f64> {
        let bin = |t: f64| ((t / self.width).round() as usize).min(self.flows[0].len());
        let sum = |flow: &Vec<f64>| flow.get(bin(from)..bin(to)).map(|b| b.iter().sum::<f64>());
        let (a, b) = (sum(&self.flows[0])?, sum(&self.flows[1])?);
        (a + b > 0.0).then(|| a.min(b) / (a + b))
    }

    /// The first whole second from which to the end the smaller flow's share is at least [`FAIR`]; the whole length if
    /// there is none up to [`TAIL`] before the end.
    fn fair_from(&self) -> f64 {
        let last = (self.length() - TAIL.as_secs_f64()).max(0.0) as u32;
        let is_fair = |t: &f64| self.share_min(*t, self.length()).is_some_and(|s| s >= FAIR);
        (0..=last).map(f64::from).find(is_fair).unwrap_or(self.length())
    }
}

/// Runs two flows over the link, each between two hosts of its own.
///
/// # Errors
/// If the lab or a tool in it fails.
pub fn run(args: &Args) -> anyhow::Result<Metrics> {
    check(args.duration, args.warmup)?;
    let scene = Scene::start(&topology(2, args.rate, args.rtt))?;
    let sinks = [scene.serve("b1", "tcp-sink")?, scene.serve("b2", "tcp-sink")?];
    let (duration, warmup) = (format_duration(args.duration), format_duration(args.warmup));
    let start = |(host, i): (&str, usize)| {
        let flow = flow(&sinks[i].address, &duration, &warmup);
        scene.spawn(host, &[&flow[..], &["--series"]].concat())
    };
    let flows = [start(("a1", 0))?, start(("a2", 1))?];
    scene.warm_up(args.warmup)?;
    let [first, second] = flows;
    let reports = [first.report()?, second.report()?];
    let mut metrics = Metrics::default();
    add_shares(&mut metrics, &reports, args.rate)?;
    add_convergence(&mut metrics, &Bins::new(&reports)?, args.warmup.as_secs_f64());
    let period = cubic_period(args.rate, args.rtt).as_secs_f64();
    metrics.add("cubic_period", "s", period);
    scene.add_truth(&mut metrics)?;
    Ok(metrics)
}

/// Adds the shares that follow from the goodputs that the tools report.
fn add_shares(metrics: &mut Metrics, reports: &[Value; 2], rate: Rate) -> anyhow::Result<()> {
    let goodput = |report| number(report, "/goodput/value");
    let rates = [goodput(&reports[0])?, goodput(&reports[1])?];
    let (sum, squares) = (rates[0] + rates[1], rates[0].powi(2) + rates[1].powi(2));
    if sum <= 0.0 {
        bail!("neither flow delivered any data");
    }
    metrics.add("share_1", "1", rates[0] / sum);
    metrics.add("share_2", "1", rates[1] / sum);
    metrics.add("share_min", "1", rates[0].min(rates[1]) / sum);
    // Jain, Chiu, Hawe 1984: (Σx)²/(n·Σx²).
    metrics.add("jain_index", "1", sum * sum / (2.0 * squares));
    metrics.add("utilisation", "1", sum / rate.as_bps() as f64);
    Ok(())
}

/// Adds metrics of whether the shares even out over time.
fn add_convergence(metrics: &mut Metrics, bins: &Bins, warmup: f64) {
    let (end, middle) = (bins.length(), f64::midpoint(warmup, bins.length()));
    for (half, from, to) in [("first", warmup, middle), ("second", middle, end)] {
        if let Some(share) = bins.share_min(from, to) {
            metrics.add(&format!("share_min_{half}_half"), "1", share);
        }
    }
    metrics.add("fair_from", "s", bins.fair_from());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A run of 40 s in bins of half a second; the first flow has 3 of 10 bytes in the first `unfair` seconds, then 5.
    fn run(unfair: usize) -> Bins {
        let at = |i: usize| if i < 2 * unfair { 3 } else { 5 };
        let report = |series: Vec<usize>| json!({ "bin_s": 0.5, "flows": [{ "series": series }] });
        let (a, b): (Vec<_>, Vec<_>) = (0..80).map(|i| (at(i), 10 - at(i))).unzip();
        Bins::new(&[report(a), report(b)]).unwrap()
    }

    #[test]
    fn shares_cover_the_given_interval() {
        let bins = run(20);
        assert_eq!(bins.length(), 40.0);
        assert_eq!(bins.share_min(0.0, 20.0), Some(0.3));
        assert_eq!(bins.share_min(20.0, 40.0), Some(0.5));
        assert_eq!(bins.share_min(0.0, 40.0), Some(0.4));
        assert_eq!(bins.share_min(40.0, 50.0), None);
    }

    #[test]
    fn fair_from_needs_a_fair_rest_of_at_least_ten_seconds() {
        assert_eq!(run(0).fair_from(), 0.0);
        // The share from t on is (0.3·(30 − t) + 0.5·10) / (40 − t): 0.4 at t = 20.
        assert_eq!(run(30).fair_from(), 20.0);
        // The share from 30 s on is (0.3·6 + 0.5·4) / 10 = 0.38.
        assert_eq!(run(36).fair_from(), 40.0);
    }

    #[test]
    fn halves_divide_the_time_after_the_warm_up() {
        let mut metrics = Metrics::default();
        add_convergence(&mut metrics, &run(25), 10.0);
        assert_eq!(metrics.value("share_min_first_half"), Some(0.3));
        assert_eq!(metrics.value("share_min_second_half"), Some(0.5));
    }
}
