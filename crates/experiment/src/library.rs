//! Finds plans, in the checkout and among those built in, and runs them with printed results.

use crate::{
    error::{ExperimentError, Result},
    evaluate::CheckResult,
    machine,
    plan::Plan,
    report::Verdict,
    run::{self, RunRequest, RunResult},
    schedule::Options,
    table,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
};
use thalweg_console::{note, say_line};

/// The built-in plans: name and text.
pub const BUILT_IN: [(&str, &str); 65] = [
    ("background", include_str!("../../../experiments/background.toml")),
    ("badabing", include_str!("../../../experiments/badabing.toml")),
    ("bistro-deadline", include_str!("../../../experiments/bistro-deadline.toml")),
    ("bond-cost", include_str!("../../../experiments/bond-cost.toml")),
    ("bond-failover", include_str!("../../../experiments/bond-failover.toml")),
    ("bond-mptcp", include_str!("../../../experiments/bond-mptcp.toml")),
    ("bond-policy", include_str!("../../../experiments/bond-policy.toml")),
    ("bond-sharing", include_str!("../../../experiments/bond-sharing.toml")),
    ("bond-transfers", include_str!("../../../experiments/bond-transfers.toml")),
    ("carrier-cost", include_str!("../../../experiments/carrier-cost.toml")),
    ("cast-chain", include_str!("../../../experiments/cast-chain.toml")),
    ("cast-isolation", include_str!("../../../experiments/cast-isolation.toml")),
    ("cast-peers", include_str!("../../../experiments/cast-peers.toml")),
    ("cast-reconfigure", include_str!("../../../experiments/cast-reconfigure.toml")),
    ("cast-scale", include_str!("../../../experiments/cast-scale.toml")),
    ("codec-cost", include_str!("../../../experiments/codec-cost.toml")),
    ("console-scale", include_str!("../../../experiments/console-scale.toml")),
    ("dbas-figures", include_str!("../../../experiments/dbas-figures.toml")),
    ("doctor", include_str!("../../../experiments/doctor.toml")),
    ("gather-adaptive", include_str!("../../../experiments/gather-adaptive.toml")),
    ("gather-fast-path", include_str!("../../../experiments/gather-fast-path.toml")),
    ("gather-figures-sim", include_str!("../../../experiments/gather-figures-sim.toml")),
    ("gather-figures", include_str!("../../../experiments/gather-figures.toml")),
    ("gather-peers", include_str!("../../../experiments/gather-peers.toml")),
    ("get-bonded", include_str!("../../../experiments/get-bonded.toml")),
    ("get-detour-thin", include_str!("../../../experiments/get-detour-thin.toml")),
    ("get-detour-wins", include_str!("../../../experiments/get-detour-wins.toml")),
    ("get-direct-wins", include_str!("../../../experiments/get-direct-wins.toml")),
    ("get-fast-path", include_str!("../../../experiments/get-fast-path.toml")),
    ("get-faults", include_str!("../../../experiments/get-faults.toml")),
    ("get-paths", include_str!("../../../experiments/get-paths.toml")),
    ("get-servers", include_str!("../../../experiments/get-servers.toml")),
    ("jobs", include_str!("../../../experiments/jobs.toml")),
    ("lab-fidelity", include_str!("../../../experiments/lab-fidelity.toml")),
    ("load-aware", include_str!("../../../experiments/load-aware.toml")),
    ("measure-budget", include_str!("../../../experiments/measure-budget.toml")),
    ("members-hostile", include_str!("../../../experiments/members-hostile.toml")),
    ("mesh-detour", include_str!("../../../experiments/mesh-detour.toml")),
    ("mgrp-completion", include_str!("../../../experiments/mgrp-completion.toml")),
    ("mgrp-overhead", include_str!("../../../experiments/mgrp-overhead.toml")),
    ("mgrp-source", include_str!("../../../experiments/mgrp-source.toml")),
    ("oracle-scale", include_str!("../../../experiments/oracle-scale.toml")),
    ("oracle-takeover", include_str!("../../../experiments/oracle-takeover.toml")),
    ("pacing", include_str!("../../../experiments/pacing.toml")),
    ("planner-cost", include_str!("../../../experiments/planner-cost.toml")),
    ("probe-accuracy", include_str!("../../../experiments/probe-accuracy.toml")),
    ("proxy-cost", include_str!("../../../experiments/proxy-cost.toml")),
    ("relay-cost", include_str!("../../../experiments/relay-cost.toml")),
    ("relay-faults", include_str!("../../../experiments/relay-faults.toml")),
    ("revocation", include_str!("../../../experiments/revocation.toml")),
    ("roma-figures", include_str!("../../../experiments/roma-figures.toml")),
    ("servers", include_str!("../../../experiments/servers.toml")),
    ("strangers", include_str!("../../../experiments/strangers.toml")),
    ("stream-fanout", include_str!("../../../experiments/stream-fanout.toml")),
    ("stream-peers", include_str!("../../../experiments/stream-peers.toml")),
    ("stream-reroute", include_str!("../../../experiments/stream-reroute.toml")),
    ("stream-scheduler", include_str!("../../../experiments/stream-scheduler.toml")),
    ("stream-table3", include_str!("../../../experiments/stream-table3.toml")),
    ("stream-upswitch", include_str!("../../../experiments/stream-upswitch.toml")),
    ("stream-video", include_str!("../../../experiments/stream-video.toml")),
    ("trees", include_str!("../../../experiments/trees.toml")),
    ("ukairo-figures", include_str!("../../../experiments/ukairo-figures.toml")),
    ("unseen", include_str!("../../../experiments/unseen.toml")),
    ("upgrade", include_str!("../../../experiments/upgrade.toml")),
    ("why", include_str!("../../../experiments/why.toml")),
];

/// A plan and its origin.
#[derive(Clone, Debug)]
pub struct PlanSource {
    pub plan: Plan,
    pub text: String,
    /// The directory in which the files named by the plan are.
    pub directory: PathBuf,
}

/// The sources of a run of this plan: see [`machine::sources`].
///
/// A plan that equals a built-in one comes from the sources of the program.
pub fn sources(text: &str, directory: &Path) -> String {
    let built_in = BUILT_IN.iter().any(|(_, own)| *own == text);
    machine::sources((!built_in).then_some(directory))
}

/// The directory `experiments` in the working directory or its nearest ancestor that has one.
pub fn directory() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().map(|d| d.join("experiments")).find(|d| d.is_dir())
}

/// All plans, sorted by name. A plan of the checkout takes precedence over the built-in one of the same name.
///
/// # Errors
/// If a plan is invalid; the message names it.
pub fn all() -> Result<Vec<PlanSource>> {
    let mut found = Vec::new();
    let directory = directory();
    for file in directory.iter().flat_map(|d| plan_files(d)) {
        found.push(open(&file)?);
    }
    for (name, text) in BUILT_IN {
        if !found.iter().any(|f: &PlanSource| f.plan.name == name) {
            found.push(built_in(name, text)?);
        }
    }
    found.sort_by(|a, b| a.plan.name.cmp(&b.plan.name));
    Ok(found)
}

fn plan_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "toml")).collect()
}

fn built_in(name: &str, text: &str) -> Result<PlanSource> {
    let here = env::current_dir().map_err(ExperimentError::file("find", "."))?;
    let directory = directory().unwrap_or(here);
    Ok(PlanSource { plan: Plan::parse(text, name)?, text: text.to_owned(), directory })
}

/// Reads the plan in a file.
///
/// # Errors
/// If it cannot be read or is invalid.
pub fn open(file: &Path) -> Result<PlanSource> {
    let text = fs::read_to_string(file).map_err(ExperimentError::file("read", file))?;
    let plan = Plan::parse(&text, &file.display().to_string())?;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(PlanSource { plan, text, directory })
}

/// Finds the plan called `name`. A name that contains a slash or ends in `.toml` is a file.
///
/// # Errors
/// If there is no such plan, or it is invalid.
pub fn find(name: &str) -> Result<PlanSource> {
    if name.contains('/') || name.ends_with(".toml") {
        return open(Path::new(name));
    }
    if let Some(file) = directory().map(|d| d.join(format!("{name}.toml"))).filter(|f| f.is_file())
    {
        return open(&file);
    }
    match BUILT_IN.iter().find(|(n, _)| *n == name) {
        Some((name, text)) => built_in(name, text),
        None => {
            let known = all()?.into_iter().map(|f| f.plan.name).collect();
            Err(ExperimentError::Unknown { name: name.to_owned(), known })
        }
    }
}

/// Runs a plan and prints its result: the report on standard output, as one JSON object or as tables, and the
/// conclusion on standard error.
///
/// # Errors
/// If it cannot be run. Finished rounds are kept, and the next run resumes from them.
pub fn run_printed(found: &PlanSource, request: &RunRequest, json: bool) -> Result<RunResult> {
    let finished = run::run(&found.plan, &found.text, &found.directory, request)?;
    let text = printed(&found.plan, &finished, json)?;
    say_line(text).map_err(ExperimentError::Unprinted)?;
    explain(&finished);
    Ok(finished)
}

/// Runs a plan given as text and prints its result as [`run_printed`] does. Returns the exit code: 0 if all checks
/// hold, 1 if the run is invalid, 2 if a check does not hold.
///
/// Finished rounds are in a temporary directory, so such a run is not resumed.
///
/// # Errors
/// If it cannot be run.
pub fn run_embedded(text: &str, quick: bool, json: bool) -> Result<u8> {
    let found = built_in("built in", text)?;
    let kept = tempfile::tempdir().map_err(ExperimentError::file("create", env::temp_dir()))?;
    let options = Options { quick, ..Options::default() };
    let results = kept.path().to_owned();
    let request = RunRequest { options, results, ..RunRequest::default() };
    Ok(run_printed(&found, &request, json)?.verdict.code())
}

/// The text for standard output.
///
/// # Errors
/// If the report cannot be serialised as JSON, which would be a defect.
fn printed(plan: &Plan, finished: &RunResult, json: bool) -> Result<String> {
    if json {
        let text = serde_json::to_string_pretty(&finished.report);
        return text
            .map_err(|e| ExperimentError::Other(format!("cannot serialise the report: {e}")));
    }
    Ok(table::markdown(plan, &finished.report).trim_end().to_owned())
}

/// Prints to standard error why a run is invalid or which checks were not evaluated, and the conclusion.
fn explain(finished: &RunResult) {
    for fault in &finished.faults {
        note!("invalid: {fault}");
    }
    let open = finished.report.checks.iter().filter(|c| c.pass.is_none() && !c.is_figure());
    for check in open {
        note!("not evaluated: {}", check.name);
    }
    note!("{}", conclusion(&finished.report.checks, finished.verdict));
}

fn conclusion(checks: &[CheckResult], verdict: Verdict) -> &'static str {
    let judged = checks.iter().any(|c| c.pass.is_some());
    match verdict {
        Verdict::Invalid => "invalid: do not use these numbers",
        Verdict::Short if judged => "valid, but some checks do not hold",
        Verdict::Holds if judged => "valid, and all evaluated checks hold",
        _ => "valid, but no check was evaluated: this only shows that the experiment runs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_of_the_checkout_is_built_in_and_valid() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let mut files = plan_files(&directory);
        files.sort();
        let names: Vec<_> = files.iter().filter_map(|f| f.file_stem()?.to_str()).collect();
        assert_eq!(names, BUILT_IN.map(|(name, _)| name));
        for (name, text) in BUILT_IN {
            let plan = Plan::parse(text, name).unwrap();
            assert_eq!(plan.name, name);
            assert!(!plan.code.is_empty(), "{name}: `code` does not say which crates it measures");
            for measured in &plan.code {
                let sources = directory.join("../crates").join(measured).join("src");
                assert!(sources.is_dir(), "{name}: there is no crate {measured}");
            }
        }
    }

    #[test]
    fn every_check_of_a_built_in_plan_matches_a_cell() {
        for (name, text) in BUILT_IN {
            let plan = Plan::parse(text, name).unwrap();
            let cells = crate::schedule::all_cells(&plan);
            for check in &plan.check {
                for pattern in check.cells.iter().flatten() {
                    let is_one = cells.iter().any(|c| crate::pattern::matches(pattern, &c.label));
                    assert!(is_one, "{name}: {}: no cell is {pattern}", check.name);
                }
            }
        }
    }

    /// Loads of the harness that start the product.
    const STARTS_THE_PRODUCT: [&str; 21] = [
        "\"background\"",
        "\"bistro\"",
        "\"carrier\"",
        "\"cast\"",
        "\"console-scale\"",
        "\"crowd\"",
        "\"doctor\"",
        "\"get-faults\"",
        "\"hostile\"",
        "\"jobs\"",
        "\"mgrp\"",
        "\"probe\", \"accuracy\"",
        "\"probe\", \"badabing\"",
        "\"strangers\"",
        "\"stream-fanout\"",
        "\"stream-peers\"",
        "\"stream-reroute\"",
        "\"stream\"",
        "\"takeover\"",
        "\"upgrade\"",
        "\"why\"",
    ];

    /// The command as TOML, followed by the parameters that it uses.
    fn with_parameters(command: &toml::Value, params: Option<&toml::Value>) -> String {
        let mut text = command.to_string();
        for (name, value) in params.and_then(toml::Value::as_table).into_iter().flatten() {
            if text.contains(&format!("{{{name}}}")) {
                text += &value.to_string();
            }
        }
        text
    }

    #[test]
    fn an_arm_that_records_the_version_of_the_product_runs_it() {
        for (name, text) in BUILT_IN {
            let plan: toml::Table = text.parse().unwrap();
            let of =
                |key: &str| plan.get(key).and_then(toml::Value::as_array).into_iter().flatten();
            let serves = of("service").any(|service| service.to_string().contains("{thalweg}"));
            for arm in of("arm") {
                let version = arm.get("version").map(ToString::to_string).unwrap_or_default();
                let command = with_parameters(&arm["command"], plan.get("params"));
                let starts = |load: &&str| command.contains(&format!("\"load\", {load}"));
                let runs = command.contains("{thalweg}") || STARTS_THE_PRODUCT.iter().any(starts);
                let arm = &arm["name"];
                assert!(
                    !version.contains("{thalweg}") || runs || serves,
                    "{name}: {arm} records the version of a program that it does not run"
                );
            }
        }
    }

    #[test]
    fn a_run_without_an_evaluated_check_is_not_reported_as_holding() {
        let check = |pass| CheckResult {
            name: "c".into(),
            value: None,
            op: ">=".into(),
            bound: Some(1.0),
            pass,
            paper: None,
        };
        let message = conclusion(&[check(None)], Verdict::Holds);
        assert!(
            message.contains("no check was evaluated: this only shows that the experiment runs")
        );
        let message = conclusion(&[check(None), check(Some(true))], Verdict::Holds);
        assert!(message.contains("all evaluated checks hold"));
    }
}
