//! What commands do where standard output or standard error take nothing: no panic (exit code
//! 101), and an exit code that says whether the result arrived.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::{
    fs::{File, OpenOptions},
    path::Path,
    process::{Command, Output, Stdio},
};

/// Commands that print data, and need neither a network nor a mesh.
const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["config", "example"],
    &["config", "check", "--config", "settings.toml"],
    &["history", "show"],
    &["history", "--json"],
    &["mesh", "init", "--name", "fra", "--address", "127.0.0.1:7373", "--state"],
];

/// Each in a place of its own; what ends in `--state` gets a directory.
fn thalweg(place: &Path, arguments: &[&str]) -> Command {
    std::fs::write(place.join("settings.toml"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).current_dir(place).stdin(Stdio::null());
    if arguments.last() == Some(&"--state") {
        command.arg(place.join("founded"));
    }
    command.env("THALWEG_STATE", place.join("state")).env("HOME", place);
    command.env("XDG_CACHE_HOME", place).env("XDG_CONFIG_HOME", place);
    command
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// The writing end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn run(arguments: &[&str], set: impl FnOnce(&mut Command)) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = thalweg(place.path(), arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    set(&mut command);
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn who_reads_no_further_ends_nothing_badly() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(closed()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_result_that_a_full_disk_does_not_take_is_an_error() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(full()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let wanted = "cannot write to standard output: No space left on device";
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn a_standard_error_that_takes_nothing_changes_no_exit_code() {
    let others: &[&[&str]] = &[
        &["gett"],
        &["status"],
        &["config", "check", "--config", "nowhere.toml"],
        &["get", "not-a-url"],
        &["run", "-v", "true"],
        &["run", "no-such-program-here"],
        &["proxy", "--listen", "0.0.0.0:0"],
        &["get", "-q", "http://127.0.0.1:1/", "--tries", "1", "-o", "file"],
    ];
    for arguments in PRINTING.iter().chain(others) {
        let usual = run(arguments, |_| ());
        let full = run(arguments, |command| _ = command.stderr(full()));
        let closed = run(arguments, |command| _ = command.stderr(closed()));
        for output in [full, closed] {
            assert_eq!(output.status.code(), usual.status.code(), "{arguments:?}");
            assert_ne!(output.status.code(), Some(101), "{arguments:?}");
            // Founding a mesh makes new keys.
            if arguments.first() != Some(&"init") {
                assert_eq!(output.stdout.len(), usual.stdout.len(), "{arguments:?}");
            }
        }
    }
}
