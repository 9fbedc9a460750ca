//! A running collection or transfer, followed by its events.

use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A command with `--json`, and its events.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The highest number of finished bytes that it has reported.
    pub done: u64,
    pub last: Value,
}

impl Running {
    pub fn new(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, done: 0, last: Value::Null }
    }

    /// The next event; `None` after the last one.
    pub fn next(&mut self) -> Option<&Value> {
        self.last = serde_json::from_str(&self.lines.next()?.unwrap()).unwrap();
        if self.last["event"] == "progress" {
            self.done = self.last["done_bytes"].as_u64().unwrap();
        }
        Some(&self.last)
    }

    /// Reads up to the first event that matches.
    pub fn until(&mut self, mut is_it: impl FnMut(&Value) -> bool) {
        while !is_it(self.next().expect("it was over before")) {}
    }

    /// Reads until more than `bytes` bytes are here.
    pub fn until_done(&mut self, bytes: u64) {
        while self.done <= bytes {
            self.next().expect("it was over before");
        }
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Reads all remaining events.
    pub fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(event) = self.next() {
            rest.push(event.clone());
        }
        rest
    }

    /// Waits for the end. Returns the exit code; remaining events are skipped.
    pub fn code(&mut self) -> Option<i32> {
        self.rest();
        self.child.wait().unwrap().code()
    }
}
