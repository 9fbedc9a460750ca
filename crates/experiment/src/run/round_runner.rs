//! Runs rounds concurrently: each lane has its own lab, fixtures and directory, and runs one round at a time, all arms
//! in turn.

use super::{
    Runner,
    arm::{self, Context},
    arm_environment::{ArmEnvironment, Blueprint},
    fixture::{self, FixtureDigest},
    installed_programs, network,
    progress::report_arm,
    service,
};
use crate::{
    error::{ExperimentError, Result},
    plan::{Arm, Scope},
    record::{ArmRecord, Outcome, RoundRecord},
    schedule::{self, Round},
    template::Values,
    validity,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fs, path::PathBuf, sync::mpsc, thread};
use thalweg_console::note;
use thalweg_lab::topology::Topology;

/// Runs `rounds`, as many at a time as the plan says, and passes each record to `keep` when its round ends. `of` is the
/// total number of rounds, for progress messages.
///
/// # Errors
/// The first error of a round or of `keep`; the other lanes then stop as after Ctrl-C.
pub fn run(
    runner: &Runner<'_>,
    rounds: Vec<&Round>,
    of: usize,
    mut keep: impl FnMut(RoundRecord) -> Result<()>,
) -> Result<()> {
    let lanes = rounds.len().min(runner.plan.abreast.max(1));
    let left = Mutex::new(rounds.into_iter());
    let next = || left.lock().next();
    // A lane has at most one record to send.
    let (results, records) = mpsc::sync_channel(lanes);
    thread::scope(|scope| {
        for number in 0..lanes {
            let results = results.clone();
            scope.spawn(move || RoundRunner::new(runner, number).run_all(of, next, &results));
        }
        drop(results);
        let mut outcome = Ok(());
        for record in records {
            outcome = outcome.and_then(|()| record.and_then(&mut keep));
            if outcome.is_err() {
                runner.stop.request();
            }
        }
        outcome
    })
}

/// A place in which one round at a time runs.
struct RoundRunner<'a> {
    runner: &'a Runner<'a>,
    scratch: PathBuf,
    made: BTreeMap<String, FixtureDigest>,
}

impl<'a> RoundRunner<'a> {
    fn new(runner: &'a Runner<'a>, number: usize) -> Self {
        let scratch = runner.scratch.path();
        let scratch = if runner.plan.abreast > 1 {
            scratch.join(number.to_string())
        } else {
            scratch.to_owned()
        };
        Self { runner, scratch, made: BTreeMap::new() }
    }

    /// Runs rounds one after the other until none is left or one fails.
    fn run_all<'r>(
        &mut self,
        of: usize,
        next: impl Fn() -> Option<&'r Round>,
        results: &mpsc::SyncSender<Result<RoundRecord>>,
    ) {
        while let Some(round) = next() {
            let record = self.run_uninterrupted(round, of);
            let failed = record.is_err();
            if results.send(record).is_err() || failed {
                return;
            }
        }
    }

    /// Runs a round and checks that it was not interrupted. Ctrl-C ends the lab as well, and the end of the lab must
    /// not count as a failure of the arm.
    fn run_uninterrupted(&mut self, round: &Round, of: usize) -> Result<RoundRecord> {
        let values = self.runner.values(round, &self.scratch)?;
        fixture::make_random(self.runner.plan, &self.scratch, &values, &mut self.made)?;
        let record = self.run_round(round, of, &values);
        self.runner.stop.check()?;
        record
    }

    fn run_round(&self, round: &Round, of: usize, values: &Values) -> Result<RoundRecord> {
        let runner = self.runner;
        let topology = network::topology(
            runner.plan,
            runner.directory,
            runner.topology.as_ref(),
            round,
            values,
        )?;
        let blueprint = Blueprint {
            plan: runner.plan,
            topology: topology.as_ref(),
            values,
            scratch: &self.scratch,
            made: &self.made,
            stop: &runner.stop,
        };
        let shared = match runner.plan.network {
            Scope::Round => Some(ArmEnvironment::start(&blueprint, None)?),
            Scope::Arm => None,
        };
        let arms = self.run_arms(round, of, &blueprint, shared)?;
        let cases = round.cases(runner.plan).into_iter().map(|(axis, case)| (axis, case.label));
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
        let (Some(topology), Some(limit)) = (topology, &self.runner.plan.limit) else {
            return Ok(None);
        };
        let resolved = topology.resolve().map_err(|e| ExperimentError::value("topology", e))?;
        network::limit(&resolved, limit)
    }

    fn run_arms(
        &self,
        round: &Round,
        of: usize,
        blueprint: &Blueprint<'_>,
        mut shared: Option<ArmEnvironment>,
    ) -> Result<Vec<ArmRecord>> {
        let mut records = Vec::new();
        for arm in schedule::rotated(&self.runner.arms, round.index) {
            if !schedule::applies(&arm.when, blueprint.values)? {
                continue;
            }
            self.runner.stop.check()?;
            let record = match installed_programs::missing(&arm.requires)
                .or_else(|| service::missing(self.runner.plan, arm))
            {
                Some(reason) => {
                    ArmRecord::new(&arm.name, arm.command.clone(), Outcome::Skipped(reason))
                }
                None => self.run_attempts(arm, blueprint, &mut shared)?,
            };
            report_arm(self.runner.plan, round, of, &record);
            records.push(record);
        }
        Ok(records)
    }

    /// Runs an arm until it is within the bounds of validity, at most as often as the plan allows.
    fn run_attempts(
        &self,
        arm: &Arm,
        blueprint: &Blueprint<'_>,
        shared: &mut Option<ArmEnvironment>,
    ) -> Result<ArmRecord> {
        let most = self.runner.plan.validity.attempts.max(1);
        let mut attempt = 1;
        loop {
            let mut record = self.run_once(arm, blueprint, shared)?;
            record.attempts = attempt;
            match validity::out_of_bounds(self.runner.plan, &record).filter(|_| attempt < most) {
                None => return Ok(record),
                Some(why) => note!("  {}: repeating, because {why}", arm.name),
            }
            attempt += 1;
        }
    }

    fn run_once(
        &self,
        arm: &Arm,
        blueprint: &Blueprint<'_>,
        shared: &mut Option<ArmEnvironment>,
    ) -> Result<ArmRecord> {
        let Runner { plan, versions, stop, .. } = self.runner;
        let out = arm::empty_directory(self.scratch.join("out"))?;
        let version = versions.get(&arm.name).cloned();
        let context = Context { plan, made: &self.made, stop, version, out };
        let record = match shared {
            Some(bench) => arm::run(arm, bench, &context),
            None => arm::run(arm, &mut ArmEnvironment::start(blueprint, Some(arm))?, &context),
        };
        // Outputs are large, and the next arm must not see them.
        let _gone = fs::remove_dir_all(&context.out);
        record
    }
}
