//! `strace`, which delays system calls or lets them fail.

use anyhow::Context as _;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The calls that make something durable or visible.
pub const DURABLE: &str = "fsync,fdatasync,syncfs,rename,renameat,renameat2,linkat";

/// A configuration of the tracer.
pub struct Tracer {
    log: PathBuf,
    calls: String,
    does: String,
}

impl Tracer {
    /// Delays each durable call by `span`, before or after its execution.
    pub fn delay_calls(log: &Path, before: bool, span: Duration) -> Self {
        let when = if before { "delay_enter" } else { "delay_exit" };
        let does = format!("{when}={}", span.as_micros());
        Self { log: log.to_owned(), calls: DURABLE.to_owned(), does }
    }

    /// Delays the return of each of these calls by `span`.
    pub fn delay_these(log: &Path, calls: &str, span: Duration) -> Self {
        let does = format!("delay_exit={}", span.as_micros());
        Self { log: log.to_owned(), calls: calls.to_owned(), does }
    }

    /// Lets the n-th of these calls fail, counted from 1 in each thread separately.
    pub fn fail_call(log: &Path, calls: &str, n: usize) -> Self {
        let does = format!("error=EIO:when={n}");
        Self { log: log.to_owned(), calls: calls.to_owned(), does }
    }

    /// The arguments that precede the program's command line.
    pub fn args(&self) -> Vec<String> {
        let Self { log, calls, does } = self;
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:{does}"));
        let log = log.display().to_string();
        ["strace", "-f", "-y", "--seccomp-bpf", "-qq", "-e", &trace, "-e", &inject, "-o", &log]
            .map(str::to_owned)
            .into()
    }

    /// The lines of the log about calls that were made to fail, with the paths of their files.
    ///
    /// # Errors
    /// When there is no log.
    pub fn failed(&self) -> anyhow::Result<Vec<String>> {
        let text = fs::read_to_string(&self.log).context("strace recorded nothing")?;
        Ok(text.lines().filter(|l| l.contains("(INJECTED)")).map(str::to_owned).collect())
    }
}
