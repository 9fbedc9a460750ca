//! What the client asks an oracle, and what it reports when that fails.

use crate::{
    oracle::{Fake, SEED},
    scene::{BEGIN, HandClock, id, key, roster},
};
use std::time::Duration;
use thalweg_mesh::{Oracle, OracleClient, OracleError};
use thalweg_wire::mesh::{ApiError, RevokeRequest, RosterRank};
use tokio::net::TcpListener;

fn client(seed: u8, oracles: Vec<Oracle>) -> OracleClient {
    OracleClient::new(&key(seed), oracles, HandClock::at(BEGIN).clock()).unwrap()
}

#[tokio::test]
async fn the_roster_comes_once_there_is_a_newer_one() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    fake.script.publish(roster(3, &["a"]));
    let client = client(1, vec![fake.oracle()]);
    let wait = Duration::from_secs(1);
    let third = client.roster(None, wait).await.unwrap().unwrap();
    assert_eq!(third, fake.script.roster.borrow().1);
    let rank = RosterRank { endorsement: 0, version: 3 };
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.roster(Some(rank), wait).await }
    });
    fake.script.publish(roster(4, &["a"]));
    let fourth = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(fourth, fake.script.roster.borrow().1);
}

#[tokio::test]
async fn a_key_that_is_not_admitted_gets_an_error_that_says_so() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let error = client(2, vec![fake.oracle()]).status().await.unwrap_err();
    assert_eq!(error, OracleError::NotAdmitted, "{error}");
}

#[tokio::test]
async fn the_reason_of_the_oracle_is_passed_on() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let refusal = ApiError { code: "not_admin".into(), message: "only admins revoke".into() };
    *fake.script.refusal.lock().unwrap() = Some(refusal.clone());
    let revoke = RevokeRequest { member: "b".into() };
    let error = client(1, vec![fake.oracle()]).revoke(&revoke).await.unwrap_err();
    assert_eq!(error.to_string(), "only admins revoke");
    assert_eq!(ApiError::from(error), refusal);
}

#[tokio::test]
async fn an_answer_without_a_reason_is_reported_by_its_status() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let revoke = RevokeRequest { member: "b".into() };
    let error = client(1, vec![fake.oracle()]).revoke(&revoke).await.unwrap_err();
    assert_eq!(error, OracleError::Status(404));
}

/// An address where nothing listens: that of a closed listener.
async fn nobody() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn all_addresses_are_tried_and_named_in_the_error() {
    let (a, b) = (nobody().await, nobody().await);
    let gone = Oracle { key: id(SEED), addresses: vec![a.into(), b.into()] };
    let error = client(1, vec![gone.clone()]).status().await.unwrap_err().to_string();
    let told = error.contains(&a.to_string()) && error.contains(&b.to_string());
    assert!(told && error.contains("refuses connections"), "{error}");
    // Another oracle serves instead.
    let fake = Fake::start(&[id(1)], BEGIN).await;
    client(1, vec![gone.clone(), fake.oracle()]).status().await.unwrap();
    // And so does another address of the same oracle.
    let addresses = vec![a.into(), fake.address.into()];
    client(1, vec![Oracle { key: id(SEED), addresses }]).status().await.unwrap();
    let none = client(1, Vec::new()).status().await.unwrap_err().to_string();
    assert!(none.contains("join again"), "{none}");
}

#[tokio::test]
async fn another_host_at_the_oracles_address_gets_no_request() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let other = Oracle { key: id(201), addresses: vec![fake.address.into()] };
    let error = client(1, vec![other.clone()]).status().await.unwrap_err().to_string();
    assert!(error.contains("a node other than"), "{error}");
    // The right host, at the next address, is found nevertheless.
    let second = Fake::start_at("127.0.0.2:0".parse().unwrap(), &[id(1)], BEGIN).await;
    let both =
        Oracle { key: id(SEED), addresses: vec![fake.address.into(), second.address.into()] };
    client(1, vec![both]).status().await.unwrap();
}

#[tokio::test]
async fn a_difference_of_the_clocks_is_reported_with_its_size() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let client = client(1, vec![fake.oracle()]);
    client.status().await.unwrap();
    assert_eq!(client.skew(), None);
    fake.script.set_time(BEGIN + 3 * 3600);
    client.status().await.unwrap();
    let skew = client.skew().unwrap().to_string();
    assert!(skew.contains("10800 s behind"), "{skew}");
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let client = client(1, vec![fake.oracle()]);
    client.status().await.unwrap();
    let address = fake.address;
    fake.stop().await;
    let again = Fake::start_at(address, &[id(1)], BEGIN).await;
    client.status().await.unwrap();
    again.stop().await;
}

#[tokio::test]
async fn a_silent_address_does_not_hide_the_next_one() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = Fake::start(&[id(1)], BEGIN).await;
    let addresses = vec![mute.local_addr().unwrap().into(), fake.address.into()];
    client(1, vec![Oracle { key: id(SEED), addresses }]).status().await.unwrap();
}
