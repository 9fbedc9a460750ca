//! Tests of the program `thalweg get`: kills, signals, exit codes and output.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod basics;
mod lists;
mod logins;
mod messages;
mod metalinks;
mod names;
mod retries;

// Each of the two test crates uses another part of it.
#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../../get/tests/get/server.rs"]
mod server;

use server::{Server, Step, Version};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

const LENGTH: usize = 3_000_000;
/// The bytes that the hanging server delivers.
const GIVEN: u64 = 1_000_000;

fn thalweg(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("get").args(args).current_dir(dir).stdin(Stdio::null());
    // Not the mesh of the user who runs the tests.
    command.env("THALWEG_STATE", dir.join("no-mesh"));
    // Nor the user's history and passwords.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.env("HOME", "/nonexistent/home");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command to its end without blocking the server's thread.
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

/// A server that sends [`GIVEN`] bytes and then nothing.
async fn hanging(version: &Version) -> Server {
    Server::start(version, |ask, reply| {
        if ask.is_first_segment() {
            reply.after_bytes(GIVEN as usize, Step::Hang);
        }
    })
    .await
}

/// Starts a download, and waits until the journal has the bytes that the server sends.
async fn halfway(dir: &Path, server: &Server) -> Child {
    let mut child = thalweg(dir, &[&server.url()]).spawn().unwrap();
    let journal: PathBuf = dir.join(".file.bin.thalweg-journal");
    let wanted = format!("\"end\":{GIVEN},");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains(&wanted) {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before {GIVEN} bytes were there");
        tokio::task::yield_now().await;
    }
    child
}

fn assert_not_again(server: &Server, first_sessions: usize) {
    let again = server.segments().split_off(first_sessions);
    assert!(!again.is_empty() && again.iter().all(|r| r.start >= GIVEN), "{again:?}");
}

/// The lines of standard output as JSON.
fn events(output: &Output) -> Vec<serde_json::Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The URL of another name on the same server.
fn url(server: &Server, name: &str) -> String {
    format!("http://{}/dir/{name}", server.address)
}

/// Asserts success; shows standard error otherwise.
fn assert_done(output: &Output) {
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
}
