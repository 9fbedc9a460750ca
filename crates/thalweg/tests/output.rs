//! Commands whose standard output or standard error cannot be written: they must not panic (exit code 101), and the
//! exit code must say whether the result arrived.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};
use thalweg_lab::outputs::{closed_pipe, full_disk};

/// Commands that print data, and need neither a network nor a mesh.
const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["config", "example"],
    &["config", "check", "--config", "settings.toml"],
    &["history", "show"],
    &["history", "--json"],
    &["mesh", "init", "--name", "fra", "--address", "127.0.0.1:7373", "--state"],
];

/// The command in the directory `place`; arguments that end in `--state` get a directory.
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

fn run(arguments: &[&str], set: impl FnOnce(&mut Command)) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = thalweg(place.path(), arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    set(&mut command);
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(closed_pipe().unwrap()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for arguments in PRINTING {
        let output = run(arguments, |command| _ = command.stdout(full_disk().unwrap()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let wanted = "cannot write to standard output: No space left on device";
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn an_unwritable_standard_error_changes_no_exit_code() {
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
        let full = run(arguments, |command| _ = command.stderr(full_disk().unwrap()));
        let closed = run(arguments, |command| _ = command.stderr(closed_pipe().unwrap()));
        for output in [full, closed] {
            assert_eq!(output.status.code(), usual.status.code(), "{arguments:?}");
            assert_ne!(output.status.code(), Some(101), "{arguments:?}");
            // Founding a mesh creates new keys.
            if !arguments.starts_with(&["mesh", "init"]) {
                assert_eq!(output.stdout.len(), usual.stdout.len(), "{arguments:?}");
            }
        }
    }
}

/// Starts a server that gives this hostile answer, whose text `get` prints.
fn hostile_server(answer: &'static str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            // The client may have closed the connection.
            _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{at}/x")
}

#[test]
fn text_of_a_server_is_escaped() {
    let hostile = |c: char| {
        (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{2028}'
    };
    let answers = [
        "HTTP/1.1 302 F\r\nlocation: gopher://a\u{9b}31mb\u{202e}cod.exe/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-disposition: attachment; filename*=UTF-8''a%1b%5b31mb%e2%80%aecod\r\n\
         content-length: 5\r\n\r\nhello",
        "HTTP/1.1 206 P\r\ncontent-range: bytes 0-1/\u{9b}31m\u{2028}\r\ncontent-length: 2\r\n\r\nhe",
    ];
    for answer in answers {
        let url = hostile_server(answer);
        for how in [&["get", "-v"][..], &["get", "--json"]] {
            let arguments = [how, &["--tries", "1", "--history", "none", url.as_str()]].concat();
            let output = run(&arguments, |_| ());
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            assert!(!said.is_empty() && !said.contains(hostile), "{arguments:?}: {said:?}");
        }
    }
}

#[test]
fn arguments_of_the_user_are_escaped() {
    for arguments in [&["gett\u{1b}[2J"][..], &["get", "\u{1b}]0;x\u{7}\u{202e}"]] {
        let said = String::from_utf8(run(arguments, |_| ()).stderr).unwrap();
        assert!(!said.is_empty() && !said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{said:?}");
    }
}
