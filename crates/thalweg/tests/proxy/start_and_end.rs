//! Start and end of `thalweg proxy`.

use crate::{
    files::{Files, bytes},
    host::until,
    running_proxy::{RunningProxy, has, program, signal, succeeds, thalweg},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
};
use tempfile::TempDir;

#[test]
fn invalid_arguments_prevent_the_start() {
    let dir = TempDir::new().unwrap();
    let first = RunningProxy::new(dir.path(), &[]);
    let taken = first.at.to_string();
    for (args, says) in [
        (&["--listen", "0.0.0.0:0"][..], "is not a loopback address"),
        (&["--listen", &taken], "--listen takes another port"),
        (&["--via", "fra"], "`fra` is the name of a node"),
        (&["--via", "direct"], "--via direct has no effect"),
        (&["--avoid", "country=xx"], "--avoid"),
    ] {
        let mut command = thalweg(dir.path());
        command
            .arg("proxy")
            .args(["--listen", "127.0.0.1:0"].iter().filter(|_| args[0] != "--listen"));
        let output = command.args(args).stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn it_ends_in_order_and_prints_counts() {
    let dir = TempDir::new().unwrap();
    let (events, _) = RunningProxy::new(dir.path(), &[]).end().await;
    let [summary] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&summary["event"], &summary["connections"]), (&"summary".into(), &0.into()));
}

#[test]
fn a_second_signal_ends_it_at_once_with_counts() {
    let dir = TempDir::new().unwrap();
    let proxy = RunningProxy::new(dir.path(), &[]);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tunnel = TcpStream::connect(proxy.at).unwrap();
    write!(tunnel, "CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", server.local_addr().unwrap()).unwrap();
    let mut answer = [0; 12];
    tunnel.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let (events, code) = proxy.interrupted_twice();
    let [told, summary] = &events[..] else { panic!("{events:?}") };
    assert!(told["event"] == "tunnel" && told["broken"].is_string(), "{told}");
    assert_eq!((&summary["event"], &summary["tunnels"]), (&"summary".into(), &1.into()));
    assert_eq!(code, Some(130));
}

/// Fetches a file through the proxy, which learns from it. Returns the server and its origin.
async fn transfer(dir: &Path, proxy: &str) -> (Files, String) {
    fs::write(dir.join("a.bin"), bytes(5_000_000)).unwrap();
    let files = Files::serve(dir, "127.0.0.1:0").await;
    let mut curl = program("curl", dir);
    curl.args(["-q", "-sS", "--fail", "--noproxy", "", "-o", "/dev/null", "-x", proxy]);
    curl.arg(files.url("a.bin"));
    succeeds(curl).await;
    let origin = format!("http://{}", files.at);
    (files, origin)
}

#[tokio::test]
async fn the_history_is_saved_while_the_proxy_runs() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let proxy = RunningProxy::new(dir.path(), &["--history", "kept.json"]);
    let (_files, origin) = transfer(dir.path(), &proxy.url()).await;
    let kept = || fs::read_to_string(dir.path().join("kept.json")).unwrap_or_default();
    until("the file knows the origin", || kept().contains(&origin));
}

#[tokio::test]
async fn the_history_is_saved_even_if_standard_error_is_full() {
    if !has("curl") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut command = thalweg(dir.path());
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command.args(["proxy", "-v", "--listen", "127.0.0.1:0", "--history", "kept.json"]);
    let mut proxy = command.stdout(Stdio::piped()).stderr(full).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let at = ready.trim().strip_prefix("ready ").unwrap();
    let (_files, origin) = transfer(dir.path(), &format!("http://{at}")).await;
    signal(&proxy, rustix::process::Signal::INT);
    assert_eq!(proxy.wait().unwrap().code(), Some(0));
    let kept = fs::read_to_string(dir.path().join("kept.json")).unwrap();
    assert!(kept.contains(&origin), "{kept}");
}
