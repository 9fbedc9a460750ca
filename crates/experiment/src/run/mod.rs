//! Runs a plan: round by round, all arms in turn.

mod arm;
mod bench;
mod capture;
mod fault;
mod fixture;
pub mod installed;
mod network;
mod output;
mod process;
mod programs;
mod progress;
mod sampler;
mod service;
mod sockets;
pub mod stop;

use crate::{
    error::{ExperimentError, Result},
    journal::{Identity, Journal, Opened},
    library, machine,
    plan::{Arm, Plan, Scope},
    plot,
    record::{ArmRecord, Outcome, RoundRecord},
    report::{self, Report, Verdict},
    schedule::{self, Options, Round},
    template::{Face, Values},
    validity,
};
use arm::Context;
use bench::{Bench, Blueprint};
use fixture::Made;
use programs::Programs;
pub use progress::minutes;
use progress::{announce, say};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};
use stop::Stop;
use thalweg_console::note;
use thalweg_lab::topology::Topology;

/// What a run is to be.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which rounds and arms.
    pub options: Options,
    /// A topology that replaces the plan's.
    pub topology: Option<PathBuf>,
    /// Where finished rounds and pictures go; each experiment has a directory there.
    pub results: PathBuf,
    /// Do not go on with an unfinished run.
    pub fresh: bool,
    /// Refuse to start unless the result could be committed.
    pub for_commit: bool,
}

/// What a run has come to.
#[derive(Debug)]
pub struct Finished {
    /// The result.
    pub report: Report,
    /// What it says to the caller.
    pub verdict: Verdict,
    /// Why it does not count; nothing if it does.
    pub faults: Vec<String>,
    /// The pictures.
    pub plots: Vec<PathBuf>,
}

/// Runs a plan whose text is `text`, found in `directory`; progress goes to standard error.
///
/// # Errors
/// When it cannot be run at all; finished rounds are kept and the next run goes on from them.
pub fn run(plan: &Plan, text: &str, directory: &Path, request: &Request) -> Result<Finished> {
    let commit = library::sources(text, directory);
    if request.for_commit {
        machine::require_clean(&commit)?;
    }
    let mut runner = Runner::prepare(plan, directory, request)?;
    let rounds = schedule::rounds(plan, &request.options)?;
    announce(plan, &request.options, &runner.arms, &rounds)?;
    let mut journal = runner.open_journal(text, commit.clone())?;
    for round in &rounds {
        if !journal.rounds().iter().any(|r| r.is_of(round)) {
            journal.append(runner.whole_round(round, rounds.len())?)?;
        }
    }
    journal.finish()?;
    runner.finish(&journal, &rounds, commit)
}

/// What stays the same over all rounds.
struct Runner<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    request: &'a Request,
    arms: Vec<&'a Arm>,
    versions: BTreeMap<String, String>,
    topology: Option<toml::Table>,
    scratch: tempfile::TempDir,
    programs: Programs,
    made: BTreeMap<String, Made>,
    stop: Stop,
}

impl<'a> Runner<'a> {
    fn prepare(plan: &'a Plan, directory: &'a Path, request: &'a Request) -> Result<Self> {
        let arms = schedule::chosen_arms(plan, &request.options)?;
        let topology = request.topology.as_deref().map(network::read_table).transpose()?;
        let stop = Stop::on_signals()?;
        let scratch = tempfile::Builder::new().prefix("thalweg-experiment-").tempdir();
        let scratch = scratch.map_err(ExperimentError::file("create", env::temp_dir()))?;
        let programs = Programs::copy_to(scratch.path())?;
        let (made, versions) = (BTreeMap::new(), BTreeMap::new());
        let mut runner = Self {
            plan,
            directory,
            request,
            arms,
            versions,
            topology,
            scratch,
            programs,
            made,
            stop,
        };
        let round = Round { index: 0, cell: schedule::Cell::default(), seed: 1, repeat: 0 };
        let values = runner.values(&round)?;
        fixture::make_random(plan, runner.scratch.path(), &values, &mut runner.made)?;
        for arm in &runner.arms {
            let asked =
                arm.version.as_ref().map(|v| values.render_args(v, Face::Real)).transpose()?;
            if let Some(version) = asked.as_deref().and_then(installed::version) {
                runner.versions.insert(arm.name.clone(), version);
            }
        }
        Ok(runner)
    }

    /// The values of a round that hold in every network.
    fn values(&self, round: &Round) -> Result<Values> {
        let mut values = round.parameters(self.plan, self.request.options.quick)?;
        values.set_path("scratch", self.scratch.path(), "SCRATCH");
        values.set_path("thalweg", &self.programs.thalweg, "thalweg");
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
            programs: machine::programs_hash(&[&self.programs.thalweg, &self.programs.lab]),
        };
        let file = self.base().join(if *quick { "quick.jsonl" } else { "rounds.jsonl" });
        let (journal, opened) = Journal::open(&file, &identity, self.request.fresh)?;
        match opened {
            Opened::New => {}
            Opened::Resumed(n) => {
                note!("going on after {n} finished round(s) in {}", file.display())
            }
            Opened::Cut(n) => note!(
                "going on after {n} finished round(s) in {}: what follows them there is torn or \
                 was altered, those rounds run again",
                file.display()
            ),
            Opened::PutAside(why) => {
                note!("starting fresh, because {why}; the old rounds are kept beside")
            }
        }
        Ok(journal)
    }

    /// A round that nobody interrupted: Ctrl-C reaches the lab as well, whose
    /// end may be seen first and must not pass for an arm's failure.
    fn whole_round(&mut self, round: &Round, of: usize) -> Result<RoundRecord> {
        let values = self.values(round)?;
        fixture::make_random(self.plan, self.scratch.path(), &values, &mut self.made)?;
        let record = self.round(round, of, &values);
        self.stop.check()?;
        record
    }

    fn round(&self, round: &Round, of: usize, values: &Values) -> Result<RoundRecord> {
        let topology =
            network::topology(self.plan, self.directory, self.topology.as_ref(), round, values)?;
        let blueprint = Blueprint {
            plan: self.plan,
            topology: topology.as_ref(),
            values,
            scratch: self.scratch.path(),
            made: &self.made,
            stop: &self.stop,
        };
        let shared = match self.plan.network {
            Scope::Round => Some(Bench::start(&blueprint, None)?),
            Scope::Arm => None,
        };
        let arms = self.arms_in_turn(round, of, &blueprint, shared)?;
        let cases = round.cases(self.plan).into_iter().map(|(axis, case)| (axis, case.label));
        Ok(RoundRecord {
            cell: round.cell.label.clone(),
            cases: cases.collect(),
            seed: round.seed,
            repeat: round.repeat,
            limit: self.limit(topology.as_ref())?,
            arms,
        })
    }

    fn limit(&self, topology: Option<&Topology>) -> Result<Option<f64>> {
        let (Some(topology), Some(limit)) = (topology, &self.plan.limit) else { return Ok(None) };
        let resolved = topology.resolve().map_err(|e| ExperimentError::value("topology", e))?;
        network::limit(&resolved, limit)
    }

    fn arms_in_turn(
        &self,
        round: &Round,
        of: usize,
        blueprint: &Blueprint<'_>,
        mut shared: Option<Bench>,
    ) -> Result<Vec<ArmRecord>> {
        let mut records = Vec::new();
        for arm in schedule::rotated(&self.arms, round.index) {
            if !schedule::applies(&arm.when, blueprint.values)? {
                continue;
            }
            self.stop.check()?;
            let record = match installed::missing(&arm.requires)
                .or_else(|| service::missing(self.plan, arm))
            {
                Some(reason) => {
                    ArmRecord::new(&arm.name, arm.command.clone(), Outcome::Skipped(reason))
                }
                None => self.attempts(arm, blueprint, &mut shared)?,
            };
            say(self.plan, round, of, &record);
            records.push(record);
        }
        Ok(records)
    }

    /// Runs an arm until it is within the bounds of validity, as often as the plan allows.
    fn attempts(
        &self,
        arm: &Arm,
        blueprint: &Blueprint<'_>,
        shared: &mut Option<Bench>,
    ) -> Result<ArmRecord> {
        let most = self.plan.validity.attempts.max(1);
        let mut attempt = 1;
        loop {
            let mut record = self.once(arm, blueprint, shared)?;
            record.attempts = attempt;
            match validity::out_of_bounds(self.plan, &record).filter(|_| attempt < most) {
                None => return Ok(record),
                Some(why) => note!("  {}: again, because {why}", arm.name),
            }
            attempt += 1;
        }
    }

    fn once(
        &self,
        arm: &Arm,
        blueprint: &Blueprint<'_>,
        shared: &mut Option<Bench>,
    ) -> Result<ArmRecord> {
        let out = arm::empty_directory(self.scratch.path().join("out"))?;
        let version = self.versions.get(&arm.name).cloned();
        let context = Context { plan: self.plan, made: &self.made, stop: &self.stop, version, out };
        let record = match shared {
            Some(bench) => arm::run(arm, bench, &context),
            None => arm::run(arm, &mut Bench::start(blueprint, Some(arm))?, &context),
        };
        // Outputs are large, and the next arm must not find them.
        let _gone = fs::remove_dir_all(&context.out);
        record
    }

    fn finish(&self, journal: &Journal, rounds: &[Round], commit: String) -> Result<Finished> {
        let wanted = |r: &&RoundRecord| rounds.iter().any(|round| r.is_of(round));
        let records: Vec<RoundRecord> = journal.rounds().iter().filter(wanted).cloned().collect();
        let quick = self.request.options.quick;
        let report = report::build(self.plan, &self.arms, &records, commit, quick);
        let partial = quick || report::is_partial(self.plan, &self.request.options.arms);
        let plots = plot::draw_all(self.plan, quick, &records, &self.base())?;
        let verdict = report.verdict(partial);
        Ok(Finished { verdict, faults: validity::faults(self.plan, &records), report, plots })
    }
}
