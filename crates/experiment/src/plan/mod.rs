//! The plan of an experiment, from its TOML file.
//!
//! docs/experiments.md is the reference for authors of plans. Unknown keys are rejected everywhere, so that a misspelt
//! bound is not silently ignored.

mod arm;
mod check;
mod matrix;
mod validate;

pub use arm::{Arm, Fault, FaultSignal, LabelSource, MetricSource, Output, Role, Trigger};
pub use check::{Aggregate, Check, Choice, Chosen, Condition, Op, Plot, PlotKind, Selector};
pub(crate) use matrix::generator;
pub use matrix::{Axis, AxisBy, Case, Draw, Headline, Matrix, Seeds};

use crate::error::{ExperimentError, Result};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::likeness;

/// Where an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// In hosts of an emulated Internet.
    Lab,
    /// On this machine, over loopback.
    Host,
}

/// The lifetime of a network and its services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each arm gets a fresh network, with the same link state and the same random losses.
    #[default]
    Arm,
    /// All arms of a round share a network.
    Round,
}

/// The conditions under which a run is valid.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validity {
    /// Largest 99th percentile of the lateness of packets in the lab; absent: not checked.
    #[serde(default, with = "thalweg_units::serde_duration::option")]
    pub lateness_p99: Option<Duration>,
    /// Largest share of an arm's time in which some task waited for a CPU, 0..=1.
    #[serde(default, with = "optional_share")]
    pub cpu_pressure: Option<f64>,
    /// The congestion control that every data connection must use; may contain placeholders.
    pub congestion_control: Option<String>,
    /// How often an arm may run in a round until it is within the bounds.
    ///
    /// Only these bounds decide, never a result. The number of attempts is recorded.
    #[serde(default = "one")]
    pub attempts: u32,
}

/// The changes that `--quick` makes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Seeds that replace the plan's.
    pub seeds: Option<Seeds>,
    /// Repeats that replace the plan's.
    pub repeats: Option<u32>,
    /// Patterns of the arms to run; absent: all.
    pub arms: Option<Vec<String>>,
    /// Patterns of the cells to run; absent: all.
    pub cells: Option<Vec<String>>,
    /// Parameters that replace the plan's.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Checks that a quick run cannot evaluate.
    #[serde(default)]
    pub not_evaluated: Vec<String>,
}

/// A fixture: a file created for the run in its scratch directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// The placeholder's name: `{name}` is the path; random files also have `{name.bytes}` and `{name.blake3}`.
    pub name: String,
    /// Path below the scratch directory.
    pub path: String,
    /// Random bytes of this size (a quantity, may contain placeholders) …
    pub size: Option<String>,
    /// … or this text, with placeholders.
    pub content: Option<String>,
}

/// A program that runs alongside the arms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The name; an instance is `name@host`.
    pub name: String,
    /// Host or hosts (an instance on each); absent in `kind = "host"`.
    #[serde(default)]
    pub host: OneOrMany,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Programs that must be installed; otherwise `otherwise` runs, or arms that need the service are skipped.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Program and arguments if `requires` is not met.
    pub otherwise: Option<Vec<String>>,
    /// When it counts as ready.
    #[serde(default)]
    pub ready: Ready,
    /// It runs only in cells in which each of these parameters has one of the values.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<toml::Value>>,
    /// Patterns of the arms for which it runs; absent: all. Needs `network = "arm"`.
    pub arms: Option<Vec<String>>,
}

/// When a service counts as ready; without a condition it is ready at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// It listens on this TCP port (may be a placeholder).
    pub port: Option<toml::Value>,
    /// Its output contains this text.
    pub line: Option<String>,
    /// It has ended with success: a preparation step.
    #[serde(default)]
    pub exit: bool,
    /// The longest time until it is ready.
    #[serde(default = "twenty_seconds", with = "thalweg_units::serde_duration")]
    pub within: Duration,
    /// The expected time, for the estimate; may contain placeholders.
    pub expect: Option<String>,
}

impl Default for Ready {
    fn default() -> Self {
        Self { port: None, line: None, exit: false, within: twenty_seconds(), expect: None }
    }
}

/// The default time limit for a service to become ready.
const fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

/// Properties of a metric.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricInfo {
    /// Which direction is better; absent: lower for times, higher for all other units.
    pub better: Option<Better>,
}

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// As for a rate.
    Higher,
    /// As for a time.
    Lower,
}

/// The network's bound on the headline metric, from the topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The source of the data.
    pub from: String,
    /// The destination of the data.
    pub to: String,
    /// Hosts that may relay.
    #[serde(default)]
    pub via: Vec<String>,
}

/// A complete plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The name: that of the file.
    pub name: String,
    /// The claim to show, in a sentence.
    pub claim: String,
    /// The source of the claim.
    pub paper: Option<String>,
    /// Where it runs.
    pub kind: Kind,
    /// The directories in `crates` whose code it measures: a result is stale once one of them has changed.
    #[serde(default)]
    pub code: Vec<String>,
    /// The largest allowed estimate of a full run.
    #[serde(default = "twenty_minutes", with = "thalweg_units::serde_duration")]
    pub budget: Duration,
    /// The metrics in the table; its ratios are of the first one.
    pub headline: OneOrMany,
    /// An axis of `vary` whose cases have separate rows, because they are so different that a median over them would be
    /// meaningless.
    pub rows_by: Option<String>,
    /// The seeds of rounds.
    #[serde(default)]
    pub seeds: Seeds,
    /// Rounds per cell and seed.
    #[serde(default = "one")]
    pub repeats: u32,
    /// The number of concurrent rounds, at least 1, each in its own lab. Arms are compared only within a round, and
    /// `validity` detects an overloaded machine.
    #[serde(default = "one_at_a_time")]
    pub abreast: usize,
    /// The lifetime of a network.
    #[serde(default)]
    pub network: Scope,
    /// The pause between the start of the services and that of the arm.
    #[serde(default, with = "thalweg_units::serde_duration")]
    pub settle: Duration,
    /// The conditions under which a run is valid.
    pub validity: Validity,
    /// The quick run, which takes a minute at most.
    #[serde(default)]
    pub quick: Quick,
    /// Values for placeholders.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Values drawn from the round's seed.
    #[serde(default)]
    pub draw: BTreeMap<String, Draw>,
    /// Names of free TCP ports: `{port.NAME}`.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The network: a table as in docs/lab.md, or the name of a file beside the plan.
    pub topology: Option<toml::Value>,
    /// The axes of the cells.
    #[serde(default)]
    pub vary: Vec<Axis>,
    /// Selects the cells that run.
    #[serde(default)]
    pub matrix: Matrix,
    #[serde(default)]
    pub file: Vec<Fixture>,
    /// Programs that run alongside the arms.
    #[serde(default)]
    pub service: Vec<Service>,
    /// The arms to compare.
    pub arm: Vec<Arm>,
    /// Properties of metrics.
    #[serde(default)]
    pub metric: BTreeMap<String, MetricInfo>,
    /// The network's bound on the headline metric.
    pub limit: Option<Limit>,
    /// The checks that must hold.
    pub check: Vec<Check>,
    /// Plots of the result.
    #[serde(default)]
    pub plot: Vec<Plot>,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// `host = "client"`
    One(String),
    /// `host = ["client1", "client2"]`
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(vec![])
    }
}

impl OneOrMany {
    /// As a list.
    pub fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl Plan {
    /// Parses and validates a plan; `origin` names it in errors.
    ///
    /// # Errors
    /// On a syntax error, with its line, or on a semantic error (an unknown arm in a check, an unknown placeholder, an
    /// estimate beyond the budget …).
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let fault = |why: String| ExperimentError::Plan { plan: origin.to_owned(), why };
        let syntax = |e: toml::de::Error| {
            fault(format!("{}{}", e.to_string().trim_end(), likeness::hint(e.message())))
        };
        let mut plan: Self = toml::from_str(text).map_err(syntax)?;
        plan.arm = arm::expand(std::mem::take(&mut plan.arm)).map_err(|e| fault(e.to_string()))?;
        plan.check =
            check::expand(std::mem::take(&mut plan.check)).map_err(|e| fault(e.to_string()))?;
        validate::plan(&plan).map_err(fault)?;
        Ok(plan)
    }

    /// The metric of the ratios in the table.
    pub fn headline(&self) -> &str {
        self.headline.list().first().map_or("", String::as_str)
    }

    /// Which direction of `metric` is better; `unit` decides if the plan does not say.
    pub fn better(&self, metric: &str, unit: &str) -> Better {
        let given = self.metric.get(metric).and_then(|m| m.better);
        let time = matches!(unit, "s" | "ms" | "us" | "µs" | "min");
        given.unwrap_or(if time { Better::Lower } else { Better::Higher })
    }
}

/// Every combination of the values; the values of the last name vary fastest.
fn combinations(each: &BTreeMap<String, Vec<String>>) -> Vec<BTreeMap<String, String>> {
    each.iter().fold(vec![BTreeMap::new()], |so_far, (name, values)| {
        let extend = |c: &BTreeMap<String, String>| {
            let with = |v: &String| {
                let mut c = c.clone();
                c.insert(name.clone(), v.clone());
                c
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        so_far.iter().flat_map(extend).collect()
    })
}

fn one() -> u32 {
    1
}

const fn one_at_a_time() -> usize {
    1
}

fn twenty_minutes() -> Duration {
    Duration::from_secs(20 * 60)
}

/// For `#[serde(with)]`: an optional share, written as a percentage like `"50 %"`.
mod optional_share {
    use serde::{Deserialize, Deserializer, de};

    /// Parses a share given as text.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|t| thalweg_units::parse_probability(&t).map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
        let error = Plan::parse("headlin = \"rate\"\n", "x").unwrap_err().to_string();
        let told = ["line 1", "headlin", "did you mean `headline`?"];
        assert!(told.iter().all(|part| error.contains(part)), "{error}");
    }
}
