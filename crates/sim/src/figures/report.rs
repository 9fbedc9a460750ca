//! The results of a figure: numbers with units, and curves.

use serde::Serialize;
use std::collections::BTreeMap;

/// A number with its unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// `%`, `×`, `Mbit/s`, `ms` …
    pub unit: &'static str,
    /// The number.
    pub value: f64,
}

/// The numbers and curves of a figure. Numbers that could not be computed are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    pub metrics: BTreeMap<String, Metric>,
    /// By name: points (x, y).
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Report {
    /// Adds a number; NaN and infinite ones are left out.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        if value.is_finite() {
            self.metrics.insert(name.into(), Metric { unit, value });
        }
    }

    /// Adds a curve.
    pub fn curve(&mut self, name: impl Into<String>, points: Vec<(f64, f64)>) {
        self.series.insert(name.into(), points);
    }

    /// Merges several parts: the part's name is appended to each name; a single part keeps its names.
    pub fn merged(mut parts: Vec<(&str, Self)>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0).1;
        }
        let mut all = Self::default();
        for (part, report) in parts {
            let behind = |name: String| format!("{name}_{part}");
            all.metrics.extend(report.metrics.into_iter().map(|(name, m)| (behind(name), m)));
            all.series.extend(report.series.into_iter().map(|(name, s)| (behind(name), s)));
        }
        all
    }

    /// A number by its name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).map(|metric| metric.value)
    }
}
