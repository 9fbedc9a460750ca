//! Limits on strangers.

use crate::harness::{HOUR, Host, Mesh, peer_from, post};
use std::num::NonZeroU32;
use thalweg_oracle::JoinLimits;
use thalweg_wire::Signer as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

fn limits(each: u32, all: u32) -> JoinLimits {
    JoinLimits {
        burst: NonZeroU32::new(each).unwrap(),
        every: HOUR,
        burst_of_all: NonZeroU32::new(all).unwrap(),
        every_of_all: HOUR,
    }
}

#[tokio::test]
async fn joining_is_limited_by_address_and_in_total() {
    let mesh = Mesh::found_with(limits(2, 5)).await;
    let key = Host::new("x").node.id();
    let ask = async |from: &str| {
        let answer = post(&mesh.oracle, peer_from(key, from), "/v1/join", &0).await;
        if answer.status == 429 {
            assert_eq!(answer.error().code, "rate_limited");
            assert!(answer.retry_after.unwrap() > 60);
        }
        answer.status.as_u16()
    };
    assert_eq!([ask("10.0.0.1").await, ask("10.0.0.1").await], [400, 400]);
    assert_eq!([ask("10.0.0.1").await, ask("10.0.0.1").await], [429, 429]);
    assert_eq!([ask("10.0.0.2").await, ask("10.0.0.3").await], [400, 400]);
    assert_eq!([ask("10.0.0.4").await, ask("10.0.0.5").await], [400, 429]);
}

#[tokio::test]
async fn a_stranger_has_one_request_on_a_connection() {
    let mesh = Mesh::found().await;
    let (mut ours, theirs) = duplex(64 * 1024);
    let (oracle, caller) = (mesh.oracle.clone(), Host::new("x").caller());
    let served = tokio::spawn(async move { oracle.serve(theirs, caller).await });
    let one = b"GET /v1/status HTTP/1.1\r\nhost: oracle\r\n\r\n";
    ours.write_all(&one.repeat(2)).await.unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).await.unwrap();
    assert_eq!(said.matches("HTTP/1.1 403").count(), 1, "{said}");
    served.await.unwrap().unwrap();
}

/// Serves a member that sends `bytes` and then nothing, in simulated time.
async fn slow(bytes: &[u8]) -> (std::io::Result<()>, String) {
    let mesh = Mesh::found().await;
    tokio::time::pause();
    let (mut ours, theirs) = duplex(64 * 1024);
    let (oracle, caller) = (mesh.oracle.clone(), mesh.founder.caller());
    let served = tokio::spawn(async move { oracle.serve(theirs, caller).await });
    ours.write_all(bytes).await.unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).await.unwrap();
    tokio::time::resume();
    (served.await.unwrap(), said)
}

#[tokio::test]
async fn slow_heads_and_bodies_are_not_waited_for() {
    let (served, said) = slow(b"GET /v1/status HTTP/1.1\r\nhost:").await;
    assert!(served.is_err() && !said.contains("200"), "{said}");
    let head = b"POST /v1/tokens HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let (_, said) = slow(head).await;
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("too_slow"), "{said}");
}

#[tokio::test]
async fn data_other_than_http_ends_the_connection() {
    let mesh = Mesh::found().await;
    for bytes in [&b"\x05\x01\x00"[..], b"GET / HTTP/9.9\r\n\r\n", &[b'a'; 20_000]] {
        let (mut ours, theirs) = duplex(64 * 1024);
        let (oracle, caller) = (mesh.oracle.clone(), mesh.founder.caller());
        let served = tokio::spawn(async move { oracle.serve(theirs, caller).await });
        ours.write_all(bytes).await.unwrap();
        ours.shutdown().await.unwrap();
        let mut said = Vec::new();
        ours.read_to_end(&mut said).await.unwrap();
        assert!(served.await.unwrap().is_err() || said.starts_with(b"HTTP/1.1 4"), "{said:?}");
    }
}
