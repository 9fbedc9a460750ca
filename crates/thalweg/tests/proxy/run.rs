//! `thalweg run`: environment, exit codes, signals.

use crate::{
    files::{Files, bytes},
    running_proxy::{has, signal, thalweg},
};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Output, Stdio},
};
use tempfile::TempDir;

async fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = thalweg(dir);
    command.arg("run").args(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_command_uses_its_own_proxy() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let content = bytes(2_000_000);
    std::fs::write(dir.path().join("a.bin"), &content).unwrap();
    let files = Files::serve(dir.path(), "127.0.0.1:0").await;
    let url = files.url("a.bin");
    let near = run(dir.path(), &["curl", "-q", "-sS", "--fail", &url]).await;
    assert!(near.stdout == content, "{}", text(&near.stderr));
    assert_eq!(files.by_proxy(), 0, "this host is reached directly");
    let args = ["--verbose", "--no-proxy", "", "curl", "-q", "-sS", "--fail", &url];
    let output = run(dir.path(), &args).await;
    assert!(output.stdout == content, "{}", text(&output.stderr));
    assert_eq!(files.by_proxy(), 1);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("GET {} by direct: 200", files.at)), "{said}");
    assert!(said.contains("1 requests"), "{said}");
}

#[tokio::test]
async fn the_environment_is_set_and_options_after_the_command_belong_to_it() {
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &["sh", "-c", "env; echo \"args $*\"", "sh", "--via", "-v"]).await;
    let said = text(&output.stdout);
    let value = |name: &str| said.lines().find_map(|l| l.strip_prefix(&format!("{name}=")));
    let url = value("http_proxy").unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    for name in ["https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "npm_config_proxy"] {
        assert_eq!(value(name), Some(url), "{name}");
    }
    assert_eq!(value("no_proxy"), Some("localhost,127.0.0.1,::1"));
    assert!(said.ends_with("args --via -v\n"), "{said}");
    assert_eq!(text(&output.stderr), "", "nothing is said but by the command");
}

#[tokio::test]
async fn the_last_transfer_of_a_command_is_recorded() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("a.bin"), bytes(5_000_000)).unwrap();
    let files = Files::serve(dir.path(), "127.0.0.1:0").await;
    let url = files.url("a.bin");
    // Forwarded, and through a tunnel.
    for (kind, scheme) in [(&[][..], "http"), (&["-p"], "https")] {
        let file = format!("{scheme}.json");
        let curl = ["--history", &file, "--no-proxy", "", "curl", "-q", "-sS", "-o", "/dev/null"];
        let output = run(dir.path(), &[&curl, kind, &["--fail", &url]].concat()).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let kept = std::fs::read_to_string(dir.path().join(&file)).unwrap();
        assert!(kept.contains(&format!("{scheme}://{}", files.at)), "{kept}");
    }
}

#[tokio::test]
async fn a_replaced_proxy_is_reported_without_its_password() {
    let dir = TempDir::new().unwrap();
    for (quiet, says) in [(&[][..], "https_proxy, HTTP_PROXY replaced"), (&["-q"], "")] {
        let mut command = thalweg(dir.path());
        command.env("HTTP_PROXY", "http://me:secret@127.0.0.1:1").env("https_proxy", "x");
        let output = command.arg("run").args(quiet).arg("true").output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("secret"), "{said}");
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{said}");
    }
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let dir = TempDir::new().unwrap();
    for (args, code, says) in [
        (&["true"][..], 0, ""),
        (&["sh", "-c", "exit 42"], 42, ""),
        (&["sh", "-c", "kill -TERM $$"], 143, ""),
        (&["no-such-program-here"], 127, "no-such-program-here: command not found"),
        (&["/"], 126, "cannot run"),
        (&["--via", "nobody", "true"], 125, "nobody"),
        (&[], 2, "CMD"),
    ] {
        let output = run(dir.path(), args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
    }
}

#[tokio::test]
async fn signals_reach_the_command() {
    use rustix::process::Signal;
    let dir = TempDir::new().unwrap();
    for (sent, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::USR1, "USR1")] {
        let script =
            format!("trap 'echo got; exit 7' {name}; echo ready; while :; do sleep 0.1; done");
        let mut command = thalweg(dir.path());
        command.args(["run", "sh", "-c", &script]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        signal(&child, sent);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            (rest.as_str(), status.code(), status.signal()),
            ("got\n", Some(7), None),
            "{name}"
        );
    }
}
