//! The metrics of a probe: named values with units.

use anyhow::Context;
use serde_json::{Map, Value, json};
use std::io::Write;

/// Named values with their units, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Metrics(Vec<(String, &'static str, f64)>);

impl Metrics {
    /// Adds a value; `unit` is "1" for a ratio.
    pub fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        self.0.push((name.to_owned(), unit, value));
    }

    /// Adds the number at `pointer` (RFC 6901) of a tool's report, times `factor`.
    ///
    /// # Errors
    /// If the report has no number there, because too little or nothing was received.
    pub fn add_from_report(
        &mut self,
        name: &str,
        unit: &'static str,
        report: &Value,
        pointer: &str,
        factor: f64,
    ) -> anyhow::Result<()> {
        self.add(name, unit, number(report, pointer)? * factor);
        Ok(())
    }

    /// The value of `name`, if there is one.
    #[cfg(test)]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, ..)| n == name).map(|(.., value)| *value)
    }

    /// All metrics as `{"metrics":{"NAME":{"unit":…,"value":…}}}`.
    fn to_json(&self) -> Value {
        let entry = |(name, unit, value): &(String, &str, f64)| {
            (name.clone(), json!({ "unit": unit, "value": value }))
        };
        json!({ "metrics": self.0.iter().map(entry).collect::<Map<_, _>>() })
    }

    /// Prints all metrics to stdout, one per line, or as one JSON object.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn print(&self, is_json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if is_json {
            return writeln!(out, "{}", self.to_json()).context("cannot write to stdout");
        }
        let width = self.0.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        for (name, unit, value) in &self.0 {
            let unit = if *unit == "1" { "" } else { unit };
            writeln!(out, "{name:width$}  {value:>14.6} {unit}")
                .context("cannot write to stdout")?;
        }
        Ok(())
    }
}

/// The nearest-rank percentile of `sorted`: the smallest value such that at least `percent` (1..=100) of all values are
/// at or below it; `None` for an empty slice.
pub fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

/// The number at `pointer` (RFC 6901) of a tool's report.
///
/// # Errors
/// If there is none.
pub fn number(report: &Value, pointer: &str) -> anyhow::Result<f64> {
    report.pointer(pointer).and_then(Value::as_f64).with_context(|| {
        format!("the report of a tool in the lab has no {pointer}: too little data arrived")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let at = |p| quantile(&hundred, p);
        assert_eq!((at(50), at(95), at(100)), (Some(50.0), Some(95.0), Some(100.0)));
        assert_eq!(quantile(&[7.0], 1), Some(7.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 50), Some(2.0));
        assert_eq!(quantile(&[], 50), None);
    }
}
