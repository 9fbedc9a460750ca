//! Judging a plan's checks by its rounds.

use crate::{
    pattern,
    plan::{Aggregate, Better, Check, Choice, Chosen, Plan, Selector},
    record::RoundRecord,
    summary,
    template::{Face, Values},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Its name.
    pub name: String,
    /// The aggregated value; `None`: not evaluated.
    pub value: Option<f64>,
    /// How it was compared.
    pub op: String,
    /// With what.
    pub bound: f64,
    /// Whether it holds; `None`: not evaluated.
    pub pass: Option<bool>,
    /// What the paper reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
}

/// Judges `check`; `None` instead of a verdict where the rounds hold no value for it.
pub fn check(plan: &Plan, check: &Check, rounds: &[RoundRecord]) -> CheckResult {
    let wanted =
        |r: &&RoundRecord| check.cells.as_ref().is_none_or(|cells| pattern::any(cells, &r.cell));
    let rounds: Vec<&RoundRecord> = rounds.iter().filter(wanted).collect();
    let value = if check.per_cell {
        worst_cell(plan, check, &rounds)
    } else {
        one_value(plan, check, &rounds)
    };
    let value = value.filter(|v| v.is_finite());
    CheckResult {
        name: check.name.clone(),
        value,
        op: check.op.sign().to_owned(),
        bound: check.bound,
        pass: value.map(|v| check.op.holds(v, check.bound)),
        paper: check.paper.clone(),
    }
}

/// A check that this run cannot judge.
pub fn not_evaluated(check: &Check) -> CheckResult {
    CheckResult {
        name: check.name.clone(),
        value: None,
        op: check.op.sign().to_owned(),
        bound: check.bound,
        pass: None,
        paper: check.paper.clone(),
    }
}

/// The aggregate of the cell where it is worst; `None` if any cell has none.
fn worst_cell(plan: &Plan, check: &Check, rounds: &[&RoundRecord]) -> Option<f64> {
    let cells: BTreeSet<&str> = rounds.iter().map(|r| r.cell.as_str()).collect();
    let of_cell = |cell: &str| {
        let own: Vec<_> = rounds.iter().copied().filter(|r| r.cell == cell).collect();
        one_value(plan, check, &own)
    };
    let values = cells.into_iter().map(of_cell).collect::<Option<Vec<_>>>()?;
    if check.op.wants_more() { summary::min(&values) } else { summary::max(&values) }
}

fn one_value(plan: &Plan, check: &Check, rounds: &[&RoundRecord]) -> Option<f64> {
    let per_round: Vec<Option<f64>> =
        rounds.iter().flat_map(|round| values(plan, check, round)).collect();
    if check.aggregate == Aggregate::Fraction {
        let condition = check.condition?;
        let met = |v: &&Option<f64>| v.is_some_and(|v| condition.op.holds(v, condition.bound));
        let n = per_round.len();
        return (n > 0).then(|| per_round.iter().filter(met).count() as f64 / n as f64);
    }
    let known: Vec<f64> = per_round.into_iter().flatten().collect();
    summary::aggregate(&known, check.aggregate)
}

/// The check's values in one round: one per selected arm and metric. `None`
/// stands for an arm that ran without getting to a value: a fraction counts
/// it as not met, every other aggregate leaves it out.
fn values(plan: &Plan, check: &Check, round: &RoundRecord) -> Vec<Option<f64>> {
    let mut out = Vec::new();
    for metric in metrics(check, round) {
        let over = match &check.over {
            None => Some(1.0),
            Some(selector) => {
                let metric = check.over_metric.as_deref().unwrap_or(metric);
                chosen(plan, selector, metric, round)
            }
        };
        let ratio = |value: Option<f64>| Some(value? / over.filter(|o| *o != 0.0)?);
        out.extend(selected(plan, &check.of, metric, round).into_iter().map(ratio));
    }
    out
}

/// The metrics of a round that the check's pattern matches.
fn metrics<'a>(check: &'a Check, round: &'a RoundRecord) -> BTreeSet<&'a str> {
    if !check.metric.contains('*') {
        return [check.metric.as_str()].into();
    }
    let all = round.arms.iter().flat_map(|a| a.metrics.keys());
    all.map(String::as_str).filter(|m| pattern::matches(&check.metric, m)).collect()
}

/// Each value by itself, or the one chosen.
fn selected(
    plan: &Plan,
    selector: &Selector,
    metric: &str,
    round: &RoundRecord,
) -> Vec<Option<f64>> {
    match selector {
        Selector::Each(patterns) => {
            let ran =
                round.arms.iter().filter(|a| a.ran() && pattern::any(patterns.list(), &a.name));
            ran.map(|a| Some(a.metrics.get(metric)?.value)).collect()
        }
        Selector::Chosen(_) => vec![chosen(plan, selector, metric, round)],
    }
}

/// One value: the chosen one; of several single arms, the best.
fn chosen(plan: &Plan, selector: &Selector, metric: &str, round: &RoundRecord) -> Option<f64> {
    match selector {
        Selector::Each(list) => choose(plan, Choice::Best, list.list(), metric, round),
        Selector::Chosen(c) => match c.choice() {
            Some((choice, patterns)) => choose(plan, choice, patterns, metric, round),
            None => named(plan, c, metric, round),
        },
    }
}

/// The best of the arms that another arm's label names.
fn named(plan: &Plan, chosen: &Chosen, metric: &str, round: &RoundRecord) -> Option<f64> {
    let by = round.arm(chosen.by.as_deref()?)?;
    let mut values = Values::default();
    for (name, text) in &by.labels {
        values.set(name, text);
    }
    let pattern = values.render(chosen.named.as_deref()?, Face::Real).ok()?;
    choose(plan, Choice::Best, &[pattern], metric, round)
}

/// One value out of those arms that have one; a sum only if all that ran have.
pub(crate) fn choose(
    plan: &Plan,
    choice: Choice,
    patterns: &[String],
    metric: &str,
    round: &RoundRecord,
) -> Option<f64> {
    let ran: Vec<_> =
        round.arms.iter().filter(|a| a.ran() && pattern::any(patterns, &a.name)).collect();
    let samples: Vec<_> = ran.iter().filter_map(|a| a.metrics.get(metric)).collect();
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    let higher = plan.better(metric, &samples.first()?.unit) == Better::Higher;
    match choice {
        Choice::Best if higher => summary::max(&values),
        Choice::Best => summary::min(&values),
        Choice::Worst if higher => summary::min(&values),
        Choice::Worst => summary::max(&values),
        Choice::Median => summary::median(&values),
        Choice::Sum => (values.len() == ran.len()).then(|| values.iter().sum()),
    }
}
