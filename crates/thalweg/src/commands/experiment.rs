//! `thalweg experiment`: list and run the plans of `experiments/`, and put
//! their committed results into the documents.

use super::text::say;
use anyhow::Context;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use thalweg_console::note;
use thalweg_experiment::{
    ExperimentError,
    library::{self, Found},
    machine,
    plan::Plan,
    report::Report,
    run::{self, Finished, Request},
    schedule::{self, Options},
    table,
};

/// Arguments of `thalweg experiment`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the experiments: claim, arms, checks, how long they take
    List {
        /// Print one JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment; exit code 0: valid and all checks hold, 1: invalid, 2: valid but short,
    /// 130: interrupted
    Run(RunArgs),
    /// Put an experiment's committed result into README.md and docs/*.md, between its markers
    Table {
        /// The experiment
        name: String,
        /// Change nothing; exit code 1 if a document is not up to date
        #[arg(long)]
        check: bool,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// The experiment (`thalweg experiment list` shows them), or a plan's file
    name: String,
    /// Take at most a minute; checks that this cannot judge are listed as not evaluated
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
    /// Run in this topology (docs/lab.md) instead of the plan's; it needs the same hosts
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Run every cell of a matrix that the plan samples
    #[arg(long)]
    all: bool,
    /// Keep finished rounds and pictures in this directory
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Begin anew even if an unfinished run could be gone on with
    #[arg(long)]
    fresh: bool,
    /// Write the result and its pictures to experiments/results, to be committed; whole runs
    /// from a clean tree only
    #[arg(long, conflicts_with_all = ["quick", "arms", "seeds", "topology"])]
    commit_result: bool,
}

/// Runs the command.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List { json } => list(json),
        Command::Run(args) => run_one(&args).or_else(interrupted),
        Command::Table { name, check } => update_documents(&name, check),
    }
}

/// What a shell reports of a program that Ctrl-C ended: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// A wish to stop is no verdict: the exit code tells it from an invalid run.
fn interrupted(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    match error.downcast_ref() {
        Some(ExperimentError::Interrupted) => {
            note!("thalweg: {error:#}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        _ => Err(error),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let found = library::all()?;
    if json {
        let rows: Vec<_> = found.iter().map(described).collect::<anyhow::Result<_>>()?;
        say(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    } else {
        let texts = found.iter().map(|found| in_words(&found.plan));
        say(&texts.collect::<anyhow::Result<String>>()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(plan: &Plan) -> anyhow::Result<String> {
    let (full, quick) = (seconds(plan, false)?, seconds(plan, true)?);
    Ok(format!(
        "{}: {}\n    {} arms, {} checks; about {} min, quick {quick} s\n",
        plan.name,
        plan.claim,
        plan.arm.len(),
        plan.check.len(),
        full.div_ceil(60)
    ))
}

fn described(found: &Found) -> anyhow::Result<serde_json::Value> {
    let plan = &found.plan;
    Ok(serde_json::json!({
        "name": plan.name,
        "claim": plan.claim,
        "paper": plan.paper,
        "arms": plan.arm.iter().map(|a| &a.name).collect::<Vec<_>>(),
        "checks": plan.check.iter().map(|c| &c.name).collect::<Vec<_>>(),
        "estimate_s": seconds(plan, false)?,
        "estimate_quick_s": seconds(plan, true)?,
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
    let request = Request {
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
    note!("took {}", run::minutes(begun));
    finished.plots.iter().for_each(|plot| note!("plot: {}", plot.display()));
    if args.commit_result {
        keep(&found, &finished)?;
    }
    Ok(ExitCode::from(finished.verdict.code()))
}

/// Where a result to be committed goes.
fn result_file(found: &Found) -> PathBuf {
    found.directory.join("results").join(format!("{}.json", found.plan.name))
}

/// Writes a result and its pictures to where they are committed.
fn keep(found: &Found, finished: &Finished) -> anyhow::Result<()> {
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
    note!("then: thalweg experiment table {}", found.plan.name);
    Ok(())
}

/// Puts the committed result between the markers of every document that has them.
fn update_documents(name: &str, check: bool) -> anyhow::Result<ExitCode> {
    let found = library::find(name)?;
    let file = result_file(&found);
    let text = fs::read_to_string(&file).with_context(|| {
        let run = format!("`thalweg experiment run {name} --commit-result`");
        format!("no committed result {}; {run} makes one", file.display())
    })?;
    let report: Report =
        serde_json::from_str(&text).with_context(|| format!("{} is no result", file.display()))?;
    let content = table::markdown(&found.plan, &report);
    let mut stale = false;
    for document in documents(found.directory.parent().unwrap_or(Path::new("."))) {
        match table::update(&document, name, &content, check)? {
            None => {}
            Some(false) => note!("{}: up to date", document.display()),
            Some(true) => {
                stale = true;
                let what = if check { "is not up to date" } else { "updated" };
                note!("{} {what}", document.display());
            }
        }
    }
    say(&format!("{}\n", content.trim_end()))?;
    Ok(if check && stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// README.md and docs/*.md of a checkout.
fn documents(root: &Path) -> Vec<PathBuf> {
    let docs = fs::read_dir(root.join("docs")).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    all.sort();
    all.insert(0, root.join("README.md"));
    all.retain(|p| p.is_file());
    all
}
