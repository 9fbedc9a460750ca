//! Which plans there are: those of the checkout, and those built in.

use crate::{
    error::{ExperimentError, Result},
    machine,
    plan::Plan,
    report::Verdict,
    run::{self, Finished, Request},
    schedule::Options,
    table,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The plans that every binary has.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("get-detour-thin", include_str!("../../../experiments/get-detour-thin.toml")),
    ("lab-fidelity", include_str!("../../../experiments/lab-fidelity.toml")),
];

/// A plan and where it is from.
#[derive(Clone, Debug)]
pub struct Found {
    /// The plan.
    pub plan: Plan,
    /// Its text.
    pub text: String,
    /// Files it names are beside it.
    pub directory: PathBuf,
}

/// From which sources a run of this plan is: see [`machine::sources`].
///
/// A plan equal to one that is built in is of the program's own sources.
pub fn sources(text: &str, directory: &Path) -> String {
    let built_in = BUILT_IN.iter().any(|(_, own)| *own == text);
    machine::sources((!built_in).then_some(directory))
}

/// The directory `experiments` of the working directory or the nearest one above.
pub fn directory() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().map(|d| d.join("experiments")).find(|d| d.is_dir())
}

/// All plans by name, the checkout's before those built in.
///
/// # Errors
/// When a plan has a fault: it is named.
pub fn all() -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let directory = directory();
    for file in directory.iter().flat_map(|d| plan_files(d)) {
        found.push(open(&file)?);
    }
    for (name, text) in BUILT_IN {
        if !found.iter().any(|f: &Found| f.plan.name == name) {
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

fn built_in(name: &str, text: &str) -> Result<Found> {
    let here = env::current_dir().map_err(ExperimentError::file("find", "."))?;
    let directory = directory().unwrap_or(here);
    Ok(Found { plan: Plan::parse(text, name)?, text: text.to_owned(), directory })
}

/// The plan in a file.
///
/// # Errors
/// When it cannot be read or has a fault.
pub fn open(file: &Path) -> Result<Found> {
    let text = fs::read_to_string(file).map_err(ExperimentError::file("read", file))?;
    let plan = Plan::parse(&text, &file.display().to_string())?;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(Found { plan, text, directory })
}

/// The plan called `name`; a name with a slash or ending in `.toml` is a file.
///
/// # Errors
/// When there is none, or it has a fault.
pub fn find(name: &str) -> Result<Found> {
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

/// Runs a plan given as text and prints its result: one JSON object, or tables.
/// Returns the exit code: 0 holds, 1 invalid, 2 short.
///
/// Finished rounds are kept in a temporary directory: such a run is not resumed.
///
/// # Errors
/// When it cannot be run.
pub fn run_embedded(text: &str, quick: bool, json: bool) -> Result<u8> {
    let plan = Plan::parse(text, "built in")?;
    let directory = env::current_dir().map_err(ExperimentError::file("find", "."))?;
    let kept = tempfile::tempdir().map_err(ExperimentError::file("create", env::temp_dir()))?;
    let options = Options { quick, ..Options::default() };
    let results = kept.path().to_owned();
    let request = Request { options, results, ..Request::default() };
    let finished = run::run(&plan, text, &directory, &request)?;
    println!("{}", printed(&plan, &finished, json)?);
    explain(&finished);
    Ok(finished.verdict.code())
}

/// What goes to standard output.
///
/// # Errors
/// When the report is no JSON, which would be a defect.
pub fn printed(plan: &Plan, finished: &Finished, json: bool) -> Result<String> {
    if json {
        let text = serde_json::to_string_pretty(&finished.report);
        return text.map_err(|e| ExperimentError::Other(format!("the report: {e}")));
    }
    Ok(table::markdown(plan, &finished.report).trim_end().to_owned())
}

/// What goes to standard error at the end: why a run does not count or falls short.
pub fn explain(finished: &Finished) {
    for fault in &finished.faults {
        eprintln!("invalid: {fault}");
    }
    let open = finished.report.checks.iter().filter(|c| c.pass.is_none());
    for check in open {
        eprintln!("not evaluated: {}", check.name);
    }
    eprintln!(
        "{}",
        match finished.verdict {
            Verdict::Holds => "valid, and every check that was evaluated holds",
            Verdict::Invalid => "invalid: the numbers do not count",
            Verdict::Short => "valid, but not every check holds",
        }
    );
}
