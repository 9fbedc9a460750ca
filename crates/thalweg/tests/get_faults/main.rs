//! Faults of the program `thalweg get`; docs/faults/get.md lists them.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod altering_relay;
mod answers;
mod disk;

use serde_json::Value;
use std::{
    ffi::OsStr,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Prints why a test is skipped, past the capture of the tests' output. In CI a skipped test fails, unless THALWEG_SKIP
/// is set.
fn skip(why: &str) {
    let set = |name| std::env::var_os(name).is_some();
    assert!(!set("CI") || set("THALWEG_SKIP"), "cannot be tested here: {why}");
    _ = writeln!(io::stderr(), "SKIPPED: {why}");
}

/// A tool of `thalweg-lab` that listens on loopback, until it is dropped.
struct Tool {
    child: Child,
    address: String,
}

impl Tool {
    /// `None` if there is no `thalweg-lab`; the reason is printed.
    fn start(name: &str, args: &[impl AsRef<OsStr>]) -> Option<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_thalweg")).with_file_name("thalweg-lab");
        if !program.exists() {
            skip("there is no thalweg-lab (cargo build --workspace --bins)");
            return None;
        }
        let mut command = Command::new(program);
        command.args(["tool", name, "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["ready"]["address"].as_str().unwrap().to_owned();
        Some(Self { child, address })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Content in which no part repeats soon.
fn bytes(length: u32) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
