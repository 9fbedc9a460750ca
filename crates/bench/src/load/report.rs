//! The report that a client prints.

use serde_json::{Map, Value, json};
use std::{
    io::{self, Write as _},
    time::Duration,
};

/// Metrics by name, in the format that `output = "metrics"` of docs/experiments.md reads, texts for an arm's labels,
/// and series.
#[derive(Default)]
pub struct Report {
    metrics: Map<String, Value>,
    texts: Map<String, Value>,
    series: Map<String, Value>,
}

impl Report {
    /// Adds a metric; a value that is not finite (nothing was counted) is left out.
    pub fn add(&mut self, name: impl Into<String>, unit: &str, value: f64) {
        if value.is_finite() {
            self.metrics.insert(name.into(), json!({ "unit": unit, "value": value }));
        }
    }

    /// Adds a text, which is printed as `/texts/NAME`.
    pub fn add_text(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.texts.insert(name.into(), Value::String(text.into()));
    }

    /// Adds the points of a series, for plots of the kind `series`; an empty series is left out.
    pub fn series(&mut self, name: impl Into<String>, points: Vec<[f64; 2]>) {
        if !points.is_empty() {
            self.series.insert(name.into(), json!(points));
        }
    }

    /// The value of a metric, for tests.
    #[cfg(test)]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.metrics.get(name)?.get("value")
    }

    /// Adds the 50th and 99th percentile (nearest rank) of times, in µs.
    pub fn add_times(&mut self, name: &str, mut times: Vec<Duration>) {
        times.sort();
        for percent in [50, 99] {
            if let Some(time) = percentile(&times, percent) {
                self.add(format!("{name}_p{percent}"), "us", micros(time));
            }
        }
    }

    /// Adds the differences between the percentiles of `times` and those of `base`, in µs.
    pub fn add_excess(&mut self, name: &str, mut times: Vec<Duration>, mut base: Vec<Duration>) {
        times.sort();
        base.sort();
        for percent in [50, 99] {
            if let (Some(a), Some(b)) = (percentile(&times, percent), percentile(&base, percent)) {
                self.add(format!("{name}_p{percent}"), "us", micros(a) - micros(b));
            }
        }
    }

    /// Prints the report as one line.
    ///
    /// # Errors
    /// When stdout is closed.
    pub fn print(self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let mut all = json!({ "metrics": self.metrics });
        if !self.texts.is_empty() {
            all["texts"] = Value::Object(self.texts);
        }
        if !self.series.is_empty() {
            all["series"] = Value::Object(self.series);
        }
        writeln!(out, "{all}").and_then(|()| out.flush())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The percentile of sorted times: the smallest time such that `percent` of all are at or below it.
pub fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let k = (percent * times.len()).div_ceil(100);
    times.get(k.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(all: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        all.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let mut report = Report::default();
        report.add_times("t", millis((1..=200).rev()));
        report.add_excess("x", millis(11..=20), millis(1..=10));
        report.add("none", "s", f64::NAN);
        report.add_times("empty", vec![]);
        let wanted = json!({
            "t_p50": { "unit": "us", "value": 100_000.0 }, "t_p99": { "unit": "us", "value": 198_000.0 },
            "x_p50": { "unit": "us", "value": 10_000.0 }, "x_p99": { "unit": "us", "value": 10_000.0 },
        });
        assert_eq!(Value::Object(report.metrics), wanted);
    }
}
