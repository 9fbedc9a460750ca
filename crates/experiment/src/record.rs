//! The record of a round, one line of JSON.

use crate::schedule::Round;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A value with its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The unit: `Mbit/s`, `s`, `ratio` …
    pub unit: String,
    pub value: f64,
}

/// The outcome of an arm in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Done,
    /// It failed: an error, a timeout, wrong bytes. With the reason.
    Failed(String),
    /// It failed, and the plan allows that. With the reason.
    Unfinished(String),
    /// It did not run because a program is not installed. With the reason.
    Skipped(String),
}

/// Samples of an arm's sockets while it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockets {
    pub congestion_control: BTreeSet<String>,
    /// Largest receive buffer, bytes (`rb` of skmem).
    pub receive_bytes: u64,
    /// Largest send buffer, bytes (`tb` of skmem).
    pub send_bytes: u64,
    /// The number of sockets seen.
    pub seen: u64,
}

impl Sockets {
    /// Adds another sample: all algorithms seen, and the greatest of each number.
    pub fn merge(&mut self, other: &Self) {
        self.congestion_control.extend(other.congestion_control.iter().cloned());
        self.receive_bytes = self.receive_bytes.max(other.receive_bytes);
        self.send_bytes = self.send_bytes.max(other.send_bytes);
        self.seen = self.seen.max(other.seen);
    }
}

/// The record of an arm in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    pub name: String,
    /// Program and arguments, without paths of this machine.
    pub command: Vec<String>,
    /// The version that the program reports.
    pub version: Option<String>,
    pub outcome: Outcome,
    #[serde(default)]
    pub metrics: BTreeMap<String, Sample>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    #[serde(default)]
    pub sockets: Sockets,
    /// The congestion control that its connections had to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_congestion: Option<String>,
    /// The 99th percentile of lateness in the lab while it ran, µs.
    pub lateness_p99_us: Option<u64>,
    /// CPU pressure while it ran, 0..=1.
    pub cpu_pressure: Option<f64>,
    /// The number of runs until it was within the bounds of validity.
    pub attempts: u32,
}

impl ArmRecord {
    /// Creates a record without measurements.
    pub fn new(name: &str, command: Vec<String>, outcome: Outcome) -> Self {
        Self {
            name: name.to_owned(),
            command,
            version: None,
            outcome,
            metrics: BTreeMap::new(),
            labels: BTreeMap::new(),
            series: BTreeMap::new(),
            sockets: Sockets::default(),
            wanted_congestion: None,
            lateness_p99_us: None,
            cpu_pressure: None,
            attempts: 0,
        }
    }

    /// Whether it has a metric.
    pub fn has(&self, metric: &str) -> bool {
        self.metrics.contains_key(metric)
    }

    /// Whether it ran, with any outcome.
    pub fn ran(&self) -> bool {
        !matches!(self.outcome, Outcome::Skipped(_))
    }
}

/// The record of a finished round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRecord {
    /// The cell's label.
    pub cell: String,
    /// The label of the case of each axis.
    pub cases: BTreeMap<String, String>,
    pub seed: u64,
    pub repeat: u32,
    /// The network's bound on the headline metric (Mbit/s), if the plan asks for it.
    pub limit: Option<f64>,
    /// The arms, in the order in which they ran.
    pub arms: Vec<ArmRecord>,
}

impl RoundRecord {
    /// Whether this is the record of `round`.
    pub fn is_of(&self, round: &Round) -> bool {
        (self.cell.as_str(), self.seed, self.repeat)
            == (round.cell.label.as_str(), round.seed, round.repeat)
    }

    /// The record of an arm.
    pub fn arm(&self, name: &str) -> Option<&ArmRecord> {
        self.arms.iter().find(|a| a.name == name)
    }

    /// An arm's value of a metric, if it has one.
    pub fn value(&self, arm: &str, metric: &str) -> Option<f64> {
        Some(self.arm(arm)?.metrics.get(metric)?.value)
    }
}
