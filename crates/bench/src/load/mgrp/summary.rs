//! Reports all copies as metrics and series.

use super::{
    super::report::Report,
    Args,
    outcome::{CopyRun, mean},
};
use thalweg_lab::stats::Stats;

/// A source below this share of its rate is short (Fig. 9, 12).
const ENOUGH: f64 = 0.95;

/// The paper's completion time, s (Fig. 10).
const PAPER: f64 = 30.7;

/// The whole report: metrics are means over the copies, distributions cover all copies, series are of the first copy.
pub fn report(args: &Args, copies: &[CopyRun], (stats, starved): (&Stats, f64)) -> Report {
    let mut report = Report::default();
    add_means(args, copies, &mut report);
    add_rounds(copies, &mut report);
    report.add("lateness_p99", "us", stats.lateness.p99_us as f64);
    // The machine's own pressure is only known as the mean of the whole run, which hides nodes that starve for a while.
    report.add("cpu_pressure", "%", starved);
    report.series("source_cdf", cdf(copies.iter().flat_map(|copy| copy.source.clone()).collect()));
    if let Some(first) = copies.first() {
        let source = first.source.iter().enumerate().map(|(at, rate)| [at as f64, *rate]);
        // A plot selects series by a pattern of names, so these share a prefix.
        report.series("mbps_source", source.collect());
        report.series("mbps_cross", first.cross());
        report.series("mbps_overhead", first.overhead());
        report.series("probe_sent", first.sent());
        report.series("probe_lost_bare", first.lost(false));
        report.series("probe_lost_ridden", first.lost(true));
    }
    report
}

fn add_means(args: &Args, copies: &[CopyRun], report: &mut Report) {
    let least = args.source.map(|rate| rate.as_mbps() * ENOUGH);
    let all: Vec<_> = copies.iter().map(|copy| copy.figures(least)).collect();
    for (at, (name, unit, _)) in all.first().into_iter().flatten().enumerate() {
        let values: Vec<f64> = all.iter().filter_map(|one| Some(one.get(at)?.2)).collect();
        report.add(*name, unit, mean(&values));
    }
}

/// Reports the completion of Pathload's measurements.
fn add_rounds(copies: &[CopyRun], report: &mut Report) {
    let rounds = || copies.iter().flat_map(|copy| &copy.rounds);
    let all = rounds().count();
    if all == 0 {
        return;
    }
    let mut took: Vec<f64> = rounds().filter_map(|round| round.took).collect();
    took.sort_by(f64::total_cmp);
    let within = took.iter().filter(|took| **took <= PAPER).count();
    let share = |count: usize| 100.0 * count as f64 / all as f64;
    report.add("rounds", "measurements", all as f64 / copies.len() as f64);
    report.add("never", "%", share(all - took.len()));
    report.add("in_time", "%", share(within));
    for percent in [25, 50, 75] {
        // Percentiles (nearest rank) of all measurements, including those that never ended.
        let at = (percent * all).div_ceil(100).max(1) - 1;
        report.add(format!("q{percent}"), "s", took.get(at).copied().unwrap_or(f64::NAN));
    }
    report.series("completion", steps(&took, all));
}

/// The cumulative distribution: sorted values and the share of values up to each, 0 to 1.
fn cdf(mut values: Vec<f64>) -> Vec<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let all = values.len();
    steps(&values, all)
}

/// The cumulative distribution of `all` values of which only `sorted` are known.
fn steps(sorted: &[f64], all: usize) -> Vec<[f64; 2]> {
    let share = |count: usize| count as f64 / all as f64;
    let both = |(at, value): (usize, &f64)| [[*value, share(at)], [*value, share(at + 1)]];
    sorted.iter().enumerate().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_with_unknown_values_ends_below_one() {
        assert_eq!(steps(&[5.0, 7.0], 4), [[5.0, 0.0], [5.0, 0.25], [7.0, 0.25], [7.0, 0.5]]);
        assert_eq!(cdf(vec![2.0, 1.0]).last(), Some(&[2.0, 1.0]));
        assert!(cdf(Vec::new()).is_empty());
    }
}
