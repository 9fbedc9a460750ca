//! A single download: resumed, interrupted, refused.

use super::*;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn a_download_writes_the_file_and_nothing_to_standard_output() {
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
    // A rate follows only after a download of at least a tenth of a second.
    assert!(last.starts_with("file.bin: 3 MB in "), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_one_event_per_line_and_is_all_of_standard_output() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[&server.url(), "--json", "-o", "x"]).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events[0]["event"], "started");
    assert_eq!(events[0]["total_bytes"], LENGTH);
    let verdict = events.last().unwrap();
    assert_eq!(verdict["event"], "verdict");
    assert!(verdict["bound"].is_string() && verdict["text"].is_string(), "{verdict}");
    let last = &events[events.len() - 2];
    assert_eq!((&last["event"], &last["bytes"]), (&"finished".into(), &LENGTH.into()));
    assert!(last["rate_bps"].as_u64().unwrap() > 0 && last["seconds"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_download_is_continued() {
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
    assert!(text(&output.stderr).contains("continuing after 1 MB"), "{}", text(&output.stderr));
    assert_not_again(&server, before);
    assert!(std::fs::read(dir.path().join("file.bin")).unwrap() == version.bytes);
    assert_eq!(names(dir.path()), ["file.bin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_reports_how_to_continue() {
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
async fn exit_codes_distinguish_failure_from_wrong_usage() {
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
        (&[url.as_str(), "--via", "nowhere"], 2, "a relay outside the mesh is written HOST:PORT"),
        (&[url.as_str(), "--via", "a:1,a:1"], 2, "twice"),
        (&[url.as_str(), "--path", "nowhere"], 2, "HOST:PORT"),
        (&[url.as_str(), "--connect-timeout", "0"], 2, "longer than 0"),
        (&[url.as_str(), "--interface", "nonesuch0"], 2, "nonesuch0"),
        (&[url.as_str(), "--limit-rate", "fast"], 2, "500k"),
        (&[url.as_str(), "-C", "100"], 2, "only `-`"),
        (&[url.as_str(), "-o", "a", "-o", "b"], 2, "-o is given 2 times"),
        (&[url.as_str(), "-o", "new/"], 2, "-P new/"),
        (&[url.as_str(), "-P", "..", "-o", "."], 2, "this is a directory"),
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
        assert!(output.stdout.is_empty() || args.contains(&"--json"));
    }
    assert!(names(dir.path()).is_empty());
}
