//! Retries, and `--max-time`.

use super::*;
use rustix::fs::{FileType, Mode, OFlags};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tempfile::TempDir;

/// A server that fails its first `n` requests. An attempt makes two, the second without `Accept-Encoding`.
async fn troubled(version: &Version, n: usize) -> Server {
    let asked = Arc::new(AtomicUsize::new(0));
    Server::start(version, move |_, reply| {
        if asked.fetch_add(1, Ordering::SeqCst) < n {
            reply.status(500);
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_error_is_retried() {
    let version = Version::new(1, 1000);
    let server = troubled(&version, 2).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--json"]).await;
    assert_done(&output);
    let events = events(&output);
    let retrying: Vec<_> = events.iter().filter(|e| e["event"] == "retrying").collect();
    assert_eq!((retrying.len(), &retrying[0]["attempt"]), (1, &1.into()));
    assert!(!events.iter().any(|e| e["event"] == "failed"), "{events:?}");
    assert!(std::fs::read(dir.path().join("file.bin")).unwrap() == version.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retries_the_first_failure_is_final() {
    let server = troubled(&Version::new(1, 1000), 2).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--retry", "0"]).await;
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(server.asks().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_requested_once() {
    let server = Server::start(&Version::new(1, 10), |_, reply| reply.status(404)).await;
    let dir = TempDir::new().unwrap();
    assert_eq!(run(dir.path(), &[&server.url()]).await.status.code(), Some(3));
    assert_eq!(server.asks().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_time_keeps_the_received_bytes() {
    let version = Version::new(1, LENGTH);
    let server = hanging(&version).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--max-time", "1.5", "--json"]).await;
    assert_eq!(output.status.code(), Some(8), "{}", text(&output.stderr));
    let events = events(&output);
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"failed".into(), &8.into()));
    assert_eq!(last["kept_bytes"], GIVEN);
    assert!(text(&output.stderr).contains("1 MB are kept"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ranges_the_message_says_that_nothing_is_kept() {
    let version = Version::new(1, LENGTH);
    let bytes = version.bytes.clone();
    let server = Server::start(&version, move |_, reply| {
        reply.whole(bytes.clone());
        reply.set("accept-ranges", "none");
        reply.after_bytes(GIVEN as usize, Step::Hang);
    })
    .await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--max-time", "1.5"]).await;
    assert_eq!(output.status.code(), Some(8));
    let said = text(&output.stderr);
    assert!(said.contains("nothing is kept: this server sends no ranges"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_may_have_reached_a_pipe_are_not_written_twice() {
    let version = Version::new(1, LENGTH);
    for target in ["-", "pipe"] {
        for begins in [true, false] {
            let asked = AtomicUsize::new(0);
            let server = Server::start(&version, move |_, reply| {
                // Either only the first bytes ever arrive, or the first try brings nothing.
                match (asked.fetch_add(1, Ordering::SeqCst), begins) {
                    (0, true) => reply.after_bytes(server::HEAD as usize, Step::Cut),
                    (1.., true) | (..2, false) => reply.status(500),
                    _ => {}
                }
            })
            .await;
            let dir = TempDir::new().unwrap();
            let (pipe, url) = (dir.path().join("pipe"), server.url());
            let (kind, mode) = (FileType::Fifo, Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
            let is_pipe = target == "pipe";
            let to_read = pipe.clone();
            let read = tokio::task::spawn_blocking(move || {
                if is_pipe { std::fs::read(to_read).unwrap() } else { Vec::new() }
            });
            let output = run(dir.path(), &[&url, "-o", target, "--retry", "3"]).await;
            // Unblocks a reader that has opened the pipe although nothing was written to it.
            while is_pipe && !read.is_finished() {
                _ = rustix::fs::open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
                tokio::task::yield_now().await;
            }
            let got = if is_pipe { read.await.unwrap() } else { output.stdout.clone() };
            let said = text(&output.stderr);
            let is_right = match begins {
                // The thread that writes the pipe may lag behind when the try ends.
                true => !output.status.success() && got.len() as u64 <= server::HEAD,
                false => output.status.success() && got.len() == LENGTH,
            };
            assert!(is_right && version.bytes.starts_with(&got), "{target}: {}: {said}", got.len());
        }
    }
}
