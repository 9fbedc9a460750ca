//! What came of a run, as metrics and series.

use super::{super::report::Report, Args, network};
use serde_json::Value;
use std::time::Duration;
use thalweg_lab::emu::LinkTruth;

/// A viewer's frames of a second, by when they were to be sent.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Frames that came.
    pub came: u32,
    /// Those that could be decoded, in time.
    pub decoded: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Those that came too late.
    pub late: u32,
    /// Those that came in time and refer to what did not.
    pub broken: u32,
    /// How old they were as they came.
    pub ages: Vec<Duration>,
}

/// A measurement of the leg.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// When it ended, s.
    pub at: f64,
    /// How long it took, s.
    pub took: f64,
    /// Bytes of its trains.
    pub bytes: f64,
    /// Bit/s between which the free rate is; none: nothing was found out.
    pub found: Option<(f64, f64)>,
}

/// A run.
pub struct Outcome {
    /// Of each viewer, by second.
    pub seen: Vec<[Second; 3]>,
    /// What m3 said of its streams, and when, s.
    pub views: Vec<(f64, Value)>,
    /// Of its leg.
    pub measurements: Vec<Measurement>,
    /// The bottleneck's record.
    pub truth: LinkTruth,
    /// What m3's carrier counted.
    pub counts: Value,
    /// The emulator's.
    pub lateness_us: f64,
    /// Of programs of ordinary priority, %.
    pub starved: f64,
    /// How long it was.
    pub span: Duration,
    /// Of each viewer's file: pictures that ffmpeg decoded, and its complaints.
    pub decoded: Vec<(usize, usize)>,
}

/// The report.
pub fn report(args: &Args, outcome: &Outcome) -> Report {
    let mut report = Report::default();
    let seconds = outcome.span.as_secs_f64();
    let all = || outcome.seen.iter().flatten();
    let sum = |of: fn(&Second) -> f64| all().map(of).sum::<f64>();
    report.add("rate", "Mbit/s", sum(|s| s.bytes as f64) * 8e-6 / seconds);
    report.add("fps", "frames/s", sum(|s| f64::from(s.decoded)) / seconds);
    report.add("came", "frames/s", sum(|s| f64::from(s.came)) / seconds);
    report.add("late", "frames", sum(|s| f64::from(s.late)));
    report.add("broken", "frames", sum(|s| f64::from(s.broken)));
    let mut ages: Vec<Duration> = all().flat_map(|second| second.ages.clone()).collect();
    ages.sort_unstable();
    for percent in [50, 99] {
        let at = (percent * ages.len()).div_ceil(100).saturating_sub(1);
        let age = ages.get(at).map_or(f64::NAN, Duration::as_secs_f64);
        report.add(format!("age_p{percent}"), "ms", age * 1e3);
    }
    if !outcome.decoded.is_empty() {
        let sum = |of: fn(&(usize, usize)) -> usize| outcome.decoded.iter().map(of).sum::<usize>();
        report.add("pictures", "pictures", sum(|one| one.0) as f64);
        report.add("decode_errors", "lines", sum(|one| one.1) as f64);
    }
    add_upswitches(args, outcome, &mut report);
    add_dropped(outcome, &mut report);
    add_measurements(outcome, &mut report);
    let truth = &outcome.truth;
    let (drops, passed) = (truth.cross_drops as f64, truth.cross_packets as f64);
    report.add("cross_lost", "%", 100.0 * drops / (drops + passed));
    let carried = |name: &str| outcome.counts[name].as_f64().unwrap_or(f64::NAN);
    for name in ["timed_out_packets", "dropped_packets", "carried_packets", "carried_bytes"] {
        report.add(name, "", carried(name));
    }
    report.add("lateness_p99", "us", outcome.lateness_us);
    report.add("cpu_pressure", "%", outcome.starved);
    add_series(args, outcome, &mut report);
    report
}

/// Of all frames so much is the whole picture again.
const WHOLE: f64 = 0.95;

/// From the end of each peak to the first second in which all streams are whole again: median and worst. The seconds are those in which
/// frames were to be sent.
fn add_upswitches(args: &Args, outcome: &Outcome, report: &mut Report) {
    let steps = network::steps(args);
    let ends = steps.windows(2).filter(|pair| pair[1].1 < pair[0].1);
    let whole = |at: usize| {
        let decoded: u32 = outcome.seen[at].iter().map(|second| second.decoded).sum();
        f64::from(decoded) >= WHOLE * 90.0
    };
    let mut took: Vec<f64> = ends
        .map(|pair| {
            let end = pair[1].0.as_secs_f64();
            let first = (end as usize..outcome.seen.len()).find(|at| whole(*at));
            first.map_or(f64::INFINITY, |at| (at as f64 - end).max(0.0))
        })
        .collect();
    took.sort_by(f64::total_cmp);
    report.add("up", "s", took.get(took.len() / 2).copied().unwrap_or(f64::NAN));
    report.add("up_worst", "s", took.last().copied().unwrap_or(f64::NAN));
}

/// Frames that m3's legs left out, by reason.
fn add_dropped(outcome: &Outcome, report: &mut Report) {
    // At the very end the streams may be over already.
    let has_legs = |view: &&(f64, Value)| view.1["streams"][0]["legs"][0].is_object();
    let Some((_, last)) = outcome.views.iter().rev().find(has_legs) else { return };
    for why in ["level", "late", "room", "chain"] {
        let legs = last["streams"].as_array().into_iter().flatten();
        let legs = legs.flat_map(|stream| stream["legs"].as_array().into_iter().flatten());
        let counts = legs.flat_map(|leg| leg["dropped"][why].as_array().into_iter().flatten());
        let sum: f64 = counts.filter_map(Value::as_f64).sum();
        report.add(format!("dropped_{why}"), "frames", sum);
    }
}

fn add_measurements(outcome: &Outcome, report: &mut Report) {
    let found = || outcome.measurements.iter().filter(|one| one.found.is_some());
    report.add("measured", "measurements", found().count() as f64);
    report.add(
        "failed",
        "measurements",
        outcome.measurements.len() as f64 - found().count() as f64,
    );
    let mut took: Vec<f64> = found().map(|one| one.took).collect();
    took.sort_by(f64::total_cmp);
    report.add("took", "s", took.get(took.len() / 2).copied().unwrap_or(f64::NAN));
    let bytes: f64 = outcome.measurements.iter().map(|one| one.bytes).sum();
    report.add("probes", "Mbit/s", bytes * 8e-6 / outcome.span.as_secs_f64());
}

/// Fig. 17 to 19.
fn add_series(args: &Args, outcome: &Outcome, report: &mut Report) {
    let steps = network::steps(args);
    let cross = |at: f64| {
        let since = steps.iter().rev().find(|(since, _)| since.as_secs_f64() <= at);
        since.map_or(0.0, |(_, mbps)| *mbps)
    };
    let seconds = 0..outcome.seen.len();
    let room = seconds.map(|at| [at as f64, network::RATE - cross(at as f64)]).collect();
    report.series("mbps_room", room);
    let known = outcome.views.iter().filter_map(|(at, view)| {
        let legs = view["streams"][0]["legs"].as_array()?.first()?;
        Some([*at, legs["estimate"][0].as_f64()? / 1e6])
    });
    report.series("mbps_known", known.collect());
    let found = outcome.measurements.iter().filter_map(|one| {
        let (low, high) = one.found?;
        Some([one.at, f64::midpoint(low, high) / 1e6])
    });
    report.series("mbps_found", found.collect());
    for number in 0..3 {
        // Stacked, as the paper draws them.
        let stacked = |(at, seconds): (usize, &[Second; 3])| {
            let below: u32 = seconds[..=number].iter().map(|second| second.decoded).sum();
            [at as f64, f64::from(below)]
        };
        let stacked = outcome.seen.iter().enumerate().map(stacked).collect();
        report.series(format!("fps_{}", super::media::STREAMS[number]), stacked);
    }
}
