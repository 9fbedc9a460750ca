//! Measures the bytes that a metered interface carries, as the kernel counts them, while a command of ours uses it
//! until its cap is spent.
//!
//! The command runs to its end. If `--kill-at` is given, it is first started and killed in the middle once. A program
//! that only serves (`thalweg proxy`) is used by a script and ends with the script.

use super::{super::report::Report, counters};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_units::{ByteSize, parse_duration};

/// The interval between two reads of the counters.
const LOOK: Duration = Duration::from_millis(2);

/// The traffic has ended when the counters stay unchanged for this long, which is longer than some retransmissions
/// take.
const QUIET: Duration = Duration::from_millis(1500);

/// Arguments of `thalweg-bench load bond capped`.
#[derive(clap::Args)]
pub struct Args {
    /// The interface with the cap
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// The cap in the settings
    #[arg(long, value_name = "SIZE")]
    cap: ByteSize,
    /// Kill a first run of the command once this many bytes have passed the interface
    #[arg(long, value_name = "SIZE")]
    kill_at: Option<ByteSize>,
    /// Script to run with `sh` at the same time; the command ends with it
    #[arg(long, value_name = "FILE")]
    user: Option<String>,
    /// Time limit for everything
    #[arg(long, value_name = "TIME", default_value = "100s", value_parser = parse_duration)]
    within: Duration,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// A run of the command and its script. Dropping it kills the processes that still run.
struct CappedRun {
    command: Child,
    user: Option<Child>,
}

/// Measures and prints the report.
///
/// # Errors
/// When the command fails or ends before it is to be killed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let until = Instant::now() + args.within;
    let before = counters::total_bytes()?;
    let went = |name: &str| -> anyhow::Result<u64> {
        let now = counters::total_bytes()?;
        let (now, then) = (now.get(name), before.get(name));
        Ok(now.context("there is no such interface")?
            - then.context("there is no such interface")?)
    };
    if let Some(at) = args.kill_at {
        let mut first = CappedRun::begin(args)?;
        while went(&args.interface)? < at.as_bytes() {
            ensure!(!first.has_ended()?, "the command ended before it reached --kill-at");
            ensure!(Instant::now() < until, "the command did not reach --kill-at in time");
            thread::sleep(LOOK);
        }
    }
    CappedRun::begin(args)?.end(until)?;
    let mut all = (went(&args.interface)?, Instant::now());
    while all.1.elapsed() < QUIET {
        thread::sleep(LOOK);
        let now = went(&args.interface)?;
        if now != all.0 {
            all = (now, Instant::now());
        }
    }
    let names = before.keys().filter(|name| **name != args.interface);
    let others = names.map(|name| went(name)).sum::<anyhow::Result<u64>>()?;
    report(args.cap.as_bytes(), all.0, others).print().context("cannot print the report")
}

fn report(cap: u64, went: u64, others: u64) -> Report {
    let mut report = Report::default();
    report.add("went", "MB", went as f64 * 1e-6);
    // Negative if less than the cap was used.
    report.add("beyond", "KiB", (went as f64 - cap as f64) / 1024.0);
    report.add("of_cap", "ratio", went as f64 / cap as f64);
    report.add("others", "MB", others as f64 * 1e-6);
    report
}

impl CappedRun {
    fn begin(args: &Args) -> anyhow::Result<Self> {
        let (program, rest) = args.command.split_first().context("no command is given")?;
        let mut command = Command::new(program);
        let command = command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let command = command.with_context(|| format!("cannot start {program}"))?;
        let mut run = Self { command, user: None };
        if let Some(script) = &args.user {
            let mut user = Command::new("sh");
            user.arg(script).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            run.user = Some(user.spawn().context("cannot start sh")?);
        }
        Ok(run)
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.user.as_mut().unwrap_or(&mut self.command).try_wait()?.is_some())
    }

    fn end(mut self, until: Instant) -> anyhow::Result<()> {
        while !self.has_ended()? {
            ensure!(Instant::now() < until, "the command did not end in time");
            thread::sleep(LOOK);
        }
        let status = self.user.as_mut().unwrap_or(&mut self.command).wait()?;
        ensure!(status.success(), "the command failed: {status}");
        Ok(())
    }
}

impl Drop for CappedRun {
    fn drop(&mut self) {
        // The processes may have ended already.
        if let Some(user) = &mut self.user {
            // The programs that the script started are in its process group.
            let group = i32::try_from(user.id()).ok().and_then(Pid::from_raw);
            _ = group.map(|group| kill_process_group(group, Signal::KILL));
            _ = user.wait();
        }
        _ = self.command.kill();
        _ = self.command.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_cap_are_reported_in_kib() {
        let result = report(8_000_000, 8_000_000 + 2048, 5);
        assert_eq!(result.value("beyond").and_then(serde_json::Value::as_f64), Some(2.0));
        let result = report(8_000_000, 6_000_000, 5);
        assert_eq!(result.value("of_cap").and_then(serde_json::Value::as_f64), Some(0.75));
    }
}
