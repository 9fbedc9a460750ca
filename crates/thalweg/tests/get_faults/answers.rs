//! Faulty and impersonated servers: their answers are never taken for the file.

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

/// Checks that the download fails with this word, and changes nothing.
async fn fails(server: &Server, word: &str) {
    let dir = directory();
    let output = get(&dir, &server.url(), &["--retry", "0"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(word), "{said}");
    assert_eq!((content(&dir).as_slice(), names(&dir)), (OLD.as_bytes(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_416_is_never_the_file() {
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
async fn a_compressed_answer_is_saved_unchanged() {
    let version = Version::new(1, 3_000_000);
    let server = Server::start(&version, |_, reply| reply.set("content-encoding", "gzip")).await;
    let dir = directory();
    let output = get(&dir, &server.url(), &["-v"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("compressed (gzip)"), "{said}");
    assert!(content(&dir) == version.bytes && names(&dir) == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_ranges_lead_to_a_request_for_the_whole_file() {
    let version = Version::new(1, 3_000_000);
    let server = Server::start(&version, |_, reply| {
        reply.set("content-range", "bytes 0-9/3000000");
    })
    .await;
    let dir = directory();
    let output = get(&dir, &server.url(), &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(content(&dir) == version.bytes && names(&dir) == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_file_is_a_success() {
    let version = Version::new(1, 3_000_000);
    let server = Server::honest(&version).await;
    let dir = directory();
    std::fs::write(dir.path().join("file.bin"), &version.bytes).unwrap();
    let hash = format!("{:x}", Sha256::digest(&version.bytes));
    let output = get(&dir, &server.url(), &["-C", "-", "--sha256", &hash]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(content(&dir) == version.bytes && names(&dir) == 1);
}
