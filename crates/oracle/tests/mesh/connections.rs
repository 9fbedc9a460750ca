//! How many connections there are at a time, and which of them give way.

use crate::harness::{Host, Mesh, get, peer, peer_from};
use std::io::{self, ErrorKind};
use thalweg_oracle::Caller;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
};

/// A request whose body does not come.
const HEAD: &[u8] = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
const WHOLE: &[u8] = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n";

/// A connection, and what became of it.
struct Line {
    ours: DuplexStream,
    served: JoinHandle<io::Result<()>>,
}

impl Line {
    fn to_join(mesh: &Mesh, caller: Caller) -> Self {
        let ((ours, theirs), oracle) = (duplex(64 * 1024), mesh.oracle.clone());
        Self { ours, served: tokio::spawn(async move { oracle.serve_join(theirs, caller).await }) }
    }

    fn of_a_member(mesh: &Mesh, caller: Caller) -> Self {
        let ((ours, theirs), oracle) = (duplex(64 * 1024), mesh.oracle.clone());
        Self { ours, served: tokio::spawn(async move { oracle.serve(theirs, caller).await }) }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.ours.write_all(bytes).await.unwrap();
    }

    /// The start of an answer, which leaves the connection open.
    async fn status(&mut self) -> String {
        let mut bytes = vec![0; 4096];
        let read = self.ours.read(&mut bytes).await.unwrap();
        String::from_utf8(bytes[9..12.min(read)].to_vec()).unwrap()
    }

    /// All that comes until it is closed.
    async fn end(mut self) -> (String, io::Result<()>) {
        let mut said = String::new();
        self.ours.read_to_string(&mut said).await.unwrap();
        (said, self.served.await.unwrap())
    }

    /// That it was closed without a word.
    async fn gave_way(self) {
        let (said, served) = self.end().await;
        assert_eq!((said.as_str(), served.unwrap_err().kind()), ("", ErrorKind::QuotaExceeded));
    }
}

fn stranger(from: &str) -> Caller {
    peer_from(Host::new("x").node.id(), from)
}

#[tokio::test]
async fn one_address_that_says_nothing_stops_nobody_from_joining() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        // One network, by many addresses.
        held.push(Line::to_join(&mesh, stranger(&format!("2001:db8::{n:x}"))));
        mesh.until(|oracle| oracle.strangers() == held.len().min(8)).await;
        tokio::task::yield_now().await;
    }
    for silent in held.drain(..56) {
        silent.gave_way().await;
    }
    let mut other = Line::to_join(&mesh, stranger("10.0.0.1"));
    other.say(WHOLE).await;
    let (said, _) = other.end().await;
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(mesh.oracle.strangers(), 8, "those of the one network");
    for silent in held {
        drop(silent.ours);
        let _ = silent.served.await.unwrap();
    }
    assert_eq!(mesh.oracle.strangers(), 0);
}

#[tokio::test]
async fn of_many_addresses_the_oldest_without_a_request_gives_way() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        held.push(Line::to_join(&mesh, stranger(&format!("10.0.{n}.1"))));
        mesh.until(|oracle| oracle.strangers() == held.len()).await;
    }
    let mut late = Line::to_join(&mesh, stranger("10.1.0.1"));
    held.remove(0).gave_way().await;
    late.say(WHOLE).await;
    assert!(late.end().await.0.starts_with("HTTP/1.1 400"));
    let answer = get(&mesh.oracle, mesh.founder.caller(), "/v1/status").await;
    assert_eq!(answer.status, 200, "members have places of their own");
}

#[tokio::test]
async fn a_request_without_its_body_is_evicted_like_an_idle_connection() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        let mut line = Line::to_join(&mesh, stranger(&format!("10.0.{}.1", n / 8)));
        line.say(HEAD).await;
        held.push(line);
        mesh.until(|oracle| oracle.strangers() == held.len()).await;
    }
    // Connections of eight sources take all places. A ninth source gets one, and may replace it by its later
    // connections.
    for n in 0..8 {
        let mut other = Line::to_join(&mesh, stranger("10.1.0.1"));
        other.say(WHOLE).await;
        let (said, _) = other.end().await;
        assert!(said.starts_with("HTTP/1.1 400"), "{n}: {said}");
    }
    held.remove(0).gave_way().await;
    // A source that has its share does not get more.
    let mut late = Line::to_join(&mesh, stranger("10.0.3.1"));
    late.say(WHOLE).await;
    assert!(late.end().await.0.starts_with("HTTP/1.1 400"));
    held.remove(3 * 8 - 1).gave_way().await;
}

#[tokio::test]
async fn a_body_that_takes_five_seconds_is_answered_with_408() {
    let mesh = Mesh::found().await;
    let mut line = Line::to_join(&mesh, stranger("10.0.0.1"));
    line.say(HEAD).await;
    tokio::time::pause();
    let (said, _) = line.end().await;
    tokio::time::resume();
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
}

#[tokio::test]
async fn who_does_not_ask_for_five_seconds_is_closed() {
    let mesh = Mesh::found().await;
    tokio::time::pause();
    let (start, line) = (tokio::time::Instant::now(), Line::to_join(&mesh, stranger("10.0.0.1")));
    let (said, served) = line.end().await;
    let waited = start.elapsed();
    tokio::time::resume();
    // Simulated time.
    assert_eq!((said.contains("200"), served.is_err(), waited.as_secs()), (false, true, 5));
}

#[tokio::test]
async fn a_channel_for_joining_serves_that_once_and_nothing_else_whoever_comes() {
    let mesh = Mesh::found().await;
    for caller in [mesh.founder.caller(), Caller::Local, stranger("10.0.0.1")] {
        for line in ["GET /v1/roster", "GET /v1/status", "POST /v1/tokens", "GET /v1/join"] {
            let mut channel = Line::to_join(&mesh, caller);
            let request = format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
            channel.say(request.repeat(2).as_bytes()).await;
            let (said, _) = channel.end().await;
            assert!(said.starts_with("HTTP/1.1 404") && said.contains("not_found"), "{said}");
            assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
        }
    }
}

#[tokio::test]
async fn a_member_has_sixteen_connections_and_its_oldest_idle_one_is_closed() {
    let mesh = Mesh::found().await;
    let member = mesh.joined("ber").await;
    let mut held = Vec::new();
    for n in 0..16 {
        // Both keys are one member.
        let caller = [member.caller(), peer(member.client.id())][n % 2];
        let mut line = Line::of_a_member(&mesh, caller);
        line.say(STATUS).await;
        assert_eq!(line.status().await, "200");
        held.push(line);
    }
    // The first asks again: the second is now idle for longest.
    held[0].say(STATUS).await;
    assert_eq!(held[0].status().await, "200");
    let mut late = Line::of_a_member(&mesh, member.caller());
    late.say(STATUS).await;
    assert_eq!(late.status().await, "200");
    let (said, _) = held.remove(1).end().await;
    assert_eq!(said, "", "closed");
    for line in &mut held {
        line.say(STATUS).await;
        assert_eq!(line.status().await, "200", "the others are there");
    }
    let mut other = Line::of_a_member(&mesh, mesh.founder.caller());
    other.say(STATUS).await;
    assert_eq!(other.status().await, "200");
}
