//! The arms of a plan: the programs that it compares.

use super::OneOrMany;
use crate::{
    error::Result,
    template::{TextForm, Values},
};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// The role of an arm in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Ours,
    /// The paper's method, implemented by us.
    Paper,
    /// Another program for the same purpose; the best one is the reference in the table.
    Peer,
    /// A baseline that is not a competitor, such as a single path.
    Solo,
}

/// The format of an arm's standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    #[default]
    Ignored,
    /// JSON, or lines that end with a JSON object; values are read by pointers.
    Json,
    /// `{"metrics": {"NAME": {"unit": …, "value": …}}, "series"?: {"NAME": [[x, y], …]}}`.
    Metrics,
}

/// The source of a metric: an arm's JSON, or the lab's record of a link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSource {
    /// RFC 6901 pointer to a number.
    pub pointer: String,
    /// Read the last line whose `event` is this; absent: the whole output, or its last line.
    pub event: Option<String>,
    /// Read the lab's record of this direction of a link (`core.fwd`) at the arm's end; it covers the time since the
    /// network's start. docs/lab.md describes its fields.
    pub link: Option<String>,
    /// The unit after scaling.
    pub unit: String,
    /// The factor that converts the number to that unit.
    #[serde(default = "unscaled")]
    pub scale: f64,
    /// Whether it may be missing: for example, a download that finishes while sampling has no completion phase.
    #[serde(default)]
    pub optional: bool,
}

fn unscaled() -> f64 {
    1.0
}

/// The source of a label: a text in an arm's JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelSource {
    /// RFC 6901 pointer to a text or number.
    pub pointer: String,
    /// As for [`MetricSource`].
    pub event: Option<String>,
    /// Keep only the text before this: `:` removes a port.
    pub until: Option<String>,
    /// Read the first such event instead of the last.
    #[serde(default)]
    pub first: bool,
}

/// When a fault occurs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// This long after the arm's start …
    pub at: Option<String>,
    /// … or when its output contains this text …
    pub line: Option<String>,
    /// … or when the file `{out}` (or the one at `watch`) has this many bytes.
    pub bytes: Option<String>,
    /// The file whose size counts. Its last component may be a pattern; then the largest matching file counts.
    pub watch: Option<String>,
}

/// The signal of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultSignal {
    #[default]
    Kill,
    Term,
    Stop,
    Cont,
    Int,
    Hup,
}

/// A fault that is injected while an arm runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub when: Trigger,
    /// Instances of services to signal (`relay@relay1`; a pattern may match several).
    pub kill: Option<String>,
    /// The signal to send.
    #[serde(default)]
    pub signal: FaultSignal,
    /// A link to change.
    pub link: Option<String>,
    /// The change of that link, with the keys of a link in docs/lab.md.
    #[serde(default)]
    pub set: toml::Table,
    /// A program to run …
    pub run: Option<Vec<String>>,
    pub host: Option<String>,
}

/// One of the programs or configurations that the experiment compares.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The arm's name; may contain the placeholders of `each`.
    pub name: String,
    /// The role in the comparison.
    pub role: Role,
    /// One arm for every combination of these values.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<String>>,
    /// The host, or the hosts that run it at the same time; absent in `kind = "host"`.
    #[serde(default)]
    pub host: OneOrMany,
    /// Program and arguments.
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Programs that must be installed; otherwise the arm is skipped, with the reason.
    #[serde(default)]
    pub requires: Vec<String>,
    /// A command that prints the version on its first line.
    pub version: Option<Vec<String>>,
    /// After this time it is killed and has failed.
    #[serde(with = "thalweg_units::serde_duration")]
    pub timeout: Duration,
    /// How long it is expected to take: a duration, may contain placeholders.
    pub expect: String,
    /// Exit codes of success.
    #[serde(default = "success")]
    pub exit: Vec<i32>,
    /// Whether a failure is an observation (no value) and not a fault of the run.
    #[serde(default)]
    pub may_fail: bool,
    /// The fixture that the file `{out}` must equal; also gives the metric `goodput`.
    pub verify: Option<String>,
    /// The format of its standard output.
    #[serde(default)]
    pub output: Output,
    /// Metrics to read from the output.
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricSource>,
    /// Texts to read from the output, such as the chosen path.
    #[serde(default)]
    pub labels: BTreeMap<String, LabelSource>,
    /// Hosts whose sockets are sampled while it runs; absent: its own hosts and those of its services.
    pub sample: Option<Vec<String>>,
    /// Whether it measures lateness itself, so that lateness does not decide its validity.
    #[serde(default)]
    pub measures_lateness: bool,
    /// Faults that are injected while it runs.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// It runs only in cells in which each of these parameters has one of the values.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<toml::Value>>,
    /// The result that the paper reports for it, for the table.
    pub paper: Option<String>,
}

fn success() -> Vec<i32> {
    vec![0]
}

/// Replaces every arm that has `each` by copies, one for every combination of values.
///
/// A copy keeps its values in `each`, as lists of one entry.
pub(super) fn expand(arms: Vec<Arm>) -> Result<Vec<Arm>> {
    let mut out = Vec::with_capacity(arms.len());
    for arm in arms {
        for choice in super::combinations(&arm.each) {
            let mut copy = arm.clone();
            let mut values = Values::default();
            for (name, value) in &choice {
                values.set(name, value);
            }
            copy.name = values.render(&arm.name, TextForm::Real)?;
            copy.each = choice.into_iter().map(|(k, v)| (k, vec![v])).collect();
            out.push(copy);
        }
    }
    Ok(out)
}
