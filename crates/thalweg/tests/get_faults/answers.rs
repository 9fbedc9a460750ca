//! Servers, and who pretends to be one: what they say is never taken for the file.

#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../../get/tests/get/server.rs"]
mod server;

use server::{Server, Version};
use sha2::{Digest as _, Sha256};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const OLD: &str = "what was there before";

/// A directory with an older file under the final name.
fn directory() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file.bin"), OLD).unwrap();
    dir
}

async fn get(dir: &TempDir, url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["get", url, "--no-relays", "--history", "none"]).args(args);
    command.current_dir(dir.path()).env("THALWEG_STATE", dir.path().join("no-mesh"));
    command.stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn content(dir: &TempDir) -> Vec<u8> {
    std::fs::read(dir.path().join("file.bin")).unwrap()
}

fn names(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path()).unwrap().count()
}

/// It fails, with this word, and nothing is changed.
async fn fails(server: &Server, word: &str) {
    let dir = directory();
    let output = get(&dir, &server.url(), &["--retry", "0"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(word), "{said}");
    assert_eq!((content(&dir).as_slice(), names(&dir)), (OLD.as_bytes(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_416_is_never_the_file() {
    let server = Server::start(&Version::new(1, 3_000_000), |_, reply| {
        reply.whole("no such range".into());
        reply.status = 416;
    })
    .await;
    fails(&server, "416").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_page_in_place_of_the_file_is_refused() {
    let server = Server::start(&Version::new(1, 3_000_000), |_, reply| {
        reply.whole("<html>please log in</html>".into());
        reply.unset("etag");
        reply.set("content-type", "text/html");
    })
    .await;
    fails(&server, "page").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_range_is_refused() {
    let server = Server::start(&Version::new(1, 3_000_000), |_, reply| {
        reply.set("content-encoding", "gzip");
    })
    .await;
    fails(&server, "gzip").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_that_contradict_each_other_are_refused() {
    let server = Server::start(&Version::new(1, 3_000_000), |_, reply| {
        reply.set("content-range", "bytes 0-9/3000000");
    })
    .await;
    fails(&server, "bytes 0-9/3000000").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_complete_already_is_a_success() {
    let version = Version::new(1, 3_000_000);
    let server = Server::honest(&version).await;
    let dir = directory();
    std::fs::write(dir.path().join("file.bin"), &version.bytes).unwrap();
    let hash = format!("{:x}", Sha256::digest(&version.bytes));
    let output = get(&dir, &server.url(), &["-C", "-", "--sha256", &hash]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(content(&dir) == version.bytes && names(&dir) == 1);
}
