//! Several oracles on one database: each with its directory, its node, and the mesh's key.

use crate::harness::{Host, Mesh, get, newest, post, token_request, verified};
use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_oracle::{Caller, Config, Event, Oracle, OracleError};
use thalweg_wire::{
    Signer as _,
    mesh::{RevokeRequest, Role, Token, TokenRequest},
};

/// An oracle beside the founder's, with its events.
struct Second {
    host: Host,
    oracle: Oracle,
    events: Arc<Mutex<Vec<Event>>>,
    config: Config,
    dir: std::path::PathBuf,
}

/// `None` without PostgreSQL; then the reason is printed.
async fn mesh() -> Option<Mesh> {
    let mesh = Mesh::found().await;
    mesh.url.is_some().then_some(mesh)
}

/// As the manual says: a token for the role, and the mesh's key transferred separately.
async fn second(mesh: &Mesh) -> Second {
    let roles = [Role::Oracle, Role::Relay].into();
    let token = mesh.token_with(TokenRequest { roles, ..token_request() }).await;
    let host = Host::new("second");
    mesh.join(&host, &token).await.unwrap();
    let dir = mesh.dir.path().join("second");
    fs::create_dir(&dir).unwrap();
    fs::copy(mesh.path().join("mesh.key"), dir.join("mesh.key")).unwrap();
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = events.clone();
    let sink = Arc::new(move |event: &Event| told.lock().unwrap().push(event.clone()));
    let config = Config { events: sink, ..mesh.config() };
    let oracle = Oracle::open(&dir, host.node.id(), config.clone()).await.unwrap();
    Second { host, oracle, events, config, dir }
}

#[tokio::test]
async fn a_second_oracle_admits_revokes_and_publishes() {
    let Some(mesh) = mesh().await else { return };
    let second = second(&mesh).await;
    assert_eq!(second.oracle.mesh(), mesh.oracle.mesh());
    let token = second.oracle.create_token(&Caller::Local, token_request()).await.unwrap();
    let token: Token = token.token.parse().unwrap();
    assert_eq!(token.oracle, second.host.node.id());
    // A token made at one oracle and used at the other; the member is revoked at the first.
    mesh.join(&Host::new("ber"), &token).await.unwrap();
    second.oracle.tick().await.unwrap();
    assert_eq!(newest(&second.oracle), mesh.newest());
    let request = RevokeRequest { member: "ber".into() };
    second.oracle.revoke(&Caller::Local, request).await.unwrap();
    mesh.oracle.tick().await.unwrap();
    assert_eq!(mesh.newest(), newest(&second.oracle));
    assert!(mesh.newest().by_name(&"ber".parse().unwrap()).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_oracles_never_assign_a_version_twice() {
    let Some(mesh) = mesh().await else { return };
    let second = second(&mesh).await;
    let mut joined = Vec::new();
    for n in 0..12 {
        let oracle = if n % 2 == 0 { mesh.oracle.clone() } else { second.oracle.clone() };
        let now = mesh.hand.now();
        joined.push(tokio::spawn(async move {
            let token = oracle.create_token(&Caller::Local, token_request()).await.unwrap();
            let host = Host::new(&format!("host-{n}"));
            let request = host.request(&token.token.parse().unwrap(), now);
            let reply = oracle.join(&host.caller(), request).await.unwrap();
            let bytes = data_encoding::HEXLOWER.decode(reply.roster.as_bytes()).unwrap();
            verified(&bytes, oracle.mesh())
        }));
    }
    let mut rosters = Vec::new();
    for one in joined {
        rosters.push(one.await.unwrap());
    }
    rosters.sort_by_key(|roster| roster.version);
    for pair in rosters.windows(2) {
        assert!(pair[0].version < pair[1].version);
        assert!(pair[0].members.len() < pair[1].members.len(), "somebody was lost");
    }
    assert_eq!(rosters.last().unwrap().members.len(), 2 + 12);
}

fn elected(events: &Mutex<Vec<Event>>) -> Vec<u64> {
    let events = events.lock().unwrap();
    let term = |e: &Event| if let Event::Elected(term) = e { Some(*term) } else { None };
    events.iter().filter_map(term).collect()
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.unwrap();
}

/// Runs an oracle with a short lease, until it is killed.
async fn run(second: &Second) -> (Oracle, tokio::task::JoinHandle<()>) {
    let config = Config { lease: Some(Duration::from_millis(1500)), ..second.config.clone() };
    let oracle = Oracle::open(&second.dir, second.host.node.id(), config).await.unwrap();
    let running = oracle.clone();
    (oracle, tokio::spawn(async move { running.run(std::future::pending()).await }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_oracle_is_elected_when_the_elected_one_is_killed() {
    let Some(mesh) = mesh().await else { return };
    let second = second(&mesh).await;
    let first = Second {
        host: mesh.founder.again("fra"),
        oracle: mesh.oracle.clone(),
        events: mesh.events.clone(),
        config: mesh.config(),
        dir: mesh.path(),
    };
    let (_, running) = run(&first).await;
    until(|| elected(&first.events).len() == 1).await;
    let (other, _other_runs) = run(&second).await;
    // Killed: it does not release its lease, and is not heard again.
    running.abort();
    let _ = running.await;
    until(|| elected(&second.events).len() == 1).await;
    let (before, after) = (elected(&first.events)[0], elected(&second.events)[0]);
    assert!(after > before, "{before} {after}");
    // Nothing else stopped: the other oracle admits hosts and answers, also before it is elected.
    let token = other.create_token(&Caller::Local, token_request()).await.unwrap();
    let token: Token = token.token.parse().unwrap();
    let ber = Host::new("ber");
    let request = ber.request(&token, mesh.hand.now());
    assert_eq!(post(&other, ber.caller(), "/v1/join", &request).await.status, 200);
    // The killed oracle restarts: it reads and writes, but is not elected.
    let (again, again_runs) = run(&first).await;
    let status = get(&again, ber.caller(), "/v1/status").await;
    assert_eq!(status.status, 200);
    assert_eq!(elected(&first.events).len(), 1);
    again_runs.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_oracle_releases_its_lease() {
    let Some(mesh) = mesh().await else { return };
    let second = second(&mesh).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let hour = Config { lease: Some(Duration::from_secs(3600)), ..mesh.config() };
    let first = Oracle::open(&mesh.path(), mesh.founder.node.id(), hour).await.unwrap();
    let ended = tokio::spawn(async move { first.run(async { drop(stopped.await) }).await });
    until(|| elected(&mesh.events).len() == 1).await;
    stop.send(()).unwrap();
    ended.await.unwrap();
    let (_, running) = run(&second).await;
    until(|| elected(&second.events).len() == 1).await;
    running.abort();
}

#[tokio::test]
async fn a_database_does_not_open_with_the_key_of_another_mesh() {
    let Some(mesh) = mesh().await else { return };
    let second = second(&mesh).await;
    let other = Mesh::found().await;
    fs::copy(other.path().join("mesh.key"), second.dir.join("mesh.key")).unwrap();
    let config = second.config.clone();
    let error = Oracle::open(&second.dir, second.host.node.id(), config.clone()).await.unwrap_err();
    assert!(matches!(error, OracleError::OtherMesh { .. }), "{error}");
    fs::remove_file(second.dir.join("mesh.key")).unwrap();
    let error = Oracle::open(&second.dir, second.host.node.id(), config).await.unwrap_err();
    assert!(matches!(error, OracleError::Missing(_)), "{error}");
    assert!(error.to_string().contains("mesh.key"), "{error}");
}
