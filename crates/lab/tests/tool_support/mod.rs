//! Starts the lab's tools over loopback and reads their output.
#![allow(dead_code, reason = "each test file uses its own part")]

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

/// The command `thalweg-lab tool ARGS`.
pub fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-lab"));
    command.arg("tool").args(args).stdin(Stdio::null());
    command
}

/// Runs a tool to its end. Returns its report.
pub fn run(args: &[&str]) -> Value {
    let output = tool(args).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{args:?} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a tool that must fail. Returns its standard error.
pub fn run_failing(args: &[&str]) -> String {
    let output = tool(args).output().unwrap();
    assert!(!output.status.success(), "{args:?} did not fail");
    String::from_utf8(output.stderr).unwrap()
}

/// A running server tool; killed when dropped.
pub struct ServerTool {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The address at which it listens.
    pub address: String,
}

impl ServerTool {
    /// Starts a server tool and waits for its ready line.
    pub fn start(args: &[&str]) -> Self {
        let mut child = tool(args).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, stdout, address: String::new() };
        server.address = server.line()["ready"]["address"].as_str().unwrap().to_owned();
        server
    }

    /// Reads the next line that it prints.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("`{line}`: {e}"))
    }

    /// Waits until it ends by itself. Returns whether it succeeded.
    pub fn end(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for ServerTool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
