//! A small oracle on loopback: orders as a test gives them, and the reports that come.

use crate::scene::key;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_net::channel::{Acceptor, Admission, Channel, Protocol};
use thalweg_node::mesh::Oracle;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signer as _,
    mesh::{
        ApiError,
        measure::{Done, Order, Orders, Received, Reports, ReportsReply},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex as AsyncMutex, Notify, mpsc},
    task::{JoinHandle, JoinSet},
};

const SEED: u8 = 90;

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, protocol: Protocol) -> bool {
        protocol == Protocol::Api
    }
}

#[derive(Debug)]
struct Script {
    orders: Mutex<BTreeMap<NodeId, VecDeque<Order>>>,
    news: Notify,
    reports: mpsc::Sender<Reports>,
    /// So many reports are cut off before they are answered.
    deaf: AtomicUsize,
    /// Another oracle is elected.
    deposed: AtomicBool,
}

/// The running oracle; gone when dropped.
pub struct Fake {
    at: SocketAddr,
    seed: u8,
    script: Arc<Script>,
    reports: AsyncMutex<mpsc::Receiver<Reports>>,
    accepting: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Fake {
    pub async fn start() -> Self {
        Self::start_as(SEED).await
    }

    /// One of several, each with a key of its own.
    pub async fn start_as(seed: u8) -> Self {
        let (sender, reports) = mpsc::channel(64);
        let script = Arc::new(Script {
            orders: Mutex::default(),
            news: Notify::new(),
            reports: sender,
            deaf: AtomicUsize::new(0),
            deposed: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = Acceptor::new(&key(seed), Arc::new(Everybody), &[Protocol::Api]).unwrap();
        let accepting = tokio::spawn(accept(listener, acceptor, script.clone()));
        Self { at, seed, script, reports: AsyncMutex::new(reports), accepting }
    }

    pub fn oracle(&self) -> Oracle {
        Oracle { key: key(self.seed).id(), addresses: vec![self.at.into()] }
    }

    /// Orders node `n` to do it.
    pub fn order(&self, n: u8, order: Order) {
        self.script.orders.lock().unwrap().entry(key(n).id()).or_default().push_back(order);
        self.script.news.notify_waiters();
    }

    /// Cuts the next reports off.
    pub fn be_deaf(&self, times: usize) {
        self.script.deaf.store(times, Ordering::SeqCst);
    }

    /// Another is elected from now on.
    pub fn be_deposed(&self) {
        self.script.deposed.store(true, Ordering::SeqCst);
        self.script.news.notify_waiters();
    }

    async fn report(&self) -> Reports {
        self.reports.lock().await.recv().await.unwrap()
    }

    /// The next order's end.
    pub async fn done(&self) -> Done {
        loop {
            if let Some(done) = self.report().await.done.pop() {
                return done;
            }
        }
    }

    /// The end of an order and what its receiver says of it, in whichever order they come.
    pub async fn both(&self) -> (Done, Received) {
        let (mut done, mut received) = (None, None);
        loop {
            let mut report = self.report().await;
            done = done.or(report.done.pop());
            received = received.or(report.received.pop());
            if let (Some(done), Some(received)) = (&done, &received) {
                return (done.clone(), received.clone());
            }
        }
    }
}

async fn accept(listener: TcpListener, acceptor: Acceptor, script: Arc<Script>) {
    let mut channels = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, script) = (acceptor.clone(), script.clone());
        channels.spawn(async move {
            if let Ok(channel) = acceptor.accept(tcp).await {
                serve(channel, script).await;
            }
        });
    }
}

async fn serve(channel: Channel<TcpStream>, script: Arc<Script>) {
    let peer = channel.peer();
    let answer = service_fn(move |request: Request<Incoming>| {
        let script = script.clone();
        async move {
            if script.deposed.load(Ordering::SeqCst) {
                return Ok(refusal());
            }
            match request.uri().path() {
                "/v1/measure/orders" => Ok(reply(&orders(peer, &script).await)),
                _ => take(request, &script).await,
            }
        }
    });
    // It breaks off where a test wants it to.
    _ = http1::Builder::new().serve_connection(TokioIo::new(channel), answer).await;
}

async fn orders(peer: NodeId, script: &Script) -> Orders {
    loop {
        let news = script.news.notified();
        if script.deposed.load(Ordering::SeqCst) {
            return Orders::default();
        }
        let order = script.orders.lock().unwrap().entry(peer).or_default().pop_front();
        if let Some(order) = order {
            return Orders { orders: vec![order] };
        }
        if tokio::time::timeout(Duration::from_secs(1), news).await.is_err() {
            return Orders::default();
        }
    }
}

/// An error closes the connection without an answer.
async fn take(
    request: Request<Incoming>,
    script: &Script,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let less = |n: usize| n.checked_sub(1);
    if script.deaf.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
        return Err(std::io::Error::other("deaf"));
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let reports: Reports = serde_json::from_slice(&body).unwrap();
    let accepted = (reports.done.len() + reports.received.len()) as u64;
    // One by one: a busy node tells of several at once.
    for done in reports.done {
        let one = Reports { done: vec![done], ..Reports::default() };
        script.reports.send(one).await.unwrap();
    }
    for received in reports.received {
        let one = Reports { received: vec![received], ..Reports::default() };
        script.reports.send(one).await.unwrap();
    }
    Ok(reply(&ReportsReply { accepted, refused: Vec::new() }))
}

fn refusal() -> Response<Full<Bytes>> {
    let message = "n7 is elected".to_owned();
    let mut answer = reply(&ApiError { code: "not_elected".to_owned(), message });
    *answer.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    answer
}

fn reply(body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    Response::new(Full::new(serde_json::to_vec(body).unwrap().into()))
}
