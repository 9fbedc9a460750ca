//! The lab's tools in its hosts.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};
use thalweg_lab::client::Lab;

/// A program that ends with this value.
pub struct Program {
    child: Child,
    /// `None` once it is taken.
    out: Option<BufReader<ChildStdout>>,
    name: String,
}

impl Program {
    /// A tool of the lab's.
    ///
    /// # Errors
    /// When it does not start.
    pub fn tool(lab: &Lab, host: &str, args: &[&str]) -> anyhow::Result<Self> {
        Self::start(lab.tool(host, args), format!("{} at {host}", args.first().unwrap_or(&"tool")))
    }

    /// Any; what it says on its standard error is shown.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(mut command: Command, name: String) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let out = child.stdout.take().context("its output is ours")?;
        Ok(Self { child, out: Some(BufReader::new(out)), name })
    }

    fn output(&mut self) -> anyhow::Result<&mut BufReader<ChildStdout>> {
        self.out.as_mut().with_context(|| format!("the output of {} is read elsewhere", self.name))
    }

    /// Its standard output, for another reader; `None` if it is taken.
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.out.take()
    }

    /// The process that was started; in a lab the program is its descendant.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The line that says that it is ready.
    ///
    /// # Errors
    /// When it ends before.
    pub fn ready(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output()?.read_line(&mut line)?;
        ensure!(line.contains("ready"), "{} did not start: {}", self.name, line.trim());
        Ok(line)
    }

    /// What it prints at its end, as JSON.
    ///
    /// # Errors
    /// When it fails.
    pub fn report(mut self) -> anyhow::Result<Value> {
        let mut text = String::new();
        self.output()?.read_to_string(&mut text)?;
        ensure!(self.child.wait()?.success(), "{} failed", self.name);
        let told = serde_json::from_str(text.trim());
        told.with_context(|| format!("{} printed no report: {text}", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be gone already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
