//! `kill -9` before and after each system call that makes something durable or visible.
//!
//! The tracer delays every such call; in the k-th delay, counted over all threads, the program is killed. A thread
//! counts as delayed if the tracer stops it for longer than tracing itself takes.

use super::{
    Common,
    cost::{Cost, measure_undisturbed},
    download::{Download, EndedDownload},
    tally::{FaultTrial, TrialTally},
    tracer::Tracer,
};
use crate::{load::report::Report, program};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long the tracer delays a call.
const HOLD: Duration = Duration::from_millis(150);

/// A thread that is stopped for this long is delayed.
const HELD: Duration = Duration::from_millis(60);

/// The interval between two looks at the threads.
const LOOK: Duration = Duration::from_millis(2);

/// Arguments of `thalweg-bench load get-faults holds`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Maximum number of calls per download, from the first one on
    #[arg(long, default_value_t = 60)]
    most: usize,
}

/// Kills a download before its first, second … call until there are no more calls, then likewise after each call.
///
/// # Errors
/// When a trial cannot be set up.
pub fn run(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let right = args.common.begin()?;
    let mut tally = TrialTally::default();
    let calm = measure_undisturbed(&args.common, &args.common.url, &right, &mut tally)?;
    let mut cost = Cost::default();
    let mut number = 0;
    for before in [true, false] {
        let mut calls = 0;
        while calls < args.most {
            number += 1;
            let runs = kill_in_call(args, number, before, calls + 1, &right, &mut tally)?;
            let Some([killed, again]) = runs else { break };
            cost.add(calm, [&killed, &again], &args.common.url(number), right.len())?;
            calls += 1;
        }
        let when = if before { "before" } else { "after" };
        report.add(format!("killed_{when}"), "1", calls as f64);
    }
    cost.report(report);
    tally.report(report);
    Ok(())
}

/// Kills a download in the k-th delay and runs it again. Returns both runs, or `None` if it ended before.
fn kill_in_call(
    args: &Args,
    number: usize,
    before: bool,
    k: usize,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
) -> anyhow::Result<Option<[EndedDownload; 2]>> {
    let Common { dir, get, .. } = &args.common;
    let url = args.common.url(number);
    let when = if before { "before" } else { "after" };
    let trial = FaultTrial::new(dir, "hold", &url, &[Arc::clone(right)], get)?;
    let tracer = Tracer::delay_calls(&dir.join("strace"), before, HOLD);
    let mut download = trial.order.start(&tracer.args())?;
    let killed = kill_in_hold(&mut download, k)?;
    let ended = download.end()?;
    let what = match &killed {
        Some(call) => format!("killed {when} call {k} ({call})"),
        None => format!("traced, {} calls", k - 1),
    };
    let runs = if killed.is_none() {
        tally.expect_success(&trial, &ended, &what)?;
        None
    } else {
        let again = trial.order.run()?;
        tally.expect_success(&trial, &again, &what)?;
        Some([ended, again])
    };
    tally.end(trial, &what)?;
    Ok(runs)
}

/// Kills the program in its k-th delay. Returns the call, or `None` if the program ended before.
fn kill_in_hold(download: &mut Download, k: usize) -> anyhow::Result<Option<String>> {
    let mut holds = StoppedThreads::default();
    let mut program = None;
    while download.is_running()? {
        program = program.or_else(|| child_of(download.id()));
        if let Some(id) = program
            && let Some(call) = holds.find_stopped(id)
            && holds.count == k
        {
            let pid = i32::try_from(id)
                .ok()
                .and_then(Pid::from_raw)
                .context("the process id is invalid")?;
            kill_process(pid, Signal::KILL)?;
            return Ok(Some(call));
        }
        thread::sleep(LOOK);
    }
    ensure!(program.is_some(), "the tracer did not start the program");
    Ok(None)
}

/// The tracer's child that runs the product; the tracer may have others, with which it tests its own features.
fn child_of(tracer: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).ok()?;
    let own = fs::canonicalize(program::product().ok()?).ok()?;
    let is_program = |id: &&str| fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|e| e == own);
    children.split_ascii_whitespace().find(is_program)?.parse().ok()
}

/// The stopped threads, each with its call, the time since when, and whether it was counted.
#[derive(Default)]
struct StoppedThreads {
    stopped: BTreeMap<PathBuf, (String, Instant, bool)>,
    count: usize,
}

impl StoppedThreads {
    /// Looks at all threads; returns the call of a thread that was newly found to be delayed.
    fn find_stopped(&mut self, process: u32) -> Option<String> {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
        let mut found = None;
        for task in tasks.flatten().map(|task| task.path()) {
            let Some(call) = stopped_call(&task) else {
                self.stopped.remove(&task);
                continue;
            };
            let fresh = (call.clone(), Instant::now(), false);
            let known = self.stopped.entry(task).or_insert_with(|| fresh.clone());
            if known.0 != call {
                *known = fresh;
            }
            if !known.2 && known.1.elapsed() >= HELD && found.is_none() {
                known.2 = true;
                self.count += 1;
                found = Some(call);
            }
        }
        found
    }
}

/// The call with its arguments, as the kernel shows it, if the tracer has stopped the thread.
fn stopped_call(task: &std::path::Path) -> Option<String> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    let state = stat.rsplit(')').next()?.split_ascii_whitespace().next()?;
    let call = fs::read_to_string(task.join("syscall")).ok()?;
    (state == "t" && !call.starts_with("running")).then(|| call.trim().to_owned())
}
