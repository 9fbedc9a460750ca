//! Programs in the lab's hosts.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};
use thalweg_lab::client::Lab;

/// A running program, killed on drop.
pub struct Program {
    child: Child,
    /// `None` once another reader has it.
    out: Option<BufReader<ChildStdout>>,
    name: String,
}

impl Program {
    /// Starts a tool of the lab.
    ///
    /// # Errors
    /// When it does not start.
    pub fn tool(lab: &Lab, host: &str, args: &[&str]) -> anyhow::Result<Self> {
        Self::start(lab.tool(host, args), format!("{} at {host}", args.first().unwrap_or(&"tool")))
    }

    /// Starts a program; its standard error is inherited.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(mut command: Command, name: String) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let out = child.stdout.take().context("cannot read the program's output")?;
        Ok(Self { child, out: Some(BufReader::new(out)), name })
    }

    fn output(&mut self) -> anyhow::Result<&mut BufReader<ChildStdout>> {
        self.out
            .as_mut()
            .with_context(|| format!("the output of {} is already being read", self.name))
    }

    /// Takes its standard output for another reader; `None` if it is taken already.
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.out.take()
    }

    /// The id of the started process; in a lab the program is a descendant of it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the line that says that the program is ready, and returns it.
    ///
    /// # Errors
    /// When the program ends before.
    pub fn ready(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output()?.read_line(&mut line)?;
        ensure!(line.contains("ready"), "{} did not start: {}", self.name, line.trim());
        Ok(line)
    }

    /// Waits for the program's end and parses its output as JSON.
    ///
    /// # Errors
    /// When it fails.
    pub fn report(mut self) -> anyhow::Result<Value> {
        let mut text = String::new();
        self.output()?.read_to_string(&mut text)?;
        ensure!(self.child.wait()?.success(), "{} failed", self.name);
        let report = serde_json::from_str(text.trim());
        report.with_context(|| format!("{} printed no report: {text}", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
