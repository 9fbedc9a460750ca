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
    /// Ours: fewer measurements for the same gain.
    Thrifty,
    /// What UKAIRO compares with.
    Random,
}

/// A share of all, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// All of it.
    pub const ALL: Self = Self(1_000_000);

    /// So many millionths, a million at most.
    pub(super) const fn of_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// From 0 to 1.
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

/// `[oracle.measure]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OracleMeasureSection {
    /// Whether measurements are ordered.
    pub enabled: bool,
    /// Which legs first.
    pub schedule: ScheduleName,
    /// Algorithm 1: pairs that each relay is known to detour before its second phase.
    pub t: u32,
    /// The share of all legs that is measured; then they are kept fresh.
    #[serde(deserialize_with = "text::one")]
    pub p: Share,
    /// Of one node, sent and received.
    #[serde(deserialize_with = "text::one")]
    pub bytes_per_day: ByteSize,
    /// Of one measurement.
    #[serde(deserialize_with = "text::one")]
    pub test_bytes: ByteSize,
    /// Of one measurement.
    #[serde(deserialize_with = "text::one")]
    pub test_time: Duration,
    /// Measurements at a time in the whole mesh.
    pub at_once: u32,
    /// The deployment's congestion control; absent: each host's own.
    pub congestion_control: Option<String>,
    /// How candidates are chosen for who does not say.
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

/// What is well-formed, and yet cannot be meant.
pub(super) fn check(measure: &OracleMeasureSection, problems: &mut Vec<Problem>) {
    let mut of = |key: &str, what: &str| {
        problems.push(Problem::of(format!("oracle.measure.{key}"), what));
    };
    if measure.at_once == 0 {
        of("at_once", "with none at a time nothing is measured; write `enabled = false`");
    }
    if measure.test_time < Duration::from_millis(100) || measure.test_time > Duration::from_secs(5)
    {
        of(
            "test_time",
            "nodes measure for 5 s at most, and less than 0.1 s shows slow start alone",
        );
    }
    if measure.test_bytes < ByteSize::from_bytes(64 * 1024) {
        of("test_bytes", "less than 64 KiB shows slow start alone");
    }
    if measure.bytes_per_day < measure.test_bytes {
        of("bytes_per_day", "less than one measurement's `test_bytes`: nothing could be measured");
    }
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = |name: &String| (1..=15).contains(&name.len()) && name.chars().all(named);
    if measure.congestion_control.as_ref().is_some_and(|name| !is_name(name)) {
        of("congestion_control", "no name of the kernel's; e.g. \"cubic\" or \"bbr\"");
    }
}
