//! curl: forwarding, tunnels, SOCKS, uploads, ranges, IPv6.

use crate::{
    files::{Files, bytes},
    running_proxy::{RunningProxy, has, program, succeeds},
};
use std::{path::Path, process::Command};
use tempfile::TempDir;

fn curl(dir: &Path, args: &[&str]) -> Command {
    let mut command = program("curl", dir);
    command.args(["-q", "-sS", "--fail", "--max-time", "120", "--noproxy", ""]).args(args);
    command
}

#[tokio::test]
async fn curl_gets_the_same_bytes_through_every_kind_of_proxy() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let content = bytes(5_000_000);
    std::fs::write(dir.path().join("a.bin"), &content).unwrap();
    let proxy = RunningProxy::new(dir.path(), &[]);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let files = Files::serve(dir.path(), address).await;
        let (url, http) = (files.url("a.bin"), proxy.url());
        let socks = format!("socks5h://{}", proxy.at);
        for kind in [&["-x", &http][..], &["-p", "-x", &http], &["-x", &socks]] {
            let output = succeeds(curl(dir.path(), &[kind, &[&url]].concat())).await;
            assert!(output.stdout == content, "{kind:?}: other bytes");
        }
        assert_eq!((files.asks().len(), files.by_proxy()), (3, 1), "tunnels are not signed");
    }
    let (events, said) = proxy.end().await;
    let count = |event: &str| events.iter().filter(|e| e["event"] == event).count();
    assert_eq!((count("request"), count("tunnel"), count("summary")), (2, 4, 1));
    let summary = events.last().unwrap();
    assert_eq!((&summary["tunnels"], &summary["refused"]), (&4.into(), &0.into()));
    assert!(said.contains("draining"), "{said}");
}

#[tokio::test]
async fn curl_uploads_and_requests_heads_ranges_and_several_files() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let content = bytes(3_000_000);
    std::fs::write(dir.path().join("a.bin"), &content).unwrap();
    let proxy = RunningProxy::new(dir.path(), &[]);
    let files = Files::serve(dir.path(), "127.0.0.1:0").await;
    let (url, http) = (files.url("a.bin"), proxy.url());
    // Above 1 MB curl waits for `100 Continue`.
    let up = succeeds(curl(dir.path(), &["-x", &http, "-T", "a.bin", &url])).await;
    assert_eq!(up.stdout, b"3000000 bytes");
    let chunked = ["-x", &http, "-T", "-", &url];
    let mut command = curl(dir.path(), &chunked);
    command.stdin(std::fs::File::open(dir.path().join("a.bin")).unwrap());
    assert_eq!(succeeds(command).await.stdout, b"3000000 bytes");
    let head = succeeds(curl(dir.path(), &["-x", &http, "-I", &url])).await;
    let head = String::from_utf8(head.stdout).unwrap().to_ascii_lowercase();
    assert!(head.contains("content-length: 3000000\r\n"), "{head}");
    let part = succeeds(curl(dir.path(), &["-x", &http, "-r", "100-199", &url])).await;
    assert!(part.stdout == content[100..200]);
    let many = ["-x", &http, "-o", "/dev/null", &url, "-o", "/dev/null", &url];
    succeeds(curl(dir.path(), &many)).await;
    let asked = files.asks().into_iter().map(|ask| (ask.method, ask.content));
    let put = || ("PUT".to_owned(), content.len());
    let asked: Vec<_> = asked.take(3).collect();
    assert_eq!(asked, [put(), put(), ("HEAD".to_owned(), 0)]);
    let (events, _) = proxy.end().await;
    assert_eq!(events.last().unwrap()["requests"], 6);
}
