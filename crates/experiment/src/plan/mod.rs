//! An experiment's plan: what its TOML file says.
//!
//! docs/experiments.md is the reference for who writes one. Unknown keys are
//! refused everywhere, so that a misspelt bound cannot be lost in silence.

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

/// Where an experiment takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// In hosts of an emulated Internet.
    Lab,
    /// On this machine, over loopback.
    Host,
}

/// How long one network and its services live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each arm gets a fresh one: same link state, same random losses.
    #[default]
    Arm,
    /// All arms of a round share one.
    Round,
}

/// What makes a run count.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validity {
    /// Largest 99th percentile of packets' lateness in the lab; absent: not judged.
    #[serde(default, with = "thalweg_units::serde_duration::option")]
    pub lateness_p99: Option<Duration>,
    /// Largest share of an arm's time in which some task waited for a CPU, 0..=1.
    #[serde(default, with = "optional_share")]
    pub cpu_pressure: Option<f64>,
    /// The congestion control that every data connection must have used; may hold placeholders.
    pub congestion_control: Option<String>,
    /// How often an arm may run in a round until it is within the bounds.
    ///
    /// Only the bounds above decide, never a result; attempts are recorded.
    #[serde(default = "one")]
    pub attempts: u32,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Instead of the plan's.
    pub seeds: Option<Seeds>,
    /// Instead of the plan's.
    pub repeats: Option<u32>,
    /// Patterns of the arms to run; absent: all.
    pub arms: Option<Vec<String>>,
    /// Patterns of the cells to run; absent: all.
    pub cells: Option<Vec<String>>,
    /// Parameters that replace the plan's.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Checks that this cannot judge.
    #[serde(default)]
    pub not_evaluated: Vec<String>,
}

/// A fixture made for the run, in its scratch directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Its placeholder: `{name}` is the path, `{name.bytes}` and `{name.blake3}` are known.
    pub name: String,
    /// Path below the scratch directory.
    pub path: String,
    /// Random bytes of this size (a quantity, may hold placeholders) …
    pub size: Option<String>,
    /// … or this text, with placeholders.
    pub content: Option<String>,
}

/// A program that runs beside the arms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name; an instance is `name@host`.
    pub name: String,
    /// Host or hosts (an instance on each); absent in `kind = "host"`.
    #[serde(default)]
    pub host: OneOrMany,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Programs that must be installed; else `otherwise` runs, or those arms that need it are skipped.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Program and arguments where `requires` is not met.
    pub otherwise: Option<Vec<String>>,
    /// When it counts as up.
    #[serde(default)]
    pub ready: Ready,
    /// Runs only in cells where each of these parameters has one of the values.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<toml::Value>>,
    /// Patterns of the arms it runs for; absent: all. Needs `network = "arm"`.
    pub arms: Option<Vec<String>>,
}

/// When a service counts as up; the empty condition: at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// A TCP listener on this port (may be a placeholder).
    pub port: Option<toml::Value>,
    /// A line with this text on its output.
    pub line: Option<String>,
    /// It has ended, with success: a preparation.
    #[serde(default)]
    pub exit: bool,
    /// How long that may take.
    #[serde(default = "twenty_seconds", with = "thalweg_units::serde_duration")]
    pub within: Duration,
    /// For the estimate, where it takes long; may hold placeholders.
    pub expect: Option<String>,
}

impl Default for Ready {
    fn default() -> Self {
        Self { port: None, line: None, exit: false, within: twenty_seconds(), expect: None }
    }
}

/// A service that is not up by then will not come up, unless its plan knows better.
const fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

/// What is known of a metric beforehand.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricInfo {
    /// Which direction is good; absent: lower for times, higher for all else.
    pub better: Option<Better>,
}

/// Which direction of a metric is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// As for a rate.
    Higher,
    /// As for a time.
    Lower,
}

/// The network's own bound on the headline metric, from the topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Where the data starts.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Hosts that may relay.
    #[serde(default)]
    pub via: Vec<String>,
}

/// A plan, whole.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name: the file's.
    pub name: String,
    /// What it is to show, in a sentence.
    pub claim: String,
    /// Where the claim comes from.
    pub paper: Option<String>,
    /// Where it takes place.
    pub kind: Kind,
    /// The longest that a full run may be estimated at.
    #[serde(default = "twenty_minutes", with = "thalweg_units::serde_duration")]
    pub budget: Duration,
    /// The table's metrics; its ratios are of the first.
    pub headline: OneOrMany,
    /// An axis of `vary` whose cases have rows of their own: scenes so different that a median over them is none's.
    pub rows_by: Option<String>,
    /// One round each.
    #[serde(default)]
    pub seeds: Seeds,
    /// Rounds per cell and seed.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Rounds beside each other, 1 or more, each in a lab of its own; what is compared is of one round,
    /// and `validity` says whether the machine could bear it.
    #[serde(default = "one_at_a_time")]
    pub abreast: usize,
    /// How long one network lives.
    #[serde(default)]
    pub network: Scope,
    /// Pause between the services' start and the arm's.
    #[serde(default, with = "thalweg_units::serde_duration")]
    pub settle: Duration,
    /// When a run counts.
    pub validity: Validity,
    /// The run in a minute.
    #[serde(default)]
    pub quick: Quick,
    /// Values for placeholders.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Values drawn from the round's seed.
    #[serde(default)]
    pub draw: BTreeMap<String, Draw>,
    /// Names for which a free TCP port is found: `{port.NAME}`.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The network: a table of docs/lab.md, or the name of a file beside the plan.
    pub topology: Option<toml::Value>,
    /// The cells.
    #[serde(default)]
    pub vary: Vec<Axis>,
    /// Which of the cells.
    #[serde(default)]
    pub matrix: Matrix,
    /// Fixtures.
    #[serde(default)]
    pub file: Vec<Fixture>,
    /// Programs beside the arms.
    #[serde(default)]
    pub service: Vec<Service>,
    /// What is compared.
    pub arm: Vec<Arm>,
    /// What is known of the metrics.
    #[serde(default)]
    pub metric: BTreeMap<String, MetricInfo>,
    /// The network's own bound.
    pub limit: Option<Limit>,
    /// What must hold.
    pub check: Vec<Check>,
    /// Pictures of the result.
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
    /// Reads a plan; `origin` names it in errors.
    ///
    /// # Errors
    /// With the line on a fault of form, or in words on a fault of sense
    /// (an unknown arm in a check, an unknown placeholder, an estimate beyond the budget …).
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

    /// The metric of the table's ratios.
    pub fn headline(&self) -> &str {
        self.headline.list().first().map_or("", String::as_str)
    }

    /// Which direction of `metric` is good; `unit` decides where the plan is silent.
    pub fn better(&self, metric: &str, unit: &str) -> Better {
        let told = self.metric.get(metric).and_then(|m| m.better);
        let time = matches!(unit, "s" | "ms" | "us" | "µs" | "min");
        told.unwrap_or(if time { Better::Lower } else { Better::Higher })
    }
}

/// Every combination of the values, the last name's fastest.
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

/// An optional share, as a percentage with its sign.
mod optional_share {
    use serde::{Deserialize, Deserializer, de};

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
