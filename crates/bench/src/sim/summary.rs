//! Combines the results of several seeds.

use super::labels;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};
use thalweg_sim::{figures::Report, stats};

/// Reports of several seeds.
#[derive(Default)]
pub struct Summary {
    reports: Vec<Report>,
}

impl Summary {
    /// Adds the report of a seed.
    pub fn add(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// For each metric its unit and its values over the seeds that have it.
    fn metrics(&self) -> BTreeMap<&str, (&'static str, Vec<f64>)> {
        let mut all = BTreeMap::new();
        for (name, metric) in self.reports.iter().flat_map(|report| &report.metrics) {
            let entry = all.entry(name.as_str()).or_insert((metric.unit, Vec::new()));
            entry.1.push(metric.value);
        }
        all
    }

    /// The JSON for experiments: medians, and the first seed's curves.
    pub fn json(&self, figure: &str, input: &impl ToString, seeds: &[u64]) -> Value {
        let metric = |(name, (unit, values)): (&str, (&str, Vec<f64>))| {
            (name.to_owned(), json!({"unit": unit, "value": stats::median(&values)}))
        };
        let metrics: serde_json::Map<String, Value> =
            self.metrics().into_iter().map(metric).collect();
        let series = self.reports.first().map(|report| &report.series);
        json!({
            "figure": figure,
            "input": input.to_string(),
            "seeds": seeds,
            "metrics": metrics,
            "series": series,
        })
    }

    /// A line for each metric: the median, and the range if there are several seeds.
    pub fn text(&self, label: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        let mut all: Vec<_> = self.metrics().into_iter().collect();
        all.sort_by(|(a, _), (b, _)| labels::by_number(a, b));
        for (name, (unit, values)) in all {
            let name = label(name);
            // Writing to a string cannot fail.
            let _ = write!(text, "{name:<58} {:>10.2} {unit}", stats::median(&values));
            if values.len() > 1 {
                let [low, high] = [0.0, 1.0].map(|share| stats::quantile(&values, share));
                let _ = write!(text, "   {low:.2} to {high:.2}");
            }
            text.push('\n');
        }
        text
    }
}
