//! Commands whose standard output or standard error cannot be written: they do not panic (exit code 101), and their
//! exit code says whether the result arrived.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::process::{Command, Output, Stdio};
use thalweg_lab::outputs::{closed_pipe, full_disk};

/// Commands that print data and need no network.
const PRINTING: &[&[&str]] = &[
    &["sim", "fig-2", "--input", "cloud"],
    &["sim", "fig-2", "--input", "cloud", "--json"],
    &["experiment", "list"],
    &["experiment", "list", "--json"],
    &["lab", "check", "--help"],
];

/// Runs the harness in a temporary directory.
fn run(arguments: &[&str], set: impl FnOnce(&mut Command)) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-bench"));
    command.args(arguments).current_dir(place.path()).env_remove("THALWEG_DATA");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    set(&mut command);
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_reader_that_closes_standard_output_causes_no_error() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(closed_pipe().unwrap()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    }
}

#[test]
fn a_result_that_does_not_fit_on_the_disk_is_an_error() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(full_disk().unwrap()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let wanted = "cannot write to standard output: No space left on device";
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn an_unwritable_standard_error_does_not_change_the_exit_code() {
    let others: &[&[&str]] =
        &[&["gett"], &["sim", "fig-2", "--input", "nowhere.csv"], &["experiment", "run", "none"]];
    for arguments in PRINTING.iter().chain(others) {
        let usual = run(arguments, |_| ());
        let full = run(arguments, |command| _ = command.stderr(full_disk().unwrap()));
        let closed = run(arguments, |command| _ = command.stderr(closed_pipe().unwrap()));
        for output in [full, closed] {
            assert_eq!(output.status.code(), usual.status.code(), "{arguments:?}");
            assert_eq!(output.stdout.len(), usual.stdout.len(), "{arguments:?}");
        }
    }
}
