//! What commands do where standard output or standard error take nothing: no panic (exit code
//! 101), and an exit code that says whether the result arrived.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::{
    fs::{File, OpenOptions},
    process::{Command, Output, Stdio},
};

/// Commands that print data and need no network.
const PRINTING: &[&[&str]] = &[
    &["sim", "fig-2", "--input", "cloud"],
    &["sim", "fig-2", "--input", "cloud", "--json"],
    &["experiment", "list"],
    &["experiment", "list", "--json"],
    &["lab", "check", "--help"],
];

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// The writing end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// In a directory of its own.
fn run(arguments: &[&str], set: impl FnOnce(&mut Command)) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-bench"));
    command.args(arguments).current_dir(place.path()).env_remove("THALWEG_DATA");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    set(&mut command);
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn who_reads_no_further_ends_nothing_badly() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(closed()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
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
    let others: &[&[&str]] =
        &[&["gett"], &["sim", "fig-2", "--input", "nowhere.csv"], &["experiment", "run", "none"]];
    for arguments in PRINTING.iter().chain(others) {
        let usual = run(arguments, |_| ());
        let full = run(arguments, |command| _ = command.stderr(full()));
        let closed = run(arguments, |command| _ = command.stderr(closed()));
        for output in [full, closed] {
            assert_eq!(output.status.code(), usual.status.code(), "{arguments:?}");
            assert_eq!(output.stdout.len(), usual.stdout.len(), "{arguments:?}");
        }
    }
}
