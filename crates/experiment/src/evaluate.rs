//! Evaluates the checks of a plan on its rounds.

use crate::{
    pattern,
    plan::{Aggregate, Better, Check, Choice, Chosen, Plan, Selector},
    record::{ArmRecord, RoundRecord},
    summary,
    template::{TextForm, Values},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    pub name: String,
    /// The aggregated value; `None`: not evaluated.
    pub value: Option<f64>,
    pub op: String,
    /// The bound with which it was compared; `None`: a figure, which is not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Whether it holds; `None`: not evaluated, or a figure.
    pub pass: Option<bool>,
    /// The result that the paper reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
}

impl CheckResult {
    /// Whether it is reported only, and not judged.
    pub fn is_figure(&self) -> bool {
        self.bound.is_none()
    }
}

/// Evaluates `check`. Value and verdict are `None` if the rounds have no value for it.
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
        pass: value.zip(check.bound).map(|(value, bound)| check.op.holds(value, bound)),
        paper: check.paper.clone(),
    }
}

/// The result of a check that this run cannot evaluate.
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

/// The aggregate of the worst cell; `None` if any cell has none.
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
    if check.aggregate == Aggregate::RatioOfMeans {
        let (of, over): (Vec<f64>, Vec<f64>) =
            rounds.iter().flat_map(|round| pairs(plan, check, round)).unzip();
        return Some(summary::mean(&of)? / summary::mean(&over).filter(|mean| *mean != 0.0)?);
    }
    summary::aggregate(&known, check.aggregate)
}

/// The check's values in one round: one for each selected arm and metric. `None` is an arm that ran without producing a
/// value: a fraction counts it as not met, and every other aggregate leaves it out.
fn values(plan: &Plan, check: &Check, round: &RoundRecord) -> Vec<Option<f64>> {
    let mut out = Vec::new();
    for metric in metrics(check, round) {
        let over = over(plan, check, metric, round);
        let ratio = |value: Option<f64>| Some(value? / over.filter(|o| *o != 0.0)?);
        out.extend(selected(plan, &check.of, metric, round).into_iter().map(ratio));
    }
    out
}

/// The value to which those of a metric are compared; 1 if the check compares to none.
fn over(plan: &Plan, check: &Check, metric: &str, round: &RoundRecord) -> Option<f64> {
    let Some(selector) = &check.over else { return Some(1.0) };
    chosen(plan, selector, check.over_metric.as_deref().unwrap_or(metric), round)
}

/// The check's values in one round, each with the value to which it is compared.
fn pairs(plan: &Plan, check: &Check, round: &RoundRecord) -> Vec<(f64, f64)> {
    let of_metric = |metric: &str| {
        let over = over(plan, check, metric, round);
        let all = selected(plan, &check.of, metric, round).into_iter().flatten();
        all.filter_map(|value| Some((value, over?))).collect::<Vec<_>>()
    };
    metrics(check, round).into_iter().flat_map(of_metric).collect()
}

/// The metrics of a round that match the check's pattern.
fn metrics<'a>(check: &'a Check, round: &'a RoundRecord) -> BTreeSet<&'a str> {
    if !check.metric.contains('*') {
        return [check.metric.as_str()].into();
    }
    let all = round.arms.iter().flat_map(|a| a.metrics.keys());
    all.map(String::as_str).filter(|m| pattern::matches(&check.metric, m)).collect()
}

/// The values that the selector selects: each one, or the chosen one.
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

/// A single value: the chosen one or, if the selector lists arms, the best of them.
fn chosen(plan: &Plan, selector: &Selector, metric: &str, round: &RoundRecord) -> Option<f64> {
    match selector {
        Selector::Each(list) => choose(plan, Choice::Best, list.list(), metric, round),
        Selector::Chosen(c) => match c.choice() {
            Some((choice, patterns)) => choose(plan, choice, patterns, metric, round),
            None => named(plan, c, metric, round),
        },
    }
}

/// The best value of the arms that the label of another arm names.
fn named(plan: &Plan, chosen: &Chosen, metric: &str, round: &RoundRecord) -> Option<f64> {
    let by = round.arm(chosen.by.as_deref()?)?;
    let mut values = Values::default();
    for (name, text) in &by.labels {
        values.set(name, text);
    }
    let pattern = values.render(chosen.named.as_deref()?, TextForm::Real).ok()?;
    choose(plan, Choice::Best, &[pattern], metric, round)
}

/// Chooses a value from the arms that have one. A sum requires a value from every arm that ran.
///
/// `None` unless every matching arm of the plan ran: the best of only some of the plan's competitors is not a valid
/// reference. Arms that run only in some cells may be absent.
pub(crate) fn choose(
    plan: &Plan,
    choice: Choice,
    patterns: &[String],
    metric: &str,
    round: &RoundRecord,
) -> Option<f64> {
    let meant = plan.arm.iter().filter(|a| a.when.is_empty() && pattern::any(patterns, &a.name));
    if meant.into_iter().any(|a| !round.arm(&a.name).is_some_and(ArmRecord::ran)) {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, Sample};
    use std::collections::BTreeMap;

    /// A plan with the arms a, b, c and one check with the keys `rest`.
    fn plan(rest: &str) -> Plan {
        let arm = |name| {
            format!(
                "[[arm]]\nname='{name}'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n"
            )
        };
        let head = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\n[validity]\n";
        let arms = ["a", "b", "c"].map(arm).concat();
        Plan::parse(&format!("{head}{arms}[[check]]\nname='k'\nmetric='v'\n{rest}"), "x").unwrap()
    }

    /// A round of a cell with the value of each arm, in points; `None`: the arm has no value.
    fn round(cell: &str, values: [Option<f64>; 3]) -> RoundRecord {
        let arm = |(name, value): (&str, Option<f64>)| {
            let mut arm = ArmRecord::new(name, vec![], Outcome::Done);
            arm.outcome = Outcome::Unfinished(String::new());
            if let Some(value) = value {
                arm.metrics.insert("v".into(), Sample { unit: "points".into(), value });
            }
            arm.labels.insert("best".into(), "c".into());
            arm
        };
        let arms = ["a", "b", "c"].into_iter().zip(values).map(arm).collect();
        let cases = BTreeMap::new();
        RoundRecord { cell: cell.into(), cases, seed: 1, repeat: 0, limit: None, arms }
    }

    fn value(rest: &str, rounds: &[RoundRecord]) -> Option<f64> {
        let plan = plan(rest);
        check(&plan, &plan.check[0], rounds).value
    }

    fn two() -> [RoundRecord; 2] {
        let all = |a, b, c| [Some(a), Some(b), Some(c)];
        [round("x", all(10.0, 4.0, 5.0)), round("y", all(30.0, 10.0, 6.0))]
    }

    const OPS: &str = "\nop='>='\nbound=1";

    #[test]
    fn ratios_are_paired_within_a_round() {
        let of = |over: &str| value(&format!("of='a'\nover={over}{OPS}"), &two());
        // The mean of 10/5 and 30/10, not 20/7.5.
        assert_eq!(of("{best=['b','c']}"), Some(2.5));
        assert_eq!(of("{worst=['b','c']}"), Some(3.75));
        assert_eq!(of("{sum=['b','c']}"), Some((10.0 / 9.0 + 30.0 / 16.0) / 2.0));
        assert_eq!(of("{median=['*']}"), Some((2.0 + 3.0) / 2.0));
        assert_eq!(of("{named='{best}',by='a'}"), Some((2.0 + 5.0) / 2.0));
    }

    #[test]
    fn a_ratio_of_means_pools_all_rounds() {
        let of = |over: &str| format!("of='a'\nover={over}\naggregate='ratio-of-means'{OPS}");
        assert_eq!(value(&of("'b'"), &two()), Some(40.0 / 14.0));
        let mut failed = two();
        failed[1].arms[1].metrics.clear();
        assert_eq!(value(&of("'b'"), &failed), Some(10.0 / 4.0));
    }

    #[test]
    fn the_best_needs_all_arms_to_have_run() {
        let best = format!("of='a'\nover={{best=['b','c']}}{OPS}");
        let mut absent = two();
        absent[0].arms.retain(|arm| arm.name != "c");
        assert_eq!(value(&best, &absent[..1]), None);
        let mut skipped = two();
        skipped[0].arms[2].outcome = Outcome::Skipped("not installed".into());
        assert_eq!(value(&best, &skipped[..1]), None);
        // An arm that ran without a value loses against those with one.
        let mut failed = two();
        failed[0].arms[2].outcome = Outcome::Unfinished(String::new());
        failed[0].arms[2].metrics.clear();
        assert_eq!(value(&best, &failed[..1]), Some(2.5));
    }

    #[test]
    fn the_best_time_is_the_smallest() {
        let mut plan = plan(&format!("of='a'\nover={{best=['b','c']}}{OPS}"));
        plan.metric.insert("v".into(), crate::plan::MetricInfo { better: Some(Better::Lower) });
        assert_eq!(check(&plan, &plan.check[0], &two()).value, Some((2.5 + 5.0) / 2.0));
    }

    #[test]
    fn a_per_cell_check_uses_the_worst_cell() {
        assert_eq!(value(&format!("of='a'\nper_cell=true{OPS}"), &two()), Some(10.0));
        let at_most = "of='a'\nper_cell=true\nop='<='\nbound=1";
        assert_eq!(value(at_most, &two()), Some(30.0));
        assert_eq!(value(&format!("of='a'\ncells=['y*']{OPS}"), &two()), Some(30.0));
        assert_eq!(value(&format!("of='a'\ncells=['z']{OPS}"), &two()), None);
    }

    #[test]
    fn a_missing_value_fails_a_fraction_and_is_left_out_of_a_median() {
        let rounds = [
            round("", [Some(10.0), Some(4.0), None]),
            round("", [None, Some(4.0), Some(1.0)]),
            round("", [Some(2.0), Some(4.0), Some(1.0)]),
        ];
        let fraction = "of='a'\naggregate='fraction'\ncondition={op='>=',bound=2}";
        assert_eq!(value(&format!("{fraction}{OPS}"), &rounds), Some(2.0 / 3.0));
        assert_eq!(value(&format!("of='a'{OPS}"), &rounds), Some(6.0));
        // A sum with a missing part has no value.
        assert_eq!(
            value(&format!("of={{sum=['a','b']}}\naggregate='max'{OPS}"), &rounds),
            Some(14.0)
        );
    }

    #[test]
    fn a_check_without_values_is_not_evaluated() {
        let plan = plan(&format!("of='a'{OPS}"));
        let nothing = check(&plan, &plan.check[0], &[round("", [None; 3])]);
        assert_eq!((nothing.value, nothing.pass), (None, None));
        let zero = format!("of='a'\nover='b'{OPS}");
        assert_eq!(value(&zero, &[round("", [Some(1.0), Some(0.0), None])]), None, "division by 0");
    }
}
