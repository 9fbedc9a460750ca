//! Helpers of the lab's tests: a lab if one is possible, and waiting for a condition.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; tests may panic

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};
use thalweg_lab::{client::Lab, topology::Topology};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg-lab");

/// Reports why a test is skipped. In CI a skipped test fails, unless `THALWEG_SKIP` is set.
pub fn skip(why: &str) {
    let set = |name| std::env::var_os(name).is_some();
    assert!(!set("CI") || set("THALWEG_SKIP"), "cannot be tested here: {why}");
    eprintln!("skipped: {why}");
}

/// Whether a lab is possible on this machine. Reports the reason if not.
pub fn is_lab_possible() -> bool {
    let open = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    if let Err(e) = &open {
        skip(&format!("no lab here, /dev/net/tun: {e}"));
    }
    open.is_ok()
}

/// Starts a lab; `None` if labs are not possible here.
pub fn start_lab(topology: &str) -> Option<Lab> {
    let topology = Topology::from_toml(topology).unwrap();
    is_lab_possible().then(|| Lab::start(&topology).unwrap_or_else(|e| panic!("the lab: {e}")))
}

/// Runs a command. Returns its output for any exit code.
pub fn run_command(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Runs a command that must succeed. Returns its trimmed output.
pub fn read_output(command: &mut Command) -> String {
    let out = run_command(command);
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Polls until `condition` holds, and fails after half a minute.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
