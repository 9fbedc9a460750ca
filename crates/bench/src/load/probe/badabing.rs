//! Compares Badabing with the emulator's record of loss episodes.

use super::{super::report::Report, drive::drive, probe_lab::ProbeLab};
use anyhow::Context as _;
use std::time::Duration;
use thalweg_lab::emu::LinkTruth;
use thalweg_measure::estimators::{Badabing, BadabingSettings, Finding, Quantity};
use thalweg_probe::client::NodeSession;
use thalweg_units::parse_duration;

/// The probability that an experiment begins at a slot.
const CHANCE: f64 = 0.5;

/// The rate of the link and of cross traffic outside and within bursts, Mbit/s.
const RATE: f64 = 10.0;
const QUIET: f64 = 4.0;
const BURST: f64 = 16.0;

/// Arguments of `thalweg-bench load probe badabing`.
#[derive(clap::Args)]
pub struct Args {
    /// Time for which each burst of cross traffic overflows the queue
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_duration)]
    burst: Duration,
    /// Interval between bursts
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    every: Duration,
    /// Duration of the measurement
    #[arg(long = "for", value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    span: Duration,
    /// Seed of the start times of the tool's experiments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the measurement and prints the report.
///
/// # Errors
/// When a part does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut lab = ProbeLab::new(&topology(args))?;
    lab.mesh()?;
    let mut node = NodeSession::open(lab.service()?, true)?.without_riders();
    let mut tool = Badabing::new(BadabingSettings::new(CHANCE, args.span, args.seed));
    let began = lab.now();
    let driven = drive(&mut tool, &mut node, args.span * 3 + Duration::from_secs(30))?;
    let (truth, lateness) = lab.truth(false)?;
    let recorded = RecordedLoss::from_truth(&truth, (began, lab.now()));
    let mut report = Report::default();
    add_results(&driven.findings, &recorded, &mut report);
    report.add("doubted", "%", 100.0 * f64::from(u8::from(!driven.doubts.is_empty())));
    report.add("took", "s", driven.took.as_secs_f64());
    report.add("lateness_p99", "us", lateness);
    report.print().context("cannot print the report")
}

fn topology(args: &Args) -> String {
    let quiet = args.every.saturating_sub(args.burst).as_millis();
    format!(
        "seed = {}\n[host.a]\n[host.b]\n[link.way]\nrate = \"{RATE} Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"50 kB\"\n\
         [[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"way\"]\n\
         [[cross]]\nlink = \"way.fwd\"\nkind = \"steps\"\nsize = \"1000 B\"\nevery = \"{} ms\"\n\
         steps = [[\"0 ms\", \"{QUIET} Mbit/s\"], [\"{quiet} ms\", \"{BURST} Mbit/s\"]]\n",
        args.seed,
        args.every.as_millis(),
    )
}

/// The record of a time span.
#[derive(Clone, Copy, Debug)]
struct RecordedLoss {
    /// The share of the time in which packets were dropped.
    frequency: f64,
    /// The mean duration of an episode, s.
    duration: f64,
    episodes: usize,
}

impl RecordedLoss {
    fn from_truth(truth: &LinkTruth, (from, to): (f64, f64)) -> Self {
        let within = |start: f64, end: f64| start >= from && end <= to;
        let all = truth.episodes.iter().filter(|one| within(one.start_s, one.end_s));
        let lengths: Vec<f64> = all.map(|one| one.end_s - one.start_s).collect();
        let (sum, count) = (lengths.iter().sum::<f64>(), lengths.len());
        Self { frequency: sum / (to - from), duration: sum / count as f64, episodes: count }
    }
}

fn add_results(findings: &[Finding], recorded: &RecordedLoss, report: &mut Report) {
    let of = |quantity: Quantity| {
        findings.iter().find(|found| found.of == quantity).map_or(f64::NAN, |found| found.value)
    };
    let (frequency, duration) = (of(Quantity::LossFrequency), of(Quantity::LossDuration));
    report.add("frequency", "%", 100.0 * frequency);
    report.add("frequency_truth", "%", 100.0 * recorded.frequency);
    report.add("frequency_off", "%", 100.0 * (frequency / recorded.frequency - 1.0).abs());
    report.add("duration", "ms", 1e3 * duration);
    report.add("duration_truth", "ms", 1e3 * recorded.duration);
    report.add("duration_off", "%", 100.0 * (duration / recorded.duration - 1.0).abs());
    report.add("episodes", "episodes", recorded.episodes as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_lab::{emu::LossEpisode, topology::Topology};

    #[test]
    fn only_episodes_within_the_time_count() {
        let episode = |start_s: f64, end_s: f64| LossEpisode { start_s, end_s, drops: 9 };
        let episodes =
            vec![episode(0.5, 0.9), episode(2.0, 2.2), episode(5.0, 5.4), episode(9.9, 10.1)];
        let truth = LinkTruth { episodes, ..LinkTruth::default() };
        let recorded = RecordedLoss::from_truth(&truth, (1.0, 10.0));
        assert_eq!(recorded.episodes, 2);
        assert!(
            (recorded.frequency - 0.6 / 9.0).abs() < 1e-9 && (recorded.duration - 0.3).abs() < 1e-9
        );
        let mut report = Report::default();
        add_results(&[Finding::plain(Quantity::LossFrequency, 0.06)], &recorded, &mut report);
        let off = report.value("frequency_off").and_then(serde_json::Value::as_f64).unwrap();
        assert!((off - 10.0).abs() < 1e-6, "{off}");
        assert!(report.value("duration").is_none());
    }

    #[test]
    fn bursts_exceed_the_rate_of_the_link() {
        let ms = Duration::from_millis;
        let args = Args { burst: ms(300), every: ms(3000), span: ms(9000), seed: 1 };
        let topology = Topology::from_toml(&topology(&args)).unwrap();
        assert_eq!(topology.cross[0].steps.len(), 2);
        assert!(topology.cross[0].steps[1].1.as_mbps() > RATE);
        assert!(topology.resolve().is_ok());
    }
}
