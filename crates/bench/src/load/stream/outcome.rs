//! The results of a run, as metrics and series.

use super::{
    super::report::Report,
    Args,
    media::{GROUP, PERIOD, STREAMS},
    network,
    video::DecodedVideo,
};
use anyhow::Context as _;
use serde_json::Value;
use std::time::Duration;
use thalweg_lab::emu::LinkTruth;

/// A viewer's frames that were due in one second.
#[derive(Clone, Debug, Default)]
pub struct FrameSecond {
    /// Frames received.
    pub came: u32,
    /// Frames decoded in time.
    pub decoded: u32,
    /// Bytes of decoded frames.
    pub bytes: u64,
    /// Frames that arrived too late.
    pub late: u32,
    /// Frames that arrived in time but depend on missing ones.
    pub broken: u32,
    /// The ages of frames on arrival.
    pub ages: Vec<Duration>,
    /// When the decoded frames were due, s.
    pub decoded_due: Vec<f64>,
}

/// A measurement of the leg.
#[derive(Clone, Copy, Debug)]
pub struct LegMeasurement {
    /// When it ended, s.
    pub at: f64,
    /// How long it took, s.
    pub took: f64,
    /// Bytes of its trains.
    pub bytes: f64,
    /// The range of the available bandwidth, bit/s; `None` if the measurement failed.
    pub found: Option<(f64, f64)>,
}

/// The results of a run.
pub struct StreamOutcome {
    /// The viewers' figures, by second.
    pub seen: Vec<[FrameSecond; 3]>,
    /// The time in s and m3's stream status at that time.
    pub views: Vec<(f64, Value)>,
    /// The measurements of m3's leg.
    pub measurements: Vec<LegMeasurement>,
    /// The bottleneck's record.
    pub truth: LinkTruth,
    /// The counters of m3's carrier.
    pub counts: Value,
    /// The emulator's 99th percentile of lateness, µs.
    pub lateness_us: f64,
    /// The CPU pressure on programs of ordinary priority, %.
    pub starved: f64,
    /// The duration of the measured part.
    pub span: Duration,
    /// The number of pictures of a real video.
    pub sent_pictures: usize,
    /// For each viewer of it, what ffmpeg decoded.
    pub shown: Vec<DecodedVideo>,
}

/// The counters of the carrier at m3 in the report.
const COUNTERS: [&str; 4] =
    ["timed_out_packets", "dropped_packets", "ridden_packets", "ridden_bytes"];

/// Builds the report.
///
/// # Errors
/// If a counter of the carrier is missing.
pub fn report(args: &Args, outcome: &StreamOutcome) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let seconds = outcome.span.as_secs_f64();
    let all = || outcome.seen.iter().flatten();
    let sum = |of: fn(&FrameSecond) -> f64| all().map(of).sum::<f64>();
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
    add_shown(args, outcome, &mut report);
    add_upswitches(args, outcome, &mut report);
    add_lost_while_free(args, outcome, &mut report);
    add_dropped(outcome, &mut report);
    add_measurements(outcome, &mut report);
    let truth = &outcome.truth;
    let (drops, passed) = (truth.cross_drops as f64, truth.cross_packets as f64);
    report.add("cross_lost", "%", 100.0 * drops / (drops + passed));
    add_counters(&outcome.counts, &mut report)?;
    report.add("lateness_p99", "us", outcome.lateness_us);
    report.add("cpu_pressure", "%", outcome.starved);
    add_series(args, outcome, &mut report);
    Ok(report)
}

/// Adds the carrier's counters.
fn add_counters(counts: &Value, report: &mut Report) -> anyhow::Result<()> {
    for name in COUNTERS {
        let count = counts[name].as_f64();
        report.add(name, "", count.with_context(|| format!("the carrier does not count {name}"))?);
    }
    Ok(())
}

/// When a picture is due that is at this position in the source of a viewer's stream, s.
fn due(number: usize, position: usize) -> f64 {
    let ahead = number * GROUP as usize / 3 + position;
    PERIOD.as_secs_f64() * ahead as f64 - super::run::LEAD.as_secs_f64()
}

/// Adds what ffmpeg decoded at the viewers: all pictures and errors, and of the pictures that were due in the measured
/// part, and in its intervals with the most cross traffic, the share that was decoded and the mean SSIM of what the
/// viewers showed.
fn add_shown(args: &Args, outcome: &StreamOutcome, report: &mut Report) {
    if outcome.shown.is_empty() {
        return;
    }
    let sum = |of: fn(&DecodedVideo) -> usize| outcome.shown.iter().map(of).sum::<usize>();
    report.add("pictures", "pictures", sum(|shown| shown.pictures.len()) as f64);
    report.add("decode_errors", "lines", sum(|shown| shown.errors) as f64);
    let (steps, end) = (network::steps(args), network::span(args).as_secs_f64());
    let most = steps.iter().map(|(_, mbps)| *mbps).fold(0.0, f64::max);
    let has_least_room = |at: f64| {
        let step = steps.iter().rev().find(|(since, _)| since.as_secs_f64() <= at);
        step.is_some_and(|(_, mbps)| *mbps == most)
    };
    let is_measured = |at: f64| (0.0..end).contains(&at);
    let mut add = |suffix: &str, counts: &dyn Fn(f64) -> bool| {
        let (mut sent, mut decoded, mut ssim) = (0.0, 0.0, Vec::new());
        for (number, shown) in outcome.shown.iter().enumerate() {
            let of = |position: &usize| {
                is_measured(due(number, *position)) && counts(due(number, *position))
            };
            let all: Vec<usize> = (0..outcome.sent_pictures).filter(of).collect();
            sent += all.len() as f64;
            decoded += all.iter().filter(|at| shown.pictures.contains(at)).count() as f64;
            ssim.extend(
                shown.ssim.iter().filter(|(position, _)| of(position)).map(|(_, ssim)| *ssim),
            );
        }
        report.add(format!("shown{suffix}"), "%", 100.0 * decoded / sent);
        report.add(format!("ssim{suffix}"), "", ssim.iter().sum::<f64>() / ssim.len() as f64);
    };
    add("", &|_| true);
    add("_least_room", &has_least_room);
    for (number, shown) in outcome.shown.iter().enumerate() {
        report.series(format!("ssim_{}", STREAMS[number]), ssim_by_second(number, shown, end));
    }
}

/// The mean SSIM of each second.
fn ssim_by_second(number: usize, shown: &DecodedVideo, end: f64) -> Vec<[f64; 2]> {
    let mean = |second: u64| {
        let is_in = |at: f64| at >= second as f64 && at < second as f64 + 1.0;
        let of = shown.ssim.iter().filter(|(position, _)| is_in(due(number, *position)));
        let all: Vec<f64> = of.map(|(_, ssim)| *ssim).collect();
        (!all.is_empty()).then(|| [second as f64, all.iter().sum::<f64>() / all.len() as f64])
    };
    (0..end as u64).filter_map(mean).collect()
}

/// The share of frames that must be decoded in a second for the streams to count as complete.
const WHOLE: f64 = 0.95;

/// The steps in which a complete second is searched for, s.
const STEP: f64 = 0.1;

/// Adds the median and worst time from the end of each peak until all streams are complete for a second. Frames count
/// at the time at which they were due. If a stream is not complete before the next peak, the time until that peak
/// counts.
fn add_upswitches(args: &Args, outcome: &StreamOutcome, report: &mut Report) {
    let mut due: Vec<f64> =
        outcome.seen.iter().flatten().flat_map(|second| second.decoded_due.clone()).collect();
    due.sort_by(f64::total_cmp);
    let count = |from: f64, to: f64| {
        let place = |at: f64| due.partition_point(|due| *due < at);
        place(to) - place(from)
    };
    let is_whole = |from: f64| count(from, from + 1.0) as f64 >= WHOLE * 90.0;
    let mut took: Vec<f64> = network::free_intervals(args)
        .into_iter()
        .map(|(since, until)| {
            let steps = ((until - since) / STEP) as usize;
            let first = (0..steps).map(|n| n as f64 * STEP).find(|after| is_whole(since + after));
            first.unwrap_or(until - since)
        })
        .collect();
    took.sort_by(f64::total_cmp);
    report.add("up", "s", took.get(took.len() / 2).copied().unwrap_or(f64::NAN));
    report.add("up_worst", "s", took.last().copied().unwrap_or(f64::NAN));
}

/// The queues of a peak have drained this long after its end, s: no frame in them is older than the latency.
const DRAINED: f64 = 1.0;

/// Adds the frames that were lost while the path was free: dropped by m3 for lack of room or lateness, or late at a
/// viewer, from [`DRAINED`] after each peak to the next, including the time before the first peak. The streams alone
/// fit there, so probing has caused these losses.
fn add_lost_while_free(args: &Args, outcome: &StreamOutcome, report: &mut Report) {
    let lost_in = |view: &(f64, Value)| dropped(&view.1, "room") + dropped(&view.1, "late");
    let dropped_between = |since: f64, until: f64| {
        let within = || outcome.views.iter().filter(|(at, _)| (since..=until).contains(at));
        let ends = within().next().zip(within().next_back());
        ends.map_or(0.0, |(first, last)| (lost_in(last) - lost_in(first)).max(0.0))
    };
    let late = |since: f64, until: f64| {
        let seconds = outcome.seen.iter().enumerate();
        let within = seconds.filter(|(at, _)| *at as f64 >= since && *at as f64 + 1.0 <= until);
        within.flat_map(|(_, second)| second).map(|second| f64::from(second.late)).sum::<f64>()
    };
    let first = network::first_peak(args).map(|until| (0.0, until));
    let free = network::free_intervals(args);
    let after = free.into_iter().map(|(since, until)| (since + DRAINED, until));
    // The streams and their counters end with the last interval.
    let lost = first
        .into_iter()
        .chain(after)
        .map(|(since, until)| dropped_between(since, until - 1.0) + late(since, until - 1.0));
    report.add("lost_while_free", "frames", lost.sum());
}

/// The frames that the legs of this status have dropped for this reason.
fn dropped(status: &Value, why: &str) -> f64 {
    let legs = status["streams"].as_array().into_iter().flatten();
    let legs = legs.flat_map(|stream| stream["legs"].as_array().into_iter().flatten());
    let counts = legs.flat_map(|leg| leg["dropped"][why].as_array().into_iter().flatten());
    counts.filter_map(Value::as_f64).sum()
}

/// Adds the frames that m3's legs dropped, by reason.
fn add_dropped(outcome: &StreamOutcome, report: &mut Report) {
    // The streams may have ended before the last view.
    let has_legs = |view: &&(f64, Value)| view.1["streams"][0]["legs"][0].is_object();
    let Some((_, last)) = outcome.views.iter().rev().find(has_legs) else { return };
    for why in ["level", "late", "room", "chain"] {
        report.add(format!("dropped_{why}"), "frames", dropped(last, why));
    }
}

fn add_measurements(outcome: &StreamOutcome, report: &mut Report) {
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

/// Adds the series of Fig. 17 to 19.
fn add_series(args: &Args, outcome: &StreamOutcome, report: &mut Report) {
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
        // Stacked as in the paper.
        let stacked = |(at, seconds): (usize, &[FrameSecond; 3])| {
            let below: u32 = seconds[..=number].iter().map(|second| second.decoded).sum();
            [at as f64, f64::from(below)]
        };
        let stacked = outcome.seen.iter().enumerate().map(stacked).collect();
        report.series(format!("fps_{}", STREAMS[number]), stacked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_probe::carrier::RiderCounts;

    #[test]
    fn the_carriers_counters_are_found_and_a_missing_one_is_an_error() {
        let counts = RiderCounts { ridden_packets: 7, ridden_bytes: 900, ..RiderCounts::default() };
        let mut counts = serde_json::to_value(counts).unwrap();
        let mut report = Report::default();
        add_counters(&counts, &mut report).unwrap();
        assert_eq!(report.value("ridden_bytes").and_then(Value::as_f64), Some(900.0));
        counts.as_object_mut().unwrap().remove("ridden_bytes");
        let why = add_counters(&counts, &mut report).unwrap_err();
        assert!(why.to_string().contains("ridden_bytes"), "{why}");
    }
}
