//! `thalweg-bench experiment`: lists and runs the plans of `experiments/`, and puts their committed results into the
//! documents.

use anyhow::Context;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use thalweg_console::{INTERRUPTED, note, say};
use thalweg_experiment::{
    ExperimentError,
    freshness::Freshness,
    library::{self, PlanSource},
    machine,
    plan::Plan,
    report::Report,
    run::{self, RunRequest, RunResult},
    schedule::{self, Options},
    table,
};

/// Arguments of `thalweg-bench experiment`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ExperimentCommand,
}

#[derive(clap::Subcommand)]
enum ExperimentCommand {
    /// List the experiments: claim, number of arms and checks, duration, age of the result
    List {
        /// Print one JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment. Exit codes: 0 valid and all checks hold; 1 invalid; 2 valid, but a check
    /// fails; 130 interrupted
    Run(RunArgs),
    /// Write the page of a committed result, experiments/results/NAME.md, and its table into the
    /// documents that have markers for it
    Table {
        /// The experiment
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// Write the pages of all committed results
        #[arg(long)]
        all: bool,
        /// Change nothing; exit code 1 if a file is not up to date
        #[arg(long)]
        check: bool,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// The experiment (see `thalweg-bench experiment list`), or the file of a plan
    name: String,
    /// Take at most a minute; checks that need the whole run are listed as not evaluated
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Run only these arms (`*` matches anything)
    #[arg(long = "arm", value_name = "ARM")]
    arms: Vec<String>,
    /// Run with these seeds instead of the plan's
    #[arg(long = "seed", value_name = "SEED")]
    seeds: Vec<u64>,
    /// Run in this topology (docs/lab.md) instead of the plan's; it must have the same hosts
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Run every cell of a matrix that the plan samples
    #[arg(long)]
    all: bool,
    /// The directory for finished rounds and pictures
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Start a new run instead of resuming an unfinished one
    #[arg(long)]
    fresh: bool,
    /// Write the result and its pictures to experiments/results, to be committed; only for complete
    /// runs from a clean tree
    #[arg(long, conflicts_with_all = ["quick", "arms", "seeds", "topology"])]
    commit_result: bool,
}

/// Runs the command.
///
/// # Errors
/// When the command fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        ExperimentCommand::List { json } => list(json),
        ExperimentCommand::Run(args) => run_one(&args).or_else(interrupted),
        ExperimentCommand::Table { name: Some(name), check, .. } => write_tables(&[name], check),
        ExperimentCommand::Table { name: None, check, .. } => {
            write_tables(&all_committed()?, check)
        }
    }
}

/// Maps an interruption to an exit code of its own, so that it differs from an invalid run.
fn interrupted(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    match error.downcast_ref() {
        Some(ExperimentError::Interrupted) => {
            note!("thalweg-bench: {error:#}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        _ => Err(error),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let found = library::all()?;
    if json {
        let rows: Vec<_> = found.iter().map(describe_as_json).collect::<anyhow::Result<_>>()?;
        say(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    } else {
        let texts = found.iter().map(describe);
        say(&texts.collect::<anyhow::Result<String>>()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(found: &PlanSource) -> anyhow::Result<String> {
    let plan = &found.plan;
    let (full, quick) = (seconds(plan, false)?, seconds(plan, true)?);
    let result =
        ResultState::of(found)?.map_or("no result".to_owned(), |result| result.to_string());
    Ok(format!(
        "{}: {}\n    {} arms, {} checks; about {} min, quick {quick} s\n    {result}\n",
        plan.name,
        plan.claim,
        plan.arm.len(),
        plan.check.len(),
        full.div_ceil(60)
    ))
}

/// The state of a committed result.
#[derive(serde::Serialize)]
struct ResultState {
    /// The commit that was measured.
    commit: String,
    /// The number of checks that hold.
    hold: usize,
    /// The number of checks.
    checks: usize,
    #[serde(flatten)]
    freshness: Freshness,
}

impl ResultState {
    /// The state of the plan's result, if one is committed.
    fn of(found: &PlanSource) -> anyhow::Result<Option<Self>> {
        if !result_file(found).exists() {
            return Ok(None);
        }
        let report = committed(found)?;
        let freshness = Freshness::new(&found.directory, &report.commit, &found.plan.code);
        let hold = report.checks.iter().filter(|check| check.pass == Some(true)).count();
        Ok(Some(Self { commit: report.commit, hold, checks: report.checks.len(), freshness }))
    }
}

impl fmt::Display for ResultState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, hold, checks, freshness } = self;
        write!(f, "result at {commit}: {hold} of {checks} checks hold; {freshness}")
    }
}

fn describe_as_json(found: &PlanSource) -> anyhow::Result<serde_json::Value> {
    let plan = &found.plan;
    Ok(serde_json::json!({
        "name": plan.name,
        "claim": plan.claim,
        "paper": plan.paper,
        "arms": plan.arm.iter().map(|a| &a.name).collect::<Vec<_>>(),
        "checks": plan.check.iter().map(|c| &c.name).collect::<Vec<_>>(),
        "estimate_s": seconds(plan, false)?,
        "estimate_quick_s": seconds(plan, true)?,
        "result": ResultState::of(found)?,
    }))
}

fn seconds(plan: &Plan, quick: bool) -> anyhow::Result<u64> {
    let options = Options { quick, ..Options::default() };
    let rounds = schedule::rounds(plan, &options)?;
    Ok(schedule::estimate(plan, &options, &rounds)?.as_secs())
}

fn run_one(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let found = library::find(&args.name)?;
    let request = RunRequest {
        options: Options {
            quick: args.quick,
            arms: args.arms.clone(),
            seeds: args.seeds.clone(),
            all: args.all,
        },
        topology: args.topology.clone(),
        results: args.results.clone(),
        fresh: args.fresh,
        for_commit: args.commit_result,
    };
    let finished = library::run_printed(&found, &request, args.json)?;
    note!("took {}", run::elapsed_text(begun));
    finished.plots.iter().for_each(|plot| note!("plot: {}", plot.display()));
    if args.commit_result {
        store(&found, &finished)?;
    }
    Ok(ExitCode::from(finished.verdict.code()))
}

/// The file of a committed result.
fn result_file(found: &PlanSource) -> PathBuf {
    found.directory.join("results").join(format!("{}.json", found.plan.name))
}

/// Writes a result and its pictures to the directory of committed results.
fn store(found: &PlanSource, finished: &RunResult) -> anyhow::Result<()> {
    // The tree may have changed during the run.
    machine::require_clean(&library::sources(&found.text, &found.directory))?;
    anyhow::ensure!(finished.report.valid, "an invalid result is not committed");
    let file = result_file(found);
    let directory = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let text = serde_json::to_string_pretty(&finished.report)? + "\n";
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    for plot in &finished.plots {
        let name = plot.file_name().unwrap_or_default();
        fs::copy(plot, directory.join(name))
            .with_context(|| format!("cannot copy {}", plot.display()))?;
    }
    note!("to be committed: {}", directory.display());
    note!("then: thalweg-bench experiment table {}", found.plan.name);
    Ok(())
}

/// Writes the pages of committed results and their tables into the documents that have markers for them.
fn write_tables(names: &[String], check: bool) -> anyhow::Result<ExitCode> {
    let mut stale = false;
    for name in names {
        let found = library::find(name)?;
        let report = committed(&found)?;
        let page = result_file(&found).with_extension("md");
        let directory = page.parent().unwrap_or(Path::new("."));
        let text = table::page(&found.plan, &report, directory)?;
        stale |= note_change(&page, table::write(&page, &text, check)?, check);
        let content = table::markdown(&found.plan, &report);
        for document in documents(found.directory.parent().unwrap_or(Path::new("."))) {
            if let Some(changed) = table::update(&document, name, &content, check)? {
                stale |= note_change(&document, changed, check);
            }
        }
    }
    Ok(if check && stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints what happened to a file, and returns whether it changed.
fn note_change(file: &Path, changed: bool, check: bool) -> bool {
    match (changed, check) {
        (true, true) => note!("{} is not up to date", file.display()),
        (true, false) => note!("{} updated", file.display()),
        (false, _) => {}
    }
    changed
}

/// The committed result of a plan.
fn committed(found: &PlanSource) -> anyhow::Result<Report> {
    let file = result_file(found);
    let text = fs::read_to_string(&file).with_context(|| {
        let run = format!("`thalweg-bench experiment run {} --commit-result`", found.plan.name);
        format!("there is no committed result {}; {run} creates one", file.display())
    })?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a valid result", file.display()))
}

/// The names of all committed results.
fn all_committed() -> anyhow::Result<Vec<String>> {
    let directory =
        library::directory().context("there is no directory `experiments` here or above")?;
    let entries = fs::read_dir(directory.join("results"));
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let results = files.filter(|file| file.extension().is_some_and(|e| e == "json"));
    let mut names: Vec<String> =
        results.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    anyhow::ensure!(
        !names.is_empty(),
        "there is no committed result in {}/results",
        directory.display()
    );
    Ok(names)
}

/// README.md, docs/*.md and experiments/reports/*.md of a checkout.
fn documents(root: &Path) -> Vec<PathBuf> {
    let below = ["docs", "experiments/reports"].map(|directory| root.join(directory));
    let files = below.iter().flat_map(fs::read_dir).flatten().flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> =
        files.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    all.sort();
    all.insert(0, root.join("README.md"));
    all.retain(|p| p.is_file());
    all
}
