//! The report on a run: one JSON object, and the verdict.

use crate::{
    evaluate::{self, CheckResult},
    machine::Machine,
    pattern,
    plan::{Arm, Choice, Plan, Role},
    record::{ArmRecord, Outcome, RoundRecord, Sample, Sockets},
    summary, validity,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The statistics of a metric over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricReport {
    pub unit: String,
    /// Number of rounds with a value.
    pub n: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Socket buffers as sampled during the run; 0: no socket was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// The largest receive buffer, bytes.
    pub receive_bytes: u64,
    /// The largest send buffer, bytes.
    pub send_bytes: u64,
}

/// The results of an arm over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmReport {
    pub name: String,
    /// The case of the plan's `rows_by` axis, if the report covers only rounds with this case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    /// Program and arguments of its first round, without paths of this machine.
    pub command: String,
    /// The version that the program reports.
    pub version: Option<String>,
    /// Congestion control as sampled during the run; several algorithms are separated by commas. `None`: no socket was
    /// seen.
    pub congestion_control: Option<String>,
    /// Socket buffers as sampled during the run.
    pub buffers: Buffers,
    /// Its metrics, and the per-round ratios of the headline metric (`… / best peer`, `… / limit`).
    pub metrics: BTreeMap<String, MetricReport>,
    /// Its labels: the number of rounds for each name and text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, BTreeMap<String, usize>>,
    /// Why it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The result of a run, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the experiment.
    pub name: String,
    /// The sources of the program that ran, from [`machine::sources`](crate::machine::sources).
    pub commit: String,
    pub machine: Machine,
    /// Whether the run is valid.
    pub valid: bool,
    pub arms: Vec<ArmReport>,
    pub checks: Vec<CheckResult>,
}

/// The verdict on a run, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Valid, and all checks hold: exit code 0.
    Holds,
    /// Not valid: exit code 1.
    Invalid,
    /// Valid, and some check does not hold: exit code 2.
    Short,
}

impl Verdict {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Invalid => 1,
            Self::Short => 2,
        }
    }
}

/// Builds the report. A `quick` run does not evaluate the checks in the plan's `quick.not_evaluated`; in every run,
/// checks without values are not evaluated.
pub fn build(
    plan: &Plan,
    arms: &[&Arm],
    rounds: &[RoundRecord],
    commit: String,
    quick: bool,
) -> Report {
    let judge = |c: usize| {
        let skip = quick && plan.quick.not_evaluated.contains(&plan.check[c].name);
        let check = &plan.check[c];
        if skip { evaluate::not_evaluated(check) } else { evaluate::check(plan, check, rounds) }
    };
    Report {
        name: plan.name.clone(),
        commit,
        machine: Machine::local(),
        valid: validity::faults(plan, rounds).is_empty(),
        arms: arm_reports(plan, arms, rounds),
        checks: (0..plan.check.len()).map(judge).collect(),
    }
}

impl Report {
    /// The verdict. In a complete run (not `partial`) a check without a value does not hold, so that leaving an arm out
    /// cannot make a run pass.
    pub fn verdict(&self, partial: bool) -> Verdict {
        let holds = |c: &CheckResult| c.pass.unwrap_or(partial || c.is_figure());
        match (self.valid, self.checks.iter().all(holds)) {
            (false, _) => Verdict::Invalid,
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Short,
        }
    }
}

/// The reports on all arms: one per arm, or one per arm and case of the plan's `rows_by` axis.
fn arm_reports(plan: &Plan, arms: &[&Arm], rounds: &[RoundRecord]) -> Vec<ArmReport> {
    let Some(axis) = &plan.rows_by else {
        return arms.iter().map(|arm| arm_report(plan, arm, &all(rounds))).collect();
    };
    let mut scenes: Vec<&String> = Vec::new();
    for scene in rounds.iter().filter_map(|round| round.cases.get(axis)) {
        if !scenes.contains(&scene) {
            scenes.push(scene);
        }
    }
    let of = |scene: &String| {
        let rounds: Vec<_> = rounds.iter().filter(|r| r.cases.get(axis) == Some(scene)).collect();
        let applies = |arm: &&&Arm| rounds.iter().any(|round| round.arm(&arm.name).is_some());
        let reports = arms.iter().filter(applies).map(|arm| arm_report(plan, arm, &rounds));
        reports.map(|report| ArmReport { scene: Some(scene.clone()), ..report }).collect::<Vec<_>>()
    };
    scenes.into_iter().flat_map(of).collect()
}

fn all(rounds: &[RoundRecord]) -> Vec<&RoundRecord> {
    rounds.iter().collect()
}

fn arm_report(plan: &Plan, arm: &Arm, rounds: &[&RoundRecord]) -> ArmReport {
    let records: Vec<&ArmRecord> = rounds.iter().filter_map(|r| r.arm(&arm.name)).collect();
    let first = records.iter().find(|r| r.ran()).or(records.first());
    let mut sockets = Sockets::default();
    records.iter().for_each(|r| sockets.merge(&r.sockets));
    let algorithms: Vec<_> = sockets.congestion_control.into_iter().collect();
    let skipped = match first.map(|r| &r.outcome) {
        Some(Outcome::Skipped(why)) => Some(why.clone()),
        None => Some("the arm applies to none of the rounds".to_owned()),
        _ => None,
    };
    ArmReport {
        name: arm.name.clone(),
        scene: None,
        command: first.map(|r| shell_words(&r.command)).unwrap_or_default(),
        version: first.and_then(|r| r.version.clone()),
        congestion_control: (!algorithms.is_empty()).then(|| algorithms.join(", ")),
        buffers: Buffers { receive_bytes: sockets.receive_bytes, send_bytes: sockets.send_bytes },
        metrics: metrics(plan, arm, rounds),
        labels: labels(&records),
        skipped,
    }
}

fn labels(records: &[&ArmRecord]) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut labels: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (name, text) in records.iter().flat_map(|record| &record.labels) {
        *labels.entry(name.clone()).or_default().entry(text.clone()).or_default() += 1;
    }
    labels
}

fn metrics(plan: &Plan, arm: &Arm, rounds: &[&RoundRecord]) -> BTreeMap<String, MetricReport> {
    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for round in rounds {
        let Some(record) = round.arm(&arm.name).filter(|a| a.ran()) else { continue };
        let mut add = |name: &str, unit: &str, value: f64| {
            samples.entry(name.to_owned()).or_default().push(Sample { unit: unit.into(), value });
        };
        record.metrics.iter().for_each(|(name, s)| add(name, &s.unit, s.value));
        for (name, ratio) in ratios(plan, arm, round) {
            add(&name, "ratio", ratio);
        }
        // A tool that runs a lab itself reports its own lateness and pressure as metrics.
        if let Some(late) = record.lateness_p99_us.filter(|_| !record.has("lateness_p99")) {
            add("lateness_p99", "us", late as f64);
        }
        if let Some(pressure) = record.cpu_pressure.filter(|_| !record.has("cpu_pressure")) {
            add("cpu_pressure", "%", pressure * 100.0);
        }
    }
    samples.into_iter().filter_map(|(name, s)| Some((name, metric_report(&s)?))).collect()
}

/// The ratios of the headline metric in one round: to the best peer and to the network's bound.
fn ratios(plan: &Plan, arm: &Arm, round: &RoundRecord) -> Vec<(String, f64)> {
    let headline = plan.headline();
    let Some(sample) = round.arm(&arm.name).and_then(|a| a.metrics.get(headline)) else {
        return vec![];
    };
    let peers: Vec<String> =
        plan.arm.iter().filter(|a| a.role == Role::Peer).map(|a| a.name.clone()).collect();
    let peer = evaluate::choose(plan, Choice::Best, &peers, headline, round);
    let limit = round.limit.filter(|_| sample.unit == "Mbit/s");
    [(best_peer(headline), peer), (of_limit(headline), limit)]
        .into_iter()
        .filter_map(|(name, over)| Some((name, sample.value / over.filter(|o| *o > 0.0)?)))
        .collect()
}

/// The name of the ratio to the best peer.
pub fn best_peer(metric: &str) -> String {
    format!("{metric} / best peer")
}

/// The name of the ratio to the network's bound.
pub fn of_limit(metric: &str) -> String {
    format!("{metric} / limit")
}

fn metric_report(samples: &[Sample]) -> Option<MetricReport> {
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    Some(MetricReport {
        unit: samples.first()?.unit.clone(),
        n: values.len(),
        median: summary::median(&values)?,
        min: summary::min(&values)?,
        max: summary::max(&values)?,
    })
}

/// A command line as typed in a shell, with words quoted where necessary.
pub fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quote = |w: &String| {
        if !w.is_empty() && w.chars().all(plain) {
            w.clone()
        } else {
            format!("'{}'", w.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Whether `patterns` leave out any arm of the plan.
pub fn is_partial(plan: &Plan, patterns: &[String]) -> bool {
    !patterns.is_empty() && plan.arm.iter().any(|a| !pattern::any(patterns, &a.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report on a run of one arm with this outcome and value; its check requires at least 1.
    fn report(outcome: Outcome, value: f64) -> Report {
        let text = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\n[validity]\n\
            [[arm]]\nname='a'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n\
            [[check]]\nname='k'\nmetric='v'\nof='a'\nop='>='\nbound=1\n";
        let plan = Plan::parse(text, "x").unwrap();
        let mut arm = ArmRecord::new("a", vec![], Outcome::Done);
        arm.metrics.insert("v".into(), Sample { unit: "Mbit/s".into(), value });
        arm.labels.insert("tree".into(), "s>a".into());
        arm.outcome = outcome;
        let (cell, cases) = (String::new(), BTreeMap::new());
        let round =
            RoundRecord { cell, cases, seed: 1, repeat: 0, limit: Some(4.0), arms: vec![arm] };
        build(&plan, &plan.arm.iter().collect::<Vec<_>>(), &[round], "c".into(), false)
    }

    #[test]
    fn the_verdict_follows_validity_then_the_checks() {
        let holds = report(Outcome::Done, 2.0);
        assert_eq!(holds.verdict(false), Verdict::Holds);
        assert_eq!(holds.arms[0].metrics["v / limit"].median, 0.5);
        assert_eq!(holds.arms[0].labels["tree"], [("s>a".to_owned(), 1)].into());
        assert_eq!(report(Outcome::Done, 0.9).verdict(true), Verdict::Short);
        assert_eq!(report(Outcome::Failed("x".into()), 2.0).verdict(true), Verdict::Invalid);
    }

    #[test]
    fn a_check_without_a_value_fails_only_a_complete_run() {
        let unjudged = report(Outcome::Skipped("not installed".into()), 2.0);
        assert_eq!(unjudged.checks[0].pass, None);
        assert_eq!(unjudged.arms[0].skipped.as_deref(), Some("not installed"));
        let verdicts = (unjudged.verdict(true), unjudged.verdict(false));
        assert_eq!(verdicts, (Verdict::Holds, Verdict::Short));
    }

    #[test]
    fn cases_of_the_rows_by_axis_have_separate_rows() {
        let text = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\nrows_by='scene'\n[validity]\n\
            [[vary]]\nname='scene'\nvalues=['calm','busy']\n\
            [[arm]]\nname='a'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n\
            [[check]]\nname='k'\nmetric='v'\nof='a'\nop='>='\nbound=1\n";
        let plan = Plan::parse(text, "x").unwrap();
        let round = |scene: &str, value: f64| {
            let mut arm = ArmRecord::new("a", vec![], Outcome::Done);
            arm.metrics.insert("v".into(), Sample { unit: "s".into(), value });
            let cases = [("scene".to_owned(), scene.to_owned())].into();
            let cell = format!("scene={scene}");
            RoundRecord { cell, cases, seed: 1, repeat: 0, limit: None, arms: vec![arm] }
        };
        let rounds = [round("calm", 1.0), round("busy", 9.0), round("busy", 11.0)];
        let arms: Vec<_> = plan.arm.iter().collect();
        let report = build(&plan, &arms, &rounds, "c".into(), false);
        let of = |arm: &ArmReport| (arm.scene.clone().unwrap(), arm.metrics["v"].median);
        let found: Vec<_> = report.arms.iter().map(of).collect();
        assert_eq!(found, [("calm".to_owned(), 1.0), ("busy".to_owned(), 10.0)]);
        assert!(crate::table::markdown(&plan, &report).contains("| calm: a |"));
        let wrong = text.replace("rows_by='scene'", "rows_by='scent'");
        assert!(Plan::parse(&wrong, "x").is_err());
    }

    #[test]
    fn commands_are_shown_as_typed_in_a_shell() {
        let words = ["curl", "-o", "a b", "it's", "", "http://x:80/a,b"].map(String::from);
        assert_eq!(shell_words(&words), r"curl -o 'a b' 'it'\''s' '' http://x:80/a,b");
    }
}
