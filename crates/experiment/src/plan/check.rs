//! The checks and plots of a plan.

use super::OneOrMany;
use crate::{
    error::Result,
    template::{TextForm, Values},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    #[serde(rename = ">=")]
    Ge,
    #[serde(rename = "<=")]
    Le,
    #[serde(rename = ">")]
    Gt,
    #[serde(rename = "<")]
    Lt,
}

impl Op {
    /// Whether `value op bound` holds; never for NaN.
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Ge => value >= bound,
            Self::Le => value <= bound,
            Self::Gt => value > bound,
            Self::Lt => value < bound,
        }
    }

    /// The operator as written in the plan.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Ge => ">=",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Lt => "<",
        }
    }

    /// Whether small values fail, so that the smallest value is the worst.
    pub const fn wants_more(self) -> bool {
        matches!(self, Self::Ge | Self::Gt)
    }
}

/// How the values of several arms are reduced to one value per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The best value, by the metric's direction.
    Best,
    Worst,
    Sum,
    Median,
}

/// Selects the values that a check takes from each round.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Selector {
    /// `of = "get"`, `of = ["get", "get-paper"]`: every value of these arms; patterns are allowed.
    Each(OneOrMany),
    /// `of = { best = ["solo-*"] }`: one value.
    Chosen(Chosen),
}

/// One value per round.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The best of these arms.
    pub best: Option<Vec<String>>,
    /// The worst of these arms.
    pub worst: Option<Vec<String>>,
    /// The sum over these arms.
    pub sum: Option<Vec<String>>,
    /// The median of these arms.
    pub median: Option<Vec<String>>,
    /// The arm that a label of the arm `by` names: `{ named = "solo-*-{path}", by = "get" }` is the best of the arms
    /// that match when `{path}` is the label `path` of `get`.
    pub named: Option<String>,
    /// The arm whose label is used.
    pub by: Option<String>,
}

impl Chosen {
    /// The choice and its patterns; `None` unless exactly one is given.
    pub fn choice(&self) -> Option<(Choice, &[String])> {
        let all = [
            (Choice::Best, &self.best),
            (Choice::Worst, &self.worst),
            (Choice::Sum, &self.sum),
            (Choice::Median, &self.median),
        ];
        let mut given = all.iter().filter_map(|(c, p)| Some((*c, p.as_deref()?)));
        let first = given.next()?;
        given.next().is_none().then_some(first)
    }
}

/// How the values of a check's rounds are reduced to one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    #[default]
    Median,
    Min,
    Max,
    Mean,
    /// The 95th percentile, nearest rank.
    P95,
    /// The 99th percentile, nearest rank.
    P99,
    /// Lower end of the mean's 95 % confidence interval (Student).
    Ci95Low,
    /// Upper end of the mean's 95 % confidence interval (Student).
    Ci95High,
    /// The share of rounds that meet `condition`.
    Fraction,
    /// The mean of the values over the mean of those of `over`, as in tables that pool all runs.
    RatioOfMeans,
}

/// A condition on the value of one round.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub op: Op,
    pub bound: f64,
}

/// A check: a condition that must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The name in results; may contain the placeholders of `each`.
    pub name: String,
    /// One check for every combination of these values.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<String>>,
    /// The metric; a pattern matches several, and each value counts.
    pub metric: String,
    /// The arms whose values are checked.
    pub of: Selector,
    /// The arms in the same round to which the values are compared; the value is then a ratio.
    pub over: Option<Selector>,
    /// The metric of `over`, if it differs.
    pub over_metric: Option<String>,
    /// How the values of all rounds are reduced to one.
    #[serde(default)]
    pub aggregate: Aggregate,
    /// The condition for `fraction`.
    pub condition: Option<Condition>,
    /// Patterns of the cells that count; absent: all.
    pub cells: Option<Vec<String>>,
    /// Whether it must hold in every cell: the value is then that of the worst cell.
    #[serde(default)]
    pub per_cell: bool,
    /// How the value is compared.
    pub op: Op,
    /// The bound. It is copied from the issue and not edited after a failure. Absent: the value is a figure, which is
    /// reported and not judged.
    pub bound: Option<f64>,
    /// The result that the paper reports.
    pub paper: Option<String>,
}

/// The kind of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// The median of each arm, with a line from the smallest to the largest value.
    Bars,
    /// The cumulative distribution over rounds, with a curve for each arm.
    Cdf,
    /// The median against the axis `x` of `[[vary]]`, with a curve for each arm.
    Lines,
    /// A time series from the arms' output, with a curve for each arm.
    Series,
    /// A time series as points.
    Dots,
}

/// A plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The last part of the file's name, without the extension.
    pub name: String,
    pub kind: PlotKind,
    /// The metric or series; a pattern matches several series.
    pub metric: String,
    /// Patterns of arms; absent: all.
    pub arms: Option<Vec<String>>,
    /// Patterns of the cells that count; absent: all.
    pub cells: Option<Vec<String>>,
    /// For `lines`: the axis. For series: the unit of the horizontal axis, if it is not seconds.
    pub x: Option<String>,
    /// The title, with placeholders of `[params]`; absent: the claim.
    pub title: Option<String>,
    /// The unit of the vertical axis; absent: that of the metric.
    pub unit: Option<String>,
}

/// Replaces every check that has `each` by copies, one for every combination of values.
pub(super) fn expand(checks: Vec<Check>) -> Result<Vec<Check>> {
    let mut out = Vec::with_capacity(checks.len());
    for check in checks {
        for choice in super::combinations(&check.each) {
            let mut values = Values::default();
            choice.iter().for_each(|(name, value)| values.set(name, value));
            let mut copy = check.clone();
            copy.name = values.render(&check.name, TextForm::Real)?;
            copy.metric = values.render(&check.metric, TextForm::Real)?;
            for selector in [Some(&mut copy.of), copy.over.as_mut()].into_iter().flatten() {
                rename(selector, &choice);
            }
            for cell in copy.cells.iter_mut().flatten() {
                *cell = values.render(cell, TextForm::Real)?;
            }
            out.push(copy);
        }
    }
    Ok(out)
}

/// Replaces the placeholders of `each` in a selector. Other placeholders are labels and stay.
fn rename(selector: &mut Selector, choice: &BTreeMap<String, String>) {
    let texts: Vec<&mut String> = match selector {
        Selector::Each(OneOrMany::One(one)) => vec![one],
        Selector::Each(OneOrMany::Many(many)) => many.iter_mut().collect(),
        Selector::Chosen(c) => {
            let lists = [&mut c.best, &mut c.worst, &mut c.sum, &mut c.median];
            let single = [&mut c.named, &mut c.by].into_iter().flatten();
            lists.into_iter().flatten().flatten().chain(single).collect()
        }
    };
    for text in texts {
        for (name, value) in choice {
            *text = text.replace(&format!("{{{name}}}"), value);
        }
    }
}
