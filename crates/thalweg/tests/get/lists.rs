//! Several downloads in one call.

use super::*;
use std::{fs, io::Write};
use tempfile::TempDir;

/// As [`run`], with this text on standard input.
async fn run_with_input(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = thalweg(dir, args);
    command.stdin(Stdio::piped());
    let input = input.to_owned();
    let run = move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_on_standard_input_with_comments_and_names() {
    let version = Version::new(1, 50_000);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let list = format!(
        "# two files\n\n{}\r\n  {}\tsub/../../other name\n",
        url(&server, "a.bin"),
        url(&server, "b.bin")
    );
    let output = run_with_input(dir.path(), &["-P", "in/here", "-"], &list).await;
    assert_done(&output);
    let made = dir.path().join("in/here");
    assert_eq!(names(&made), ["a.bin", "sub"]);
    assert_eq!(names(&made.join("sub")), ["other name"]);
    assert!(fs::read(made.join("sub/other name")).unwrap() == version.bytes);
    let said = text(&output.stderr);
    assert!(said.lines().last().unwrap().starts_with("2 of 2 files, 100 kB in "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_is_named_and_the_others_go_on() {
    let version = Version::new(1, 1000);
    let server = Server::start(&version, |ask, reply| {
        if ask.path.ends_with("gone") {
            reply.status(404);
        }
    })
    .await;
    let dir = TempDir::new().unwrap();
    let list = format!("{}\nexample.org/x\n{}\n", url(&server, "gone"), url(&server, "there"));
    fs::write(dir.path().join("list"), list).unwrap();
    let output = run(dir.path(), &["-i", "list", "--json"]).await;
    assert_eq!(output.status.code(), Some(3), "the first in the list: {}", text(&output.stderr));
    assert_eq!(names(dir.path()), ["list", "there"]);
    let events = events(&output);
    let of = |name: &str| events.iter().filter(|e| e["event"] == name).collect::<Vec<_>>();
    let mut failed: Vec<_> =
        of("failed").iter().map(|e| (&e["download"], &e["exit_code"])).collect();
    failed.sort_by_key(|(download, _)| download.as_u64());
    assert_eq!(failed, [(&0.into(), &3.into()), (&1.into(), &2.into())]);
    let finished = of("finished");
    assert_eq!((finished.len(), &finished[0]["download"]), (1, &2.into()));
    assert_eq!(finished[0]["url"], url(&server, "there"));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["failed"]), (&"summary".into(), &2.into()));
    let said = text(&output.stderr);
    assert!(said.contains("/dir/gone") && said.contains("`https://example.org/x`"), "{said}");
    assert!(said.contains("line 2 of list"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_early_starts_nothing_after_a_failure() {
    let server = Server::start(&Version::new(1, 10), |_, reply| reply.status(404)).await;
    let dir = TempDir::new().unwrap();
    let urls: Vec<String> = (0..20).map(|i| url(&server, &format!("f{i}"))).collect();
    let mut args: Vec<&str> = urls.iter().map(String::as_str).collect();
    args.extend(["--fail-early", "--parallel", "1"]);
    let output = run(dir.path(), &args).await;
    assert_eq!(output.status.code(), Some(3));
    let asked = server.asks().iter().any(|ask| ask.path != "/dir/f0");
    assert!(!asked, "{:?}", server.asks());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_downloads_never_write_one_file() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let (a, b) = (url(&server, "x"), format!("http://{}/elsewhere/x", server.address));
    let output = run(dir.path(), &[&a, &b]).await;
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("x is the file of another download of this call"), "{said}");
    assert!(server.asks().iter().all(|ask| ask.path == "/dir/x"));
    let output = run(dir.path(), &[&a, &b, "-o", "1", "-o", "2", "--quiet"]).await;
    assert_done(&output);
    assert!(output.stderr.is_empty());
    assert_eq!(names(dir.path()), ["1", "2", "x"]);
}
