//! A small oracle on loopback, with real channels and HTTP, and scripted answers.

#[path = "accepting.rs"]
mod accepting;

use crate::scene::{at, id, key, mesh, signed};
use accepting::accept;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use thalweg_mesh::Oracle;
use thalweg_net::channel::{Acceptor, Admission, Channel, Protocol};
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use thalweg_wire::mesh::{ApiError, JoinReply, JoinRequest, Roster, StatusReply};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// The seed of the fake's key.
pub const SEED: u8 = 90;

/// What the fake answers with; tests change it while it runs.
#[derive(Debug)]
pub struct Script {
    /// The newest roster's bytes and version.
    pub roster: watch::Sender<(u64, Vec<u8>)>,
    /// The keys that may use the API.
    pub members: Mutex<BTreeSet<NodeId>>,
    /// Sent instead of any other answer.
    pub refusal: Mutex<Option<ApiError>>,
    pub joins: Mutex<Vec<(NodeId, JoinRequest)>>,
    /// Its clock, in seconds since 1970.
    second: Mutex<u64>,
}

impl Script {
    /// Publishes a roster, whatever its version.
    pub fn publish(&self, roster: Roster) {
        self.roster.send_replace((roster.version, signed(roster)));
    }

    /// Publishes these bytes as this version.
    pub fn publish_bytes(&self, version: u64, bytes: Vec<u8>) {
        self.roster.send_replace((version, bytes));
    }

    pub fn set_time(&self, second: u64) {
        *self.second.lock().unwrap() = second;
    }

    fn time(&self) -> thalweg_units::WallTime {
        at(*self.second.lock().unwrap())
    }
}

#[derive(Debug)]
struct Gate(Arc<Script>);

impl Admission for Gate {
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Join => true,
            Protocol::Api => self.0.members.lock().unwrap().contains(key),
            _ => false,
        }
    }
}

/// The running fake; it stops when dropped.
pub struct Fake {
    pub address: SocketAddr,
    pub script: Arc<Script>,
    accepting: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Fake {
    /// An oracle that admits these keys, at a free port.
    pub async fn start(members: &[NodeId], second: u64) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), members, second).await
    }

    pub async fn start_at(address: SocketAddr, members: &[NodeId], second: u64) -> Self {
        let script = Arc::new(Script {
            roster: watch::Sender::new((0, Vec::new())),
            members: Mutex::new(members.iter().copied().collect()),
            refusal: Mutex::default(),
            joins: Mutex::default(),
            second: Mutex::new(second),
        });
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocols = [Protocol::Api, Protocol::Join];
        let gate = Arc::new(Gate(script.clone()));
        let acceptor = Acceptor::new(&key(SEED), gate, &protocols).unwrap();
        let answers = script.clone();
        let serve = move |channel| serve(channel, answers.clone());
        let accepting = tokio::spawn(accept(listener, acceptor, serve));
        Self { address, script, accepting }
    }

    /// Stops it, with its connections and its listener.
    pub async fn stop(mut self) {
        self.accepting.abort();
        assert!((&mut self.accepting).await.unwrap_err().is_cancelled());
    }

    /// Its key and address, for clients.
    pub fn oracle(&self) -> Oracle {
        Oracle { key: id(SEED), addresses: vec![self.address.into()] }
    }
}

async fn serve(channel: Channel<TcpStream>, script: Arc<Script>) {
    let peer = channel.peer();
    let answer = service_fn(move |request| {
        let script = script.clone();
        async move { Ok::<_, Infallible>(answer(peer, request, &script).await) }
    });
    _ = http1::Builder::new().serve_connection(TokioIo::new(channel), answer).await;
}

async fn answer(
    peer: NodeId,
    request: Request<Incoming>,
    script: &Script,
) -> Response<Full<Bytes>> {
    if let Some(error) = script.refusal.lock().unwrap().clone() {
        return reply(403, serde_json::to_vec(&error).unwrap());
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    match request.uri().path() {
        "/v1/roster" => newer(&query, script).await,
        "/v1/status" => status(script),
        "/v1/join" => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            join(peer, serde_json::from_slice(&body).unwrap(), script)
        }
        _ => reply(404, b"no".to_vec()),
    }
}

async fn newer(query: &str, script: &Script) -> Response<Full<Bytes>> {
    let after: u64 =
        query.strip_prefix("after=").unwrap().split('&').next().unwrap().parse().unwrap();
    let mut rosters = script.roster.subscribe();
    // Versions other than `after`, so that a test can offer an older one.
    let newest = rosters.wait_for(|(version, _)| *version != 0 && *version != after).await.unwrap();
    let bytes = newest.1.clone();
    drop(newest);
    reply(200, bytes)
}

fn status(script: &Script) -> Response<Full<Bytes>> {
    let version = script.roster.borrow().0;
    let (mesh, time) = (mesh().id(), script.time());
    let status = StatusReply { mesh, version, expiry: time, time, members: Vec::new() };
    reply(200, serde_json::to_vec(&status).unwrap())
}

fn join(peer: NodeId, request: JoinRequest, script: &Script) -> Response<Full<Bytes>> {
    let (name, time) = (request.name.clone(), script.time());
    script.joins.lock().unwrap().push((peer, request));
    let roster = HEXLOWER.encode(&script.roster.borrow().1);
    reply(200, serde_json::to_vec(&JoinReply { name, roster, time }).unwrap())
}

fn reply(status: u16, body: Vec<u8>) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}
