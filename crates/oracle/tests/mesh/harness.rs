//! Test harness: a mesh in a temporary directory, hosts that join it, and HTTP requests to its oracle.

use data_encoding::HEXLOWER;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tempfile::TempDir;
use thalweg_net::{Ed25519, PrivateKey};
use thalweg_oracle::{
    Caller, Clock, Config, Database, Event, JoinLimits, Oracle, OracleError, Server,
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Destination, Signed, Signer as _,
    mesh::{
        ApiError, ClientBinding, JoinReply, JoinRequest, Member, Role, Roster, Secret, Token,
        TokenReply, TokenRequest,
    },
};
use tokio::io::duplex;

/// Long, so that a busy machine does not look like a locked database.
const PATIENT: Duration = Duration::from_secs(60);
/// Short, for tests in which the database stays locked.
pub const IMPATIENT: Duration = Duration::from_millis(300);
pub const HOUR: Duration = Duration::from_secs(3600);

/// A clock that only moves when a test moves it.
#[derive(Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    pub fn at_system_time() -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Self(Arc::new(AtomicU64::new(now.as_nanos() as u64)))
    }

    pub fn now(&self) -> WallTime {
        WallTime::from_unix_nanos(self.0.load(Ordering::SeqCst))
    }

    pub fn forward(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    pub fn back(&self, by: Duration) {
        self.0.fetch_sub(by.as_nanos() as u64, Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let hand = self.clone();
        Clock::from_fn(move || hand.now())
    }
}

/// A host with its two keys.
pub struct Host {
    pub name: String,
    pub node: PrivateKey,
    pub client: PrivateKey,
}

impl Host {
    pub fn new(name: &str) -> Self {
        let key = || PrivateKey::generate().unwrap();
        Self { name: name.into(), node: key(), client: key() }
    }

    /// A host with the same keys and another name.
    pub fn again(&self, name: &str) -> Self {
        Self { name: name.into(), node: copy(&self.node), client: copy(&self.client) }
    }

    pub fn caller(&self) -> Caller {
        peer(self.node.id())
    }

    pub fn member(&self) -> Member {
        Member {
            name: self.name.parse().unwrap(),
            node: Some(self.node.id()),
            client: self.client.id(),
            addresses: vec![address()],
            roles: [Role::Relay].into(),
            tags: [].into(),
        }
    }

    /// Its request to join with `token`.
    pub fn request(&self, token: &Token, time: WallTime) -> JoinRequest {
        let (mesh, node) = (token.mesh, Some(self.node.id()));
        let binding = ClientBinding { mesh, node, token: token.secret.hash() };
        JoinRequest {
            secret: token.secret,
            name: self.name.parse().unwrap(),
            node,
            client: HEXLOWER.encode(&Signed::sign(binding, &self.client).encode()),
            addresses: vec![address()],
            time,
        }
    }
}

/// Copies a key, for a host that asks twice.
fn copy(key: &PrivateKey) -> PrivateKey {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    key.save_new(&file).unwrap();
    PrivateKey::load(&file).unwrap()
}

pub fn address() -> Destination {
    "192.0.2.1:7373".parse().unwrap()
}

pub fn peer(key: NodeId) -> Caller {
    Caller::peer(key, "198.51.100.7:40000".parse().unwrap())
}

pub fn peer_from(key: NodeId, address: &str) -> Caller {
    Caller::Peer { key, address: address.parse::<IpAddr>().unwrap() }
}

/// A mesh founded by `fra`, with a manual clock.
pub struct Mesh {
    pub dir: TempDir,
    pub hand: ManualClock,
    pub founder: Host,
    pub oracle: Oracle,
    pub events: Arc<Mutex<Vec<Event>>>,
    pub patience: Duration,
    /// The URL of the database; `None`: a file.
    pub url: Option<String>,
}

impl Mesh {
    pub async fn found() -> Self {
        Self::found_with(JoinLimits::default()).await
    }

    pub async fn found_with(limits: JoinLimits) -> Self {
        Self::found_in(tempfile::tempdir().unwrap(), limits, PATIENT).await
    }

    /// Founds a mesh whose writes soon give up on a locked database.
    pub async fn found_impatient() -> Self {
        Self::found_in(tempfile::tempdir().unwrap(), JoinLimits::default(), IMPATIENT).await
    }

    pub async fn found_in(dir: TempDir, limits: JoinLimits, patience: Duration) -> Self {
        let (hand, founder) = (ManualClock::at_system_time(), Host::new("fra"));
        let (events, url) = (Arc::default(), crate::database_url().await);
        let config = Config { join_limits: limits, ..config(&hand, patience, &events, &url) };
        let path = dir.path().join("oracle");
        let oracle = Oracle::create(&path, founder.member(), config).await.unwrap();
        Self { dir, hand, founder, oracle, events, patience, url }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("oracle")
    }

    pub fn config(&self) -> Config {
        config(&self.hand, self.patience, &self.events, &self.url)
    }

    /// Opens another oracle on the same state, like another process or the next start.
    pub async fn open(&self) -> Result<Oracle, OracleError> {
        self.open_in(&self.path()).await
    }

    pub async fn open_in(&self, dir: &Path) -> Result<Oracle, OracleError> {
        Oracle::open(dir, self.founder.node.id(), self.config()).await
    }

    /// Replaces the oracle without an orderly end, as after `kill -9`.
    pub async fn reopen(&mut self) {
        self.oracle = self.open().await.unwrap();
    }

    pub async fn token(&self) -> Token {
        self.token_with(token_request()).await
    }

    pub async fn token_with(&self, request: TokenRequest) -> Token {
        let reply = self.oracle.create_token(&Caller::Local, request).await.unwrap();
        reply.token.parse().unwrap()
    }

    /// Requests over HTTP to join.
    pub async fn join(&self, host: &Host, token: &Token) -> Result<JoinReply, ApiError> {
        let request = host.request(token, self.hand.now());
        post(&self.oracle, host.caller(), "/v1/join", &request).await.result()
    }

    /// A host that has joined.
    pub async fn joined(&self, name: &str) -> Host {
        let host = Host::new(name);
        self.join(&host, &self.token().await).await.unwrap();
        host
    }

    /// Waits until `condition` holds.
    pub async fn until(&self, condition: impl Fn(&Oracle) -> bool) {
        let wait = async {
            while !condition(&self.oracle) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    }

    pub fn newest(&self) -> Roster {
        newest(&self.oracle)
    }
}

fn config(
    hand: &ManualClock,
    patience: Duration,
    events: &Arc<Mutex<Vec<Event>>>,
    url: &Option<String>,
) -> Config {
    let events = events.clone();
    Config {
        clock: hand.clock(),
        patience,
        database: database(url.as_deref()),
        events: Arc::new(move |event| events.lock().unwrap().push(event.clone())),
        ..Config::default()
    }
}

/// The database at this URL; `None`: a file.
pub fn database(url: Option<&str>) -> Database {
    url.map_or(Database::File, |url| Database::Server(Server::new(url, None).unwrap()))
}

pub fn token_request() -> TokenRequest {
    TokenRequest { roles: [Role::Relay].into(), tags: [].into(), name: None, valid: HOUR }
}

/// The newest roster, verified.
pub fn newest(oracle: &Oracle) -> Roster {
    let bytes = oracle.roster().borrow().clone();
    verified(&bytes, oracle.mesh())
}

pub fn verified(bytes: &[u8], mesh: NodeId) -> Roster {
    let signed = Signed::<Roster>::open(bytes, &Ed25519).unwrap();
    signed.check_authority(&mesh, &Ed25519).unwrap();
    signed.into_value()
}

pub fn no_secret() -> Secret {
    Secret::from_bytes([7; 16])
}

/// A response over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub retry_after: Option<u64>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn result<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        match self.status.is_success() {
            true => Ok(serde_json::from_slice(&self.body).unwrap()),
            false => Err(self.error()),
        }
    }

    pub fn error(&self) -> ApiError {
        assert!(!self.status.is_success(), "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and the error's code.
    pub fn refusal(&self) -> (u16, String) {
        (self.status.as_u16(), self.error().code)
    }
}

/// Sends one request on a new connection.
pub async fn send(
    oracle: &Oracle,
    caller: Caller,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Answer {
    let (ours, theirs) = duplex(16 * 1024);
    let server = oracle.clone();
    let served = tokio::spawn(async move { server.serve(theirs, caller).await });
    let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "oracle");
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    drop(sender);
    let _ = driven.await.unwrap();
    let _ = served.await.unwrap();
    let retry_after = head.headers.get("retry-after");
    let retry_after = retry_after.map(|v| v.to_str().unwrap().parse().unwrap());
    Answer { status: head.status, retry_after, body }
}

pub async fn post(oracle: &Oracle, caller: Caller, path: &str, body: &impl Serialize) -> Answer {
    send(oracle, caller, Method::POST, path, serde_json::to_vec(body).unwrap()).await
}

pub async fn get(oracle: &Oracle, caller: Caller, path: &str) -> Answer {
    send(oracle, caller, Method::GET, path, Vec::new()).await
}

pub fn token_of(answer: &Answer) -> Token {
    answer.result::<TokenReply>().unwrap().token.parse().unwrap()
}

/// Asserts that reads work, that writes are answered 503 with `text` in the reason, and that nothing changes.
pub async fn serves_on(mesh: &Mesh, text: &str) {
    let before = mesh.newest();
    let token = post(&mesh.oracle, Caller::Local, "/v1/tokens", &token_request()).await;
    assert_eq!(token.refusal(), (503, "storage".into()));
    assert!(token.error().message.contains(text), "{:?}", token.error());
    assert!(token.retry_after.is_some());
    let roster = get(&mesh.oracle, mesh.founder.caller(), "/v1/roster?after=0").await;
    assert_eq!(verified(&roster.body, mesh.oracle.mesh()), before);
    assert_eq!(get(&mesh.oracle, mesh.founder.caller(), "/v1/status").await.status, 200);
    assert_eq!(mesh.newest(), before);
}
