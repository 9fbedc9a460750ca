//! UKAIRO §2.1 and §2.2.1: how many paths gain, for how long, and at what latency.

use super::{Report, best_relay, gain, pairs};
use crate::{input::Input, matrix::Matrix, planetlab::PlanetLab, random, stats};

/// A detour is worth using from a gain of 20 % and 1 Mbit/s (§2.1).
const WORTH: (f64, f64) = (0.2, 1.0);
/// Nodes whose detours are followed over days (§2.1).
const FOLLOWED: usize = 100;

/// The share of paths that gain, latencies, and how detours last.
pub fn compute(input: &Input, seed: u64) -> Report {
    let mut report = Report::default();
    let nodes: Vec<usize> = (0..input.inside).collect();
    let found = best_detours(&input.planned, &nodes);
    benefit(input, &found, &mut report);
    latency(input, &found, &mut report);
    match &input.days {
        Some(days) => longevity(days.clone(), seed, &mut report),
        None => later(input, &found, &mut report),
    }
    report
}

/// A path's best detour.
struct BestDetour {
    i: usize,
    j: usize,
    best: Option<(usize, f64)>,
}

fn best_detours(rates: &Matrix, nodes: &[usize]) -> Vec<BestDetour> {
    let known = pairs(nodes).filter(|&(i, j)| rates.get(i, j).is_some());
    known.map(|(i, j)| BestDetour { i, j, best: best_relay(rates, nodes, i, j) }).collect()
}

fn benefit(input: &Input, found: &[BestDetour], report: &mut Report) {
    let worth = |f: &BestDetour| {
        let (_, gain) = f.best.unwrap_or((0, 0.0));
        let more = gain * input.planned.raw(f.i, f.j);
        if gain >= WORTH.0 && more >= WORTH.1 { 1.0 } else { 0.0 }
    };
    let worth: Vec<f64> = found.iter().map(worth).collect();
    report.add("paths_that_gain", "%", 100.0 * stats::mean(&worth));
    let direct: Vec<f64> = found.iter().map(|f| input.planned.raw(f.i, f.j)).collect();
    report.add("paths_below_limit", "%", stats::percent(&direct, |rate| rate < input.limit));
    report.add("direct_median", "Mbit/s", stats::median(&direct));
    let gains: Vec<f64> = found.iter().map(|f| 100.0 * f.best.map_or(0.0, |b| b.1)).collect();
    report.add("best_gain_median", "%", stats::median(&gains));
}

fn latency(input: &Input, found: &[BestDetour], report: &mut Report) {
    let rtt = &input.world.rtt;
    let change = |f: &BestDetour| {
        let (l, _) = f.best?;
        let direct = rtt.get(f.i, f.j)?;
        Some((rtt.get(f.i, l)? + rtt.get(l, f.j)? - direct, direct))
    };
    let changes: Vec<(f64, f64)> = found.iter().filter_map(change).collect();
    let ms: Vec<f64> = changes.iter().map(|(more, _)| *more).collect();
    let relative: Vec<f64> = changes.iter().map(|(more, direct)| 100.0 * more / direct).collect();
    report.add("latency_lower", "%", stats::percent(&ms, |more| more < 0.0));
    report.add("latency_more", "%", stats::median(&relative));
    report.add("latency_more_ms", "ms", stats::median(&ms));
}

/// The validity of one day's best detours 1, 14 and 28 days later.
fn longevity(mut days: PlanetLab, seed: u64, report: &mut Report) {
    let mut random = random::stream(seed, "followed", 0);
    let all = days.inside();
    let nodes = random::sample(&mut random, all, FOLLOWED.min(all));
    let found = best_detours(&days.measured(), &nodes);
    for (after, name) in [(1, "1"), (14, "14"), (28, "28")] {
        days.advance(after - days.day());
        validity(&days.measured(), &found, name, report);
    }
}

/// The validity of the best detours in the planning data, in the data by which plans are judged.
fn later(input: &Input, found: &[BestDetour], report: &mut Report) {
    if !input.planned.known().eq(input.judged.known()) {
        validity(&input.judged, found, "later", report);
    }
}

/// A detour is valid if it still gains. The median is over all detours that were found: over only those that are still
/// valid, the paper's shares and medians would say that the spread of gains shrinks from day to day.
fn validity(now: &Matrix, found: &[BestDetour], name: &str, report: &mut Report) {
    let gains = found.iter().filter_map(|f| Some(gain(now, f.i, f.best?.0, f.j)));
    let gains: Vec<f64> = gains.filter(|gain| !gain.is_nan()).collect();
    report.add(format!("valid_{name}"), "%", stats::percent(&gains, |gain| gain > 0.0));
    report.add(format!("gain_{name}"), "%", 100.0 * stats::median(&gains));
}
