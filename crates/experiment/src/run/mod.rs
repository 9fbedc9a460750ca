//! Runs a plan: round by round, all arms in turn, with several concurrent rounds if the plan says so.

mod arm;
mod arm_environment;
mod capture;
mod fault;
mod fixture;
pub mod installed_programs;
mod network;
mod output;
mod process;
mod programs;
mod progress;
mod round_runner;
mod sampler;
mod service;
mod sockets;
pub mod stop;

use crate::{
    error::{ExperimentError, Result},
    journal::{Identity, Journal, JournalOpening},
    library, machine,
    plan::{Arm, Plan},
    plot,
    record::RoundRecord,
    report::{self, Report, Verdict},
    schedule::{self, Options, Round},
    template::{TextForm, Values},
    validity,
};
use programs::Programs;
use progress::announce;
pub use progress::elapsed_text;
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};
use stop::StopFlag;
use thalweg_console::note;

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// Selects rounds and arms.
    pub options: Options,
    /// A topology that replaces the plan's.
    pub topology: Option<PathBuf>,
    /// The directory of finished rounds and plots; each experiment has a directory in it.
    pub results: PathBuf,
    /// Do not resume an unfinished run.
    pub fresh: bool,
    /// Fail unless the result could be committed.
    pub for_commit: bool,
}

/// The result of a finished run.
#[derive(Debug)]
pub struct RunResult {
    pub report: Report,
    pub verdict: Verdict,
    /// Why the run is invalid; empty if it is valid.
    pub faults: Vec<String>,
    /// The files of the plots.
    pub plots: Vec<PathBuf>,
}

/// Runs a plan with the text `text` in `directory`. Progress goes to standard error.
///
/// # Errors
/// If it cannot be run or is interrupted. Finished rounds are kept, and the next run resumes from them.
pub fn run(plan: &Plan, text: &str, directory: &Path, request: &RunRequest) -> Result<RunResult> {
    let commit = library::sources(text, directory);
    if request.for_commit {
        machine::require_clean(&commit)?;
    }
    let runner = Runner::prepare(plan, directory, request)?;
    let rounds = schedule::rounds(plan, &request.options)?;
    announce(plan, &request.options, &runner.arms, &rounds)?;
    let mut journal = runner.open_journal(text, commit.clone())?;
    let done = |round: &&Round| journal.rounds().iter().any(|r| r.is_of(round));
    let left = rounds.iter().filter(|round| !done(round)).collect();
    round_runner::run(&runner, left, rounds.len(), |record| journal.append(record))?;
    journal.finish()?;
    runner.finish(&journal, &rounds, commit)
}

/// The state that is the same for all rounds.
struct Runner<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    request: &'a RunRequest,
    arms: Vec<&'a Arm>,
    versions: BTreeMap<String, String>,
    topology: Option<toml::Table>,
    scratch: tempfile::TempDir,
    programs: Programs,
    stop: StopFlag,
}

impl<'a> Runner<'a> {
    fn prepare(plan: &'a Plan, directory: &'a Path, request: &'a RunRequest) -> Result<Self> {
        let arms = schedule::chosen_arms(plan, &request.options)?;
        let topology = request.topology.as_deref().map(network::read_table).transpose()?;
        let stop = StopFlag::on_signals()?;
        let scratch = tempfile::Builder::new().prefix("thalweg-experiment-").tempdir();
        let scratch = scratch.map_err(ExperimentError::file("create", env::temp_dir()))?;
        let programs = Programs::copy_to(scratch.path())?;
        let versions = BTreeMap::new();
        let mut runner =
            Self { plan, directory, request, arms, versions, topology, scratch, programs, stop };
        let round = Round { index: 0, cell: schedule::Cell::default(), seed: 1, repeat: 0 };
        let values = runner.values(&round, runner.scratch.path())?;
        for arm in &runner.arms {
            let asked =
                arm.version.as_ref().map(|v| values.render_args(v, TextForm::Real)).transpose()?;
            if let Some(version) = asked.as_deref().and_then(installed_programs::version) {
                runner.versions.insert(arm.name.clone(), version);
            }
        }
        Ok(runner)
    }

    /// The values of a round that do not depend on its network; its fixtures are below `scratch`.
    fn values(&self, round: &Round, scratch: &Path) -> Result<Values> {
        let mut values = round.parameters(self.plan, self.request.options.quick)?;
        values.set_path("scratch", scratch, "SCRATCH");
        values.set_path("thalweg", &self.programs.thalweg, "thalweg");
        values.set_path("bench", &self.programs.bench, "thalweg-bench");
        values.set_path("thalweg-lab", &self.programs.lab, "thalweg-lab");
        Ok(values)
    }

    fn base(&self) -> PathBuf {
        self.request.results.join(&self.plan.name)
    }

    fn open_journal(&self, text: &str, commit: String) -> Result<Journal> {
        let Options { quick, arms, all, .. } = &self.request.options;
        let names: Vec<&str> = self.arms.iter().map(|a| a.name.as_str()).collect();
        let topology = self.topology.as_ref().map(toml::Table::to_string);
        let key = format!("{text}\0{quick}\0{all}\0{names:?}\0{arms:?}\0{topology:?}");
        let identity = Identity {
            plan: blake3::hash(key.as_bytes()).to_hex().to_string(),
            commit,
            programs: machine::programs_hash(&[
                &self.programs.thalweg,
                &self.programs.bench,
                &self.programs.lab,
            ]),
        };
        let file = self.base().join(if *quick { "quick.jsonl" } else { "rounds.jsonl" });
        let (journal, opened) = Journal::open(&file, &identity, self.request.fresh)?;
        match opened {
            JournalOpening::New => {}
            JournalOpening::Resumed(n) => {
                note!("resuming after {n} finished round(s) in {}", file.display())
            }
            JournalOpening::Cut(n) => note!(
                "resuming after {n} finished round(s) in {}: the rest of the file is incomplete or was \
                 altered, so those rounds run again",
                file.display()
            ),
            JournalOpening::PutAside(why) => {
                note!(
                    "starting fresh, because {why}; the old rounds are kept in a file ending in .old"
                )
            }
        }
        Ok(journal)
    }

    fn finish(&self, journal: &Journal, rounds: &[Round], commit: String) -> Result<RunResult> {
        // In the order of the plan: lanes finish rounds in any order.
        let of = |round: &Round| journal.rounds().iter().find(|r| r.is_of(round)).cloned();
        let records: Vec<RoundRecord> = rounds.iter().filter_map(of).collect();
        let quick = self.request.options.quick;
        let report = report::build(self.plan, &self.arms, &records, commit, quick);
        let partial = quick || report::is_partial(self.plan, &self.request.options.arms);
        let plots = plot::draw_all(self.plan, quick, &records, &self.base())?;
        let verdict = report.verdict(partial);
        Ok(RunResult { verdict, faults: validity::faults(self.plan, &records), report, plots })
    }
}
