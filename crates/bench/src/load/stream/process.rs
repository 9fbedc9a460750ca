//! Processes of `thalweg stream` on hosts of a lab.

use super::super::carrier_hosts::CarrierHosts;
use anyhow::Context as _;
use std::{
    fs::OpenOptions,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

/// A running `thalweg stream`; ended on drop. What it writes to standard error is in a log.
#[derive(Debug)]
pub struct StreamProcess(Child);

impl StreamProcess {
    /// Starts `thalweg stream ARGS`. Its output is a pipe, and so is its input with `has_input`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(
        hosts: &CarrierHosts<'_>,
        host: &str,
        has_input: bool,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let log = hosts.dir.join(format!("{host}.{}.log", args[0]));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = hosts.command(host)?;
        command.arg("stream").args(args).stdout(Stdio::piped()).stderr(log);
        command.stdin(if has_input { Stdio::piped() } else { Stdio::null() });
        let started = command.spawn();
        Ok(Self(started.with_context(|| format!("cannot start `thalweg stream` at {host}"))?))
    }

    /// The pipe of its input.
    ///
    /// # Errors
    /// When it has none, or it was taken before.
    pub fn take_input(&mut self) -> anyhow::Result<ChildStdin> {
        self.0.stdin.take().context("cannot write to the program's input")
    }

    /// The pipe of its output.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn take_output(&mut self) -> anyhow::Result<ChildStdout> {
        self.0.stdout.take().context("cannot read the program's output")
    }
}

impl Drop for StreamProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
