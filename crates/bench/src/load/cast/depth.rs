//! How rates along a chain fall with depth, as a power law and as an exponential (Fig. 18, 19).

use super::{super::report::Report, record::CastRecord};

/// The steady part of a transfer: between these shares of the object it neither starts nor ends.
pub const STEADY: (f64, f64) = (0.15, 0.85);

/// A straight line fitted to points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FittedLine {
    slope: f64,
    /// The coefficient of determination, R².
    fits: f64,
}

/// Reports the rates by depth, the loss per hop, and how well the two laws fit. `hosts` are the receivers in order,
/// from the first on.
pub fn add(hosts: &[String], record: &CastRecord, report: &mut Report) {
    let rate = |(at, host): (usize, &String)| {
        Some((at as f64 + 1.0, record.steady_rate(host, STEADY)? * 1e-6))
    };
    let rates: Vec<(f64, f64)> = hosts.iter().enumerate().filter_map(rate).collect();
    for (depth, mbps) in &rates {
        report.add(format!("steady/{depth}"), "Mbit/s", *mbps);
    }
    let (Some(first), Some(last)) = (rates.first(), rates.last()) else { return };
    report.add("steady_first", "Mbit/s", first.1);
    report.add("steady_last", "Mbit/s", last.1);
    report.add("steady_share", "ratio", last.1 / first.1);
    let hops = last.0 - first.0;
    if hops > 0.0 {
        let kept = (last.1 / first.1).powf(1.0 / hops);
        report.add("lost_per_hop", "%", (1.0 - kept) * 100.0);
    }
    let logs: Vec<(f64, f64)> = rates.iter().map(|(depth, mbps)| (*depth, mbps.ln())).collect();
    if let Some(line) = fit_line(&logs) {
        report.add("exponential", "% a hop", (1.0 - line.slope.exp()) * 100.0);
        report.add("exponential_fit", "R²", line.fits);
    }
    let both: Vec<(f64, f64)> = logs.iter().map(|(depth, log)| (depth.ln(), *log)).collect();
    if let Some(line) = fit_line(&both) {
        report.add("power", "exponent", -line.slope);
        report.add("power_fit", "R²", line.fits);
    }
}

/// Fits a line by least squares; `None` for fewer than three points.
fn fit_line(points: &[(f64, f64)]) -> Option<FittedLine> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0 / n, sum.1 + p.1 / n));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (xx, yy) = (sum(&|p| (p.0 - x).powi(2)), sum(&|p| (p.1 - y).powi(2)));
    let xy = sum(&|p| (p.0 - x) * (p.1 - y));
    let fits = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    (xx > 0.0).then_some(FittedLine { slope: xy / xx, fits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_to_three_points_or_more() {
        let found = fit_line(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]).unwrap();
        assert!((found.slope - 2.0).abs() < 1e-12 && (found.fits - 1.0).abs() < 1e-12);
        assert!(fit_line(&[(1.0, 5.0), (2.0, 7.0)]).is_none());
        assert!(fit_line(&[(1.0, 0.0), (2.0, 3.0), (3.0, 0.0)]).unwrap().fits < 0.1);
    }

    #[test]
    fn the_loss_per_hop_is_reported() {
        let mut record = CastRecord::default();
        record.add_line(r#"{"event":"started","bytes":1000}"#, 0.0).unwrap();
        for at in 0..=20 {
            let held = |share: f64| (f64::from(at) * 100.0 * share).min(1000.0);
            let one = |name: &str, held: f64| {
                format!(
                    r#"{{"name":"{name}","held_bytes":{held},"rate_bps":0,"missed_symbols":0,"ring_peak_bytes":0,"parents":[]}}"#
                )
            };
            let both = format!("{},{}", one("a", held(1.0)), one("b", held(0.9)));
            let line = format!(
                r#"{{"event":"progress","seconds":{at},"served_bytes":0,"ring_peak_bytes":0,"receivers":[{both}]}}"#
            );
            record.add_line(&line, f64::from(at)).unwrap();
        }
        let mut report = Report::default();
        add(&["a".to_owned(), "b".to_owned()], &record, &mut report);
        let lost = report.value("lost_per_hop").and_then(serde_json::Value::as_f64).unwrap();
        assert!((lost - 10.0).abs() < 1e-6, "{lost}");
    }
}
