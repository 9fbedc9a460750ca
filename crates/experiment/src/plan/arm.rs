//! What is compared: the arms of a plan.

use super::OneOrMany;
use crate::{
    error::Result,
    template::{Face, Values},
};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// What an arm is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Our way.
    Ours,
    /// The paper's way, built by us.
    Paper,
    /// Another program for the same purpose: the best one is the table's yardstick.
    Peer,
    /// A baseline that is no competitor, such as one path alone.
    Solo,
}

/// What an arm's standard output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// Not read.
    #[default]
    Ignored,
    /// JSON, or lines with a JSON object as the last: read by pointers.
    Json,
    /// `{"metrics": {"NAME": {"unit": …, "value": …}}, "series"?: {"NAME": [[x, y], …]}}`.
    Metrics,
}

/// Where a metric is found: in an arm's JSON, or in the lab's record of a link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSource {
    /// RFC 6901 pointer to a number.
    pub pointer: String,
    /// In the last line whose `event` is this; absent: in the whole, or the last line.
    pub event: Option<String>,
    /// In the lab's record of this half of a link (`core.fwd`) at the arm's end, since the
    /// network's start; docs/lab.md has its fields.
    pub link: Option<String>,
    /// The unit after scaling.
    pub unit: String,
    /// Factor to that unit.
    #[serde(default = "unscaled")]
    pub scale: f64,
    /// It may be missing: a download that sampling finished has no completion phase.
    #[serde(default)]
    pub optional: bool,
}

fn unscaled() -> f64 {
    1.0
}

/// Where a text is found in an arm's JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelSource {
    /// RFC 6901 pointer to a text or number.
    pub pointer: String,
    /// As in [`MetricSource`].
    pub event: Option<String>,
    /// Only what stands before this: `:` cuts a port off.
    pub until: Option<String>,
    /// Of the first such event, not of the last.
    #[serde(default)]
    pub first: bool,
}

/// When a fault strikes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// So long after the arm's start …
    pub at: Option<String>,
    /// … or when a line of its output holds this text …
    pub line: Option<String>,
    /// … or when the file `{out}` (or what stands at `watch`) has so many bytes.
    pub bytes: Option<String>,
    /// The file whose size counts; a pattern in its last part may match one of several.
    pub watch: Option<String>,
}

/// The signal of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultSignal {
    /// SIGKILL.
    #[default]
    Kill,
    /// SIGTERM.
    Term,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Cont,
    /// SIGINT.
    Int,
    /// SIGHUP.
    Hup,
}

/// Something that happens while an arm runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub when: Trigger,
    /// A service's instances to kill (`relay@relay1`; a pattern may match several).
    pub kill: Option<String>,
    /// With this signal.
    #[serde(default)]
    pub signal: FaultSignal,
    /// A link to change, and how: the keys of a link in docs/lab.md.
    pub link: Option<String>,
    /// The change of that link.
    #[serde(default)]
    pub set: toml::Table,
    /// A program to run …
    pub run: Option<Vec<String>>,
    /// … on this host.
    pub host: Option<String>,
}

/// One way of doing what the experiment measures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name; may hold the placeholders of `each`.
    pub name: String,
    /// What it is in the comparison.
    pub role: Role,
    /// One arm for every combination of these values.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<String>>,
    /// Host, or hosts that run it at the same time; absent in `kind = "host"`.
    #[serde(default)]
    pub host: OneOrMany,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Programs that must be installed; else the arm is skipped, with the reason.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Prints the version on its first line.
    pub version: Option<Vec<String>>,
    /// Beyond this it is ended and has failed.
    #[serde(with = "thalweg_units::serde_duration")]
    pub timeout: Duration,
    /// How long it is expected to take: a duration, may hold placeholders.
    pub expect: String,
    /// Exit codes of success.
    #[serde(default = "success")]
    pub exit: Vec<i32>,
    /// A failure is an observation (no value), not a fault of the run.
    #[serde(default)]
    pub may_fail: bool,
    /// The fixture that the file `{out}` must equal; also gives the metric `goodput`.
    pub verify: Option<String>,
    /// What its standard output is.
    #[serde(default)]
    pub output: Output,
    /// Metrics to be read from it.
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricSource>,
    /// Texts to be read from it: which path was chosen …
    #[serde(default)]
    pub labels: BTreeMap<String, LabelSource>,
    /// Hosts whose sockets are sampled while it runs; absent: its own and the services'.
    pub sample: Option<Vec<String>>,
    /// Lateness is what it measures: it does not decide validity here.
    #[serde(default)]
    pub measures_lateness: bool,
    /// What happens while it runs.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// Runs only in cells where each of these parameters has one of the values.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<toml::Value>>,
    /// What the paper reports for it, for the table.
    pub paper: Option<String>,
}

fn success() -> Vec<i32> {
    vec![0]
}

/// Replaces every arm with `each` by its copies, one for every combination.
///
/// A copy keeps its values: in `each` each list has one entry left.
pub(super) fn expand(arms: Vec<Arm>) -> Result<Vec<Arm>> {
    let mut out = Vec::with_capacity(arms.len());
    for arm in arms {
        for choice in super::combinations(&arm.each) {
            let mut copy = arm.clone();
            let mut values = Values::default();
            for (name, value) in &choice {
                values.set(name, value);
            }
            copy.name = values.render(&arm.name, Face::Real)?;
            copy.each = choice.into_iter().map(|(k, v)| (k, vec![v])).collect();
            out.push(copy);
        }
    }
    Ok(out)
}
