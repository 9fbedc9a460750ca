//! `[oracle.measure]`: how the oracle has the mesh measured.

use super::{
    Problem,
    text::{self, Text},
};
use serde::Deserialize;
use std::time::Duration;
use thalweg_units::{ByteSize, parse_probability};
use thalweg_wire::mesh::measure::Strategy;

/// Which legs are measured first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleName {
    /// UKAIRO's Algorithm 1.
    #[default]
    #[serde(rename = "algorithm-1")]
    Algorithm1,
    /// Thalweg's own: fewer measurements for the same gain.
    Thrifty,
    /// At random, with which UKAIRO compares.
    Random,
}

/// A share, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// A share of 100 %.
    pub const ALL: Self = Self(1_000_000);

    /// This many millionths, at most a million.
    pub(super) const fn of_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// The share as a fraction from 0 to 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Text for Share {
    const EXPECTED: &'static str = "a share, e.g. \"40 %\"";
    fn read(text: &str) -> Result<Self, String> {
        let fraction = parse_probability(text).map_err(|e| e.to_string())?;
        Ok(Self((fraction * 1e6).round() as u32))
    }
}

/// The settings of measurements that the oracle orders.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OracleMeasureSection {
    /// Whether the oracle orders measurements.
    pub enabled: bool,
    /// Which legs are measured first.
    pub schedule: ScheduleName,
    /// Algorithm 1: how many pairs each relay is known to detour before its second phase.
    pub t: u32,
    /// The share of all legs that is measured, and then kept fresh.
    #[serde(deserialize_with = "text::one")]
    pub p: Share,
    /// The most bytes that one node sends and receives per day.
    #[serde(deserialize_with = "text::one")]
    pub bytes_per_day: ByteSize,
    /// The most bytes of one measurement.
    #[serde(deserialize_with = "text::one")]
    pub test_bytes: ByteSize,
    /// The longest measurement.
    #[serde(deserialize_with = "text::one")]
    pub test_time: Duration,
    /// The most measurements at a time in the whole mesh.
    pub at_once: u32,
    /// The deployment's congestion control; absent: each host's own.
    pub congestion_control: Option<String>,
    /// How candidates are chosen for a client that does not say.
    pub strategy: Strategy,
}

impl Default for OracleMeasureSection {
    fn default() -> Self {
        Self {
            enabled: true,
            schedule: ScheduleName::default(),
            t: 25,
            p: Share(400_000),
            bytes_per_day: ByteSize::from_bytes(2_000_000_000),
            test_bytes: ByteSize::from_bytes(256_000_000),
            test_time: Duration::from_secs(5),
            at_once: 16,
            congestion_control: None,
            strategy: Strategy::default(),
        }
    }
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(measure: &OracleMeasureSection, problems: &mut Vec<Problem>) {
    let mut of = |key: &str, what: &str| {
        problems.push(Problem::of(format!("oracle.measure.{key}"), what));
    };
    if measure.at_once == 0 {
        of("at_once", "0 allows no measurement; to turn measuring off, write `enabled = false`");
    }
    if measure.test_time < Duration::from_millis(100) || measure.test_time > Duration::from_secs(5)
    {
        of(
            "test_time",
            "must be 0.1 s to 5 s: a shorter measurement shows only TCP's slow start, and nodes \
             stop after 5 s",
        );
    }
    if measure.test_bytes < ByteSize::from_bytes(64 * 1024) {
        of("test_bytes", "must be at least 64 KiB, because less shows only TCP's slow start");
    }
    if measure.bytes_per_day < measure.test_bytes {
        of("bytes_per_day", "must be at least `test_bytes`, the bytes of one measurement");
    }
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = |name: &String| (1..=15).contains(&name.len()) && name.chars().all(named);
    if measure.congestion_control.as_ref().is_some_and(|name| !is_name(name)) {
        of(
            "congestion_control",
            "not the name of a congestion control; e.g. \"cubic\" or \
                                  \"bbr\"",
        );
    }
}
