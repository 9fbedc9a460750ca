//! What is kept of each round, as one line of JSON.

use crate::schedule::Round;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One value with its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// `Mbit/s`, `s`, `ratio` …
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// What became of an arm in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It did what it should.
    Done,
    /// It did not: an error, a time-out, wrong bytes. With the reason.
    Failed(String),
    /// It did not, and the plan said that this may be.
    Unfinished(String),
    /// It was not run, because a program is not installed. With the reason.
    Skipped(String),
}

/// What was seen of an arm's sockets while it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockets {
    /// Congestion control algorithms.
    pub congestion_control: BTreeSet<String>,
    /// Largest receive buffer, bytes (`rb` of skmem).
    pub receive_bytes: u64,
    /// Largest send buffer, bytes (`tb` of skmem).
    pub send_bytes: u64,
    /// How many sockets were seen.
    pub seen: u64,
}

impl Sockets {
    /// Adds what another sample saw.
    pub fn merge(&mut self, other: &Self) {
        self.congestion_control.extend(other.congestion_control.iter().cloned());
        self.receive_bytes = self.receive_bytes.max(other.receive_bytes);
        self.send_bytes = self.send_bytes.max(other.send_bytes);
        self.seen = self.seen.max(other.seen);
    }
}

/// An arm in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// Its name.
    pub name: String,
    /// Program and arguments, without paths of the machine.
    pub command: Vec<String>,
    /// What the program says it is.
    pub version: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// Its metrics.
    #[serde(default)]
    pub metrics: BTreeMap<String, Sample>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its time series.
    #[serde(default)]
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    /// Its sockets.
    #[serde(default)]
    pub sockets: Sockets,
    /// The congestion control that its connections had to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_congestion: Option<String>,
    /// The lab's lateness while it ran, 99th percentile in µs.
    pub lateness_p99_us: Option<u64>,
    /// The machine's CPU pressure while it ran, 0..=1.
    pub cpu_pressure: Option<f64>,
    /// How often it ran until it was within the bounds of validity.
    pub attempts: u32,
}

impl ArmRecord {
    /// A record without measurements of an arm that came to this.
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

    /// Whether it was run, with whatever outcome.
    pub fn ran(&self) -> bool {
        !matches!(self.outcome, Outcome::Skipped(_))
    }
}

/// A finished round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRecord {
    /// The cell's label.
    pub cell: String,
    /// The label of each axis's case.
    pub cases: BTreeMap<String, String>,
    /// The seed.
    pub seed: u64,
    /// The repeat, from 0.
    pub repeat: u32,
    /// The network's own bound on the headline metric (Mbit/s), if the plan asks for it.
    pub limit: Option<f64>,
    /// The arms, in the order they ran.
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

    /// An arm's value of a metric, if it got that far.
    pub fn value(&self, arm: &str, metric: &str) -> Option<f64> {
        Some(self.arm(arm)?.metrics.get(metric)?.value)
    }
}
