//! `thalweg relay` as its clients, strangers and operators see it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    io::{self, BufRead, BufReader, Lines, Read, Write},
    net::TcpStream as Plain,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};
use thalweg_net::{Destination, DialError, Dialer, Route, Stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const LOOPBACK: &[&str] =
    &["--allow-to", "127.0.0.0/8", "--allow-to", "::1", "--allow-port", "1-65535"];

/// A relay process; killed when dropped.
struct Relay {
    child: Child,
    at: Destination,
    log: Lines<BufReader<ChildStderr>>,
}

impl Relay {
    fn start(arguments: &[&str]) -> Self {
        Self::listening("127.0.0.1:0", arguments)
    }

    fn listening(listen: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        Self::spawn(command.args(["relay", "--json", "--listen", listen]).args(arguments))
    }

    /// Reads the "ready" line, which contains the port.
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["event"], "ready");
        let at = ready["listen"].as_str().unwrap().parse().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, at, log }
    }

    async fn dial(&self, to: &Destination) -> Result<Stream, DialError> {
        let route = Route::through([self.at.clone()]).unwrap();
        Dialer::default().dial(&route, to).await
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }

    /// Reads the log up to the first line with this text.
    fn log_until(&mut self, text: &str) -> String {
        let found = self.log.by_ref().map(Result::unwrap).find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("the log ended without `{text}`"))
    }

    fn end(mut self) -> (ExitStatus, Vec<String>) {
        let lines = self.log.by_ref().map(Result::unwrap).collect();
        (self.child.wait().unwrap(), lines)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

async fn destination(at: &str) -> (TcpListener, Destination) {
    let listener = TcpListener::bind(at).await.unwrap();
    let at = listener.local_addr().unwrap().into();
    (listener, at)
}

async fn relayed(relay: &Relay) -> (Stream, TcpStream) {
    let (listener, at) = destination("127.0.0.1:0").await;
    let (client, accepted) = tokio::join!(relay.dial(&at), listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

async fn text(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<String> {
    let mut text = String::new();
    from.read_to_string(&mut text).await.map(|_| text)
}

#[tokio::test]
async fn bytes_pass_both_ways_and_either_side_may_end_first() {
    let relay = Relay::start(LOOPBACK);
    let (mut client, mut server) = relayed(&relay).await;
    client.write_all(b"request").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(text(&mut server).await.unwrap(), "request");
    server.write_all(b"response").await.unwrap();
    drop(server);
    assert_eq!(text(&mut client).await.unwrap(), "response");

    let (mut client, mut server) = relayed(&relay).await;
    server.write_all(b"banner").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(text(&mut client).await.unwrap(), "banner");
    client.write_all(b"after the end").await.unwrap();
    drop(client);
    assert_eq!(text(&mut server).await.unwrap(), "after the end");
    drop(server);

    relay.signal("TERM");
    let (status, lines) = relay.end();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let closed: Vec<_> = lines.iter().filter(|l| l.starts_with("event=closed ")).collect();
    assert_eq!(closed.len(), 2, "{lines:?}");
    assert!(lines.last().unwrap().starts_with("event=stopped served=2"), "{lines:?}");
}

#[tokio::test]
async fn names_are_resolved_at_the_relay_and_ipv6_works_on_both_legs() {
    let relay = Relay::start(LOOPBACK);
    let (listener, at) = destination("127.0.0.1:0").await;
    let by_name = Destination::new("localhost", at.port).unwrap();
    let (client, accepted) = tokio::join!(relay.dial(&by_name), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());

    if Plain::connect("[::1]:9").is_err_and(|e| e.kind() != io::ErrorKind::ConnectionRefused) {
        eprintln!("skipped in part: this host has no IPv6 loopback");
        return;
    }
    let relay = Relay::listening("[::1]:0", LOOPBACK);
    let (listener, at) = destination("[::1]:0").await;
    let (client, accepted) = tokio::join!(relay.dial(&at), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn refusals_are_explained_to_the_client_and_in_the_log() {
    let mut relay = Relay::start(LOOPBACK);
    let (closed, at) = destination("127.0.0.1:0").await;
    drop(closed);
    let error = relay.dial(&at).await.unwrap_err().to_string();
    assert!(error.ends_with("connection refused by destination"), "{error}");
    assert!(relay.log_until("event=refused").contains(&format!("to={at}")));

    // Without exceptions, private addresses and other ports are refused, whatever the name.
    let mut strict = Relay::start(&[]);
    for (to, why) in [
        (at.to_string(), "is not among the allowed ports"),
        ("127.0.0.1:80".into(), "loopback address and not in an allowed network"),
        ("localhost:80".into(), "loopback address and not in an allowed network"),
        ("169.254.169.254:80".into(), "cloud metadata address"),
        ("[::ffff:127.0.0.1]:80".into(), "IPv4-mapped address"),
        ("8.8.8.8:25".into(), "port 25 is never relayed to"),
    ] {
        let error = strict.dial(&to.parse().unwrap()).await.unwrap_err().to_string();
        assert!(error.ends_with("not allowed by the relay's rules"), "{to}: {error}");
        let line = strict.log_until("event=refused");
        assert!(line.contains(why), "{to}: {line}");
    }
}

#[test]
fn a_stranger_gets_no_byte() {
    let mut relay = Relay::start(&["--allow-from", "10.0.0.0/8"]);
    let mut stranger = Plain::connect(relay.at.address().unwrap()).unwrap();
    // The connection may be closed before anything is written: that is what the test allows.
    _ = stranger.write_all(b"\x05\x01\x00");
    let mut got = Vec::new();
    _ = stranger.read_to_end(&mut got);
    assert_eq!(got, b"");
    relay.log_until("event=stranger client=127.0.0.1:");
}

#[test]
fn an_unrestricted_listener_is_refused_at_start() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["relay", "--listen", listen])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("--allow-from CIDR"), "{error}");
    }
}

#[tokio::test]
async fn the_first_signal_drains_and_the_second_one_cuts() {
    let mut relay = Relay::start(LOOPBACK);
    let (mut client, mut server) = relayed(&relay).await;
    relay.signal("INT");
    relay.log_until("event=draining live=1");
    let refused = Plain::connect(relay.at.address().unwrap()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    server.write_all(b"still here").await.unwrap();
    client.read_exact(&mut [0; 10]).await.unwrap();
    relay.signal("TERM");
    assert!(text(&mut client).await.is_err(), "a cut stream must not look complete");
    assert_eq!(relay.end().0.code(), Some(0));
}

#[tokio::test]
async fn without_free_descriptors_open_connections_continue_and_later_ones_are_served() {
    let mut limited = Command::new("sh");
    let script = r#"ulimit -n 32; exec "$0" relay --json --listen 127.0.0.1:0 "$@""#;
    limited.args(["-c", script, env!("CARGO_BIN_EXE_thalweg")]).args(LOOPBACK);
    let mut relay = Relay::spawn(&mut limited);
    let (mut client, mut server) = relayed(&relay).await;

    let at = relay.at.address().unwrap();
    let crowd: Vec<_> = (0..64).map(|_| Plain::connect(at).unwrap()).collect();
    relay.log_until("event=accept_failed");
    client.write_all(b"alive").await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();

    drop(crowd);
    let (mut late_client, mut late_server) = relayed(&relay).await;
    late_client.write_all(b"served").await.unwrap();
    late_client.shutdown().await.unwrap();
    assert_eq!(text(&mut late_server).await.unwrap(), "served");
}
