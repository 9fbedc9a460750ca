//! `thalweg get` as a program: kills, signals, exit codes, what is printed where.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

// Each of the two crates of tests uses another part of it.
#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../node/tests/get/server.rs"]
mod server;

use server::{Server, Step, Version};
use sha2::{Digest, Sha256};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const LENGTH: usize = 3_000_000;
/// What the hanging server delivers.
const GIVEN: u64 = 1_000_000;

fn thalweg(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("get").args(args).current_dir(dir).stdin(Stdio::null());
    // The mesh of whoever runs the tests is no part of them.
    command.env("THALWEG_STATE", dir.join("no-mesh"));
    // Neither are his history and his passwords.
    command.env("XDG_CACHE_HOME", "/nonexistent/cache").env("HOME", "/nonexistent/home");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end without blocking the server's thread.
async fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = thalweg(dir, args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string();
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| name(e).unwrap()).collect();
    names.sort();
    names
}

/// A server whose first segment ends in silence.
async fn hanging(version: &Version) -> Server {
    Server::start(version, |ask, reply| {
        if ask.number == 1 {
            reply.after_bytes(GIVEN as usize, Step::Hang);
        }
    })
    .await
}

/// Starts a download and waits until the journal has the bytes that the server gives.
async fn halfway(dir: &Path, server: &Server) -> Child {
    let child = thalweg(dir, &[&server.url()]).spawn().unwrap();
    let journal: PathBuf = dir.join(".file.bin.thalweg-journal");
    let wanted = format!("\"end\":{GIVEN},");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains(&wanted) {
        tokio::task::yield_now().await;
    }
    child
}

fn assert_not_again(server: &Server, first_sessions: usize) {
    let again = server.segments().split_off(first_sessions);
    assert!(!again.is_empty() && again.iter().all(|r| r.start >= GIVEN), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_there_and_nothing_on_standard_output() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file.bin"), "old").unwrap();
    let hash = format!("{:x}", Sha256::digest(&version.bytes));
    let output = run(dir.path(), &[&server.url(), "--sha256", &hash]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    assert!(std::fs::read(dir.path().join("file.bin")).unwrap() == version.bytes);
    assert_eq!(names(dir.path()), ["file.bin"]);
    let last = text(&output.stderr).lines().last().unwrap().to_owned();
    assert!(last.starts_with("file.bin: 3 MB in ") && last.contains("bit/s"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_one_event_a_line_and_all_of_standard_output() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--json", "-o", "x"]).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events[0]["event"], "started");
    assert_eq!(events[0]["total_bytes"], LENGTH);
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["bytes"]), (&"finished".into(), &LENGTH.into()));
    assert!(last["rate_bps"].as_u64().unwrap() > 0 && last["seconds"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_midway_it_goes_on_where_it_was() {
    let version = Version::new(1, LENGTH);
    let server = hanging(&version).await;
    let dir = TempDir::new().unwrap();
    let mut child = halfway(dir.path(), &server).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(dir.path()), [".file.bin.thalweg-journal", ".file.bin.thalweg-part"]);
    let before = server.segments().len();
    let output = run(dir.path(), &[&server.url()]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("going on after 1 MB"), "{}", text(&output.stderr));
    assert_not_again(&server, before);
    assert!(std::fs::read(dir.path().join("file.bin")).unwrap() == version.bytes);
    assert_eq!(names(dir.path()), ["file.bin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_how_to_go_on() {
    let version = Version::new(1, LENGTH);
    let server = hanging(&version).await;
    let dir = TempDir::new().unwrap();
    let child = halfway(dir.path(), &server).await;
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = text(&output.stderr);
    assert!(said.contains("interrupted") && said.contains("1 MB are kept"), "{said}");
    let output = run(dir.path(), &[&server.url(), "--quiet"]).await;
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(std::fs::read(dir.path().join("file.bin")).unwrap() == version.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_file_is_refused() {
    let version = Version::new(1, LENGTH);
    let server = hanging(&version).await;
    let dir = TempDir::new().unwrap();
    let mut first = halfway(dir.path(), &server).await;
    let output = run(dir.path(), &[&server.url()]).await;
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("another process is already writing file.bin"));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_failure_from_wrong_usage() {
    let server = Server::start(&Version::new(1, 10), |_, reply| reply.status(404)).await;
    let dir = TempDir::new().unwrap();
    let url = server.url();
    for (args, code, word) in [
        (&[url.as_str()][..], 3, "404"),
        (&[url.as_str(), "-o", "/proc/x"], 3, "404"),
        (&["http://127.0.0.1:1/x"], 4, "refuse"),
        (&["http://127.0.0.1/"], 2, "-o"),
        (&["example.org/x"], 2, "https://example.org/x"),
        (&["ftp://example.org/x"], 2, "only http"),
        (&[url.as_str(), "--sha256", "12"], 2, "2 digits given"),
        (&[url.as_str(), url.as_str(), "--sha256", "12"], 2, "exactly one URL"),
        (&[url.as_str(), "--mirror", "http://a/b"], 2, "--mirror needs"),
        (&[url.as_str(), "--header", "Range: bytes=0-1"], 2, "Range"),
        (&[url.as_str(), "--via", "nowhere"], 2, "a relay without a mesh is written HOST:PORT"),
        (&[url.as_str(), "--via", "a:1,a:1"], 2, "twice"),
        (&[url.as_str(), "--path", "nowhere"], 2, "HOST:PORT"),
        (&[url.as_str(), "--connect-timeout", "0"], 2, "longer than nothing"),
        (&[url.as_str(), "--interface", "nonesuch0"], 2, "nonesuch0"),
        (&[url.as_str(), "--limit-rate", "fast"], 2, "500k"),
        (&[url.as_str(), "-C", "100"], 2, "only `-`"),
        (&[url.as_str(), "-o", "a", "-o", "b"], 2, "-o is given 2 times"),
        (&[url.as_str(), "-o", "-", "--json"], 2, "standard output"),
        (&[url.as_str(), "-u", "ann"], 2, "USER:PASSWORD"),
        (&[url.as_str(), "--netrc-file", "nowhere"], 2, "nowhere"),
        (&[url.as_str(), "--cacert", "nowhere"], 2, "nowhere"),
        (&["-i", "nowhere"], 2, "nowhere"),
        (&["nowhere.meta4"], 2, "nowhere.meta4"),
    ] {
        let output = run(dir.path(), args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    assert!(names(dir.path()).is_empty());
}
