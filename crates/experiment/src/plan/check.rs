//! What must hold, and what is drawn.

use super::OneOrMany;
use crate::{
    error::Result,
    template::{Face, Values},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// At least.
    #[serde(rename = ">=")]
    Ge,
    /// At most.
    #[serde(rename = "<=")]
    Le,
    /// More than.
    #[serde(rename = ">")]
    Gt,
    /// Less than.
    #[serde(rename = "<")]
    Lt,
}

impl Op {
    /// Whether `value op bound`; never for NaN.
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Ge => value >= bound,
            Self::Le => value <= bound,
            Self::Gt => value > bound,
            Self::Lt => value < bound,
        }
    }

    /// As in the plan.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Ge => ">=",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Lt => "<",
        }
    }

    /// Whether smaller values fail: the worst is then the smallest.
    pub const fn wants_more(self) -> bool {
        matches!(self, Self::Ge | Self::Gt)
    }
}

/// One value per round out of those of several arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The best, by the metric's direction.
    Best,
    /// The worst.
    Worst,
    /// All together.
    Sum,
    /// The middle one.
    Median,
}

/// Which arms' values a check takes, per round.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Selector {
    /// `of = "get"`, `of = ["get", "get-paper"]`: each value by itself; may be a pattern.
    Each(OneOrMany),
    /// `of = { best = ["solo-*"] }`.
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
    /// The arm that `arm`'s label names: `{ named = "solo-*-{path}", by = "get" }`
    /// is the best of those arms that match when `{path}` is get's label `path`.
    pub named: Option<String>,
    /// Whose label.
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

/// One number out of a check's rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    /// The middle one.
    #[default]
    Median,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
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
}

/// A condition on one round's value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// How.
    pub op: Op,
    /// With what.
    pub bound: f64,
}

/// Something that must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name, as the results list it; may hold the placeholders of `each`.
    pub name: String,
    /// One check for every combination of these values.
    #[serde(default)]
    pub each: BTreeMap<String, Vec<String>>,
    /// The metric; a pattern matches several, each value counts.
    pub metric: String,
    /// Whose.
    pub of: Selector,
    /// Relative to whose, in the same round: the value is then a ratio.
    pub over: Option<Selector>,
    /// The metric of `over`, where it is another.
    pub over_metric: Option<String>,
    /// How the rounds' values become one.
    #[serde(default)]
    pub aggregate: Aggregate,
    /// For `fraction`.
    pub condition: Option<Condition>,
    /// Patterns of the cells that count; absent: all.
    pub cells: Option<Vec<String>>,
    /// It must hold in every cell by itself: the value is the worst cell's.
    #[serde(default)]
    pub per_cell: bool,
    /// How the value is compared.
    pub op: Op,
    /// With what. Copied from the issue; not edited after a failure.
    pub bound: f64,
    /// What the paper reports.
    pub paper: Option<String>,
}

/// What a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// Median per arm, with a line from the smallest to the largest.
    Bars,
    /// Cumulative distribution over rounds, a curve per arm.
    Cdf,
    /// Median against the axis `x` of `[[vary]]`, a curve per arm.
    Lines,
    /// A time series from the arms' output, a curve per arm.
    Series,
    /// The same, its points alone.
    Dots,
}

/// A picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The file's name, without its ending.
    pub name: String,
    /// What it shows.
    pub kind: PlotKind,
    /// Of which metric, or which series; a pattern takes several series.
    pub metric: String,
    /// Patterns of arms; absent: all.
    pub arms: Option<Vec<String>>,
    /// Patterns of the cells that count; absent: all.
    pub cells: Option<Vec<String>>,
    /// The axis, for `lines`; what is along a series, for the others, where it is not seconds.
    pub x: Option<String>,
    /// The heading, with placeholders of `[params]`; absent: the claim.
    pub title: Option<String>,
    /// The unit on a series' vertical axis; absent: the metric's.
    pub unit: Option<String>,
}

/// Replaces every check with `each` by its copies, one for every combination.
pub(super) fn expand(checks: Vec<Check>) -> Result<Vec<Check>> {
    let mut out = Vec::with_capacity(checks.len());
    for check in checks {
        for choice in super::combinations(&check.each) {
            let mut values = Values::default();
            choice.iter().for_each(|(name, value)| values.set(name, value));
            let mut copy = check.clone();
            copy.name = values.render(&check.name, Face::Real)?;
            copy.metric = values.render(&check.metric, Face::Real)?;
            for selector in [Some(&mut copy.of), copy.over.as_mut()].into_iter().flatten() {
                rename(selector, &choice);
            }
            for cell in copy.cells.iter_mut().flatten() {
                *cell = values.render(cell, Face::Real)?;
            }
            out.push(copy);
        }
    }
    Ok(out)
}

/// Replaces the values of `each` in a selector; other placeholders are labels and stay.
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
