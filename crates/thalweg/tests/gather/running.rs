//! A collection under way.

use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A call with `--json`, and its events.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The most bytes that it said are here.
    pub done: u64,
    pub last: Value,
}

impl Running {
    pub fn new(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, done: 0, last: Value::Null }
    }

    /// The next event; none after the last.
    pub fn next(&mut self) -> Option<&Value> {
        self.last = serde_json::from_str(&self.lines.next()?.unwrap()).unwrap();
        if self.last["event"] == "progress" {
            self.done = self.last["done_bytes"].as_u64().unwrap();
        }
        Some(&self.last)
    }

    /// Goes on to the first such event.
    pub fn until(&mut self, mut is_it: impl FnMut(&Value) -> bool) {
        while !is_it(self.next().expect("it was over before")) {}
    }

    /// Until more than so many bytes are here.
    pub fn until_done(&mut self, bytes: u64) {
        while self.done <= bytes {
            self.next().expect("it was over before");
        }
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// All events that come yet.
    pub fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(event) = self.next() {
            rest.push(event.clone());
        }
        rest
    }

    /// Its exit code, at its end; events that nobody asked for are passed over.
    pub fn code(&mut self) -> Option<i32> {
        self.rest();
        self.child.wait().unwrap().code()
    }
}
