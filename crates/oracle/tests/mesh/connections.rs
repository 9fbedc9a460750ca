//! Limits on concurrent connections, and which connection is evicted.

use crate::harness::{Host, Mesh, get, peer, peer_from};
use std::io::{self, ErrorKind};
use thalweg_oracle::Caller;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
};

/// A request whose body is missing.
const HEAD: &[u8] = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
const WHOLE: &[u8] = b"POST /v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n";

/// A raw connection, and the result of serving it.
struct RawConnection {
    ours: DuplexStream,
    served: JoinHandle<io::Result<()>>,
}

impl RawConnection {
    fn to_join(mesh: &Mesh, caller: Caller) -> Self {
        let ((ours, theirs), oracle) = (duplex(64 * 1024), mesh.oracle.clone());
        Self { ours, served: tokio::spawn(async move { oracle.serve_join(theirs, caller).await }) }
    }

    fn of_a_member(mesh: &Mesh, caller: Caller) -> Self {
        let ((ours, theirs), oracle) = (duplex(64 * 1024), mesh.oracle.clone());
        Self { ours, served: tokio::spawn(async move { oracle.serve(theirs, caller).await }) }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.ours.write_all(bytes).await.unwrap();
    }

    /// Reads the status of a response, and leaves the connection open.
    async fn status(&mut self) -> String {
        let mut bytes = vec![0; 4096];
        let read = self.ours.read(&mut bytes).await.unwrap();
        String::from_utf8(bytes[9..12.min(read)].to_vec()).unwrap()
    }

    /// Reads everything until the connection is closed.
    async fn end(mut self) -> (String, io::Result<()>) {
        let mut response = String::new();
        self.ours.read_to_string(&mut response).await.unwrap();
        (response, self.served.await.unwrap())
    }

    /// Asserts that the connection was evicted without a response.
    async fn was_evicted(self) {
        let (response, served) = self.end().await;
        assert_eq!((response.as_str(), served.unwrap_err().kind()), ("", ErrorKind::QuotaExceeded));
    }
}

fn stranger(from: &str) -> Caller {
    peer_from(Host::new("x").node.id(), from)
}

#[tokio::test]
async fn a_silent_address_does_not_prevent_others_from_joining() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        // Many addresses of one network.
        held.push(RawConnection::to_join(&mesh, stranger(&format!("2001:db8::{n:x}"))));
        mesh.until(|oracle| oracle.strangers() == held.len().min(8)).await;
        tokio::task::yield_now().await;
    }
    for silent in held.drain(..56) {
        silent.was_evicted().await;
    }
    let mut other = RawConnection::to_join(&mesh, stranger("10.0.0.1"));
    other.write(WHOLE).await;
    let (response, _) = other.end().await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    assert_eq!(mesh.oracle.strangers(), 8, "those of the one network");
    for silent in held {
        drop(silent.ours);
        let _ = silent.served.await.unwrap();
    }
    assert_eq!(mesh.oracle.strangers(), 0);
}

#[tokio::test]
async fn the_oldest_connection_without_a_request_is_evicted() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        held.push(RawConnection::to_join(&mesh, stranger(&format!("10.0.{n}.1"))));
        mesh.until(|oracle| oracle.strangers() == held.len()).await;
    }
    let mut late = RawConnection::to_join(&mesh, stranger("10.1.0.1"));
    held.remove(0).was_evicted().await;
    late.write(WHOLE).await;
    assert!(late.end().await.0.starts_with("HTTP/1.1 400"));
    let answer = get(&mesh.oracle, mesh.founder.caller(), "/v1/status").await;
    assert_eq!(answer.status, 200, "members have places of their own");
}

#[tokio::test]
async fn a_request_without_its_body_is_evicted_like_an_idle_connection() {
    let mesh = Mesh::found().await;
    let mut held = Vec::new();
    for n in 0..64 {
        let mut line = RawConnection::to_join(&mesh, stranger(&format!("10.0.{}.1", n / 8)));
        line.write(HEAD).await;
        held.push(line);
        mesh.until(|oracle| oracle.strangers() == held.len()).await;
    }
    // Connections of eight sources fill the limit. A ninth source gets one by eviction, and its later connections may
    // replace that one.
    for n in 0..8 {
        let mut other = RawConnection::to_join(&mesh, stranger("10.1.0.1"));
        other.write(WHOLE).await;
        let (response, _) = other.end().await;
        assert!(response.starts_with("HTTP/1.1 400"), "{n}: {response}");
    }
    held.remove(0).was_evicted().await;
    // A source at its own limit does not get more.
    let mut late = RawConnection::to_join(&mesh, stranger("10.0.3.1"));
    late.write(WHOLE).await;
    assert!(late.end().await.0.starts_with("HTTP/1.1 400"));
    held.remove(3 * 8 - 1).was_evicted().await;
}

#[tokio::test]
async fn a_body_that_takes_five_seconds_is_answered_with_408() {
    let mesh = Mesh::found().await;
    let mut line = RawConnection::to_join(&mesh, stranger("10.0.0.1"));
    line.write(HEAD).await;
    tokio::time::pause();
    let (response, _) = line.end().await;
    tokio::time::resume();
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_after_five_seconds() {
    let mesh = Mesh::found().await;
    tokio::time::pause();
    let (start, line) =
        (tokio::time::Instant::now(), RawConnection::to_join(&mesh, stranger("10.0.0.1")));
    let (response, served) = line.end().await;
    let waited = start.elapsed();
    tokio::time::resume();
    // Simulated time.
    assert_eq!((response.contains("200"), served.is_err(), waited.as_secs()), (false, true, 5));
}

#[tokio::test]
async fn a_channel_for_joining_serves_one_request_to_join_and_no_other() {
    let mesh = Mesh::found().await;
    for caller in [mesh.founder.caller(), Caller::Local, stranger("10.0.0.1")] {
        for line in ["GET /v1/roster", "GET /v1/status", "POST /v1/tokens", "GET /v1/join"] {
            let mut channel = RawConnection::to_join(&mesh, caller);
            let request = format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
            channel.write(request.repeat(2).as_bytes()).await;
            let (response, _) = channel.end().await;
            assert!(
                response.starts_with("HTTP/1.1 404") && response.contains("not_found"),
                "{response}"
            );
            assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
        }
    }
}

#[tokio::test]
async fn a_member_has_sixteen_connections_and_its_oldest_idle_one_is_closed() {
    let mesh = Mesh::found().await;
    let member = mesh.joined("ber").await;
    let mut held = Vec::new();
    for n in 0..16 {
        // Both keys belong to one member.
        let caller = [member.caller(), peer(member.client.id())][n % 2];
        let mut line = RawConnection::of_a_member(&mesh, caller);
        line.write(STATUS).await;
        assert_eq!(line.status().await, "200");
        held.push(line);
    }
    // The first sends a request, so the second has been idle longest.
    held[0].write(STATUS).await;
    assert_eq!(held[0].status().await, "200");
    let mut late = RawConnection::of_a_member(&mesh, member.caller());
    late.write(STATUS).await;
    assert_eq!(late.status().await, "200");
    let (response, _) = held.remove(1).end().await;
    assert_eq!(response, "", "closed");
    for line in &mut held {
        line.write(STATUS).await;
        assert_eq!(line.status().await, "200", "the others are there");
    }
    let mut other = RawConnection::of_a_member(&mesh, mesh.founder.caller());
    other.write(STATUS).await;
    assert_eq!(other.status().await, "200");
}
