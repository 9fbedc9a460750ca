//! A small oracle on loopback, with orders that a test gives it, and the reports that arrive.

#[path = "../../../mesh/tests/mesh/accepting.rs"]
mod accepting;

use crate::scene::{key, signed_ticket};
use accepting::accept;
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
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_mesh::Oracle;
use thalweg_net::channel::{Acceptor, Admission, Channel, Protocol};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signer as _,
    mesh::{
        ApiError,
        measure::{MOST_BYTES, Order, OrderReport, Orders, ReceivedReport, Reports, ReportsReply},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex as AsyncMutex, Notify, mpsc},
    task::JoinHandle,
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
    /// How many more reports are cut off before they are answered.
    deaf: AtomicUsize,
    /// Reports with the outcome of this order cannot be read.
    poison: AtomicU64,
    /// Whether another oracle is elected.
    deposed: AtomicBool,
}

/// The running oracle; it ends when it is dropped.
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

    /// Starts one of several, each with a key of its own.
    pub async fn start_as(seed: u8) -> Self {
        let (sender, reports) = mpsc::channel(64);
        let script = Arc::new(Script {
            orders: Mutex::default(),
            news: Notify::new(),
            reports: sender,
            deaf: AtomicUsize::new(0),
            poison: AtomicU64::new(0),
            deposed: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = Acceptor::new(&key(seed), Arc::new(Everybody), &[Protocol::Api]).unwrap();
        let answers = script.clone();
        let serve = move |channel| serve(channel, answers.clone());
        let accepting = tokio::spawn(accept(listener, acceptor, serve));
        Self { at, seed, script, reports: AsyncMutex::new(reports), accepting }
    }

    pub fn oracle(&self) -> Oracle {
        Oracle { key: key(self.seed).id(), addresses: vec![self.at.into()] }
    }

    /// Orders node `n` to do it; signs the order for the pair, unless it has a ticket.
    pub fn order(&self, n: u8, mut order: Order) {
        if order.ticket.is_empty() {
            let to = order.to.as_str()[1..].parse().unwrap();
            order.ticket = signed_ticket(order.id, n, to);
        }
        self.script.orders.lock().unwrap().entry(key(n).id()).or_default().push_back(order);
        self.script.news.notify_waiters();
    }

    /// Cuts off the next reports.
    pub fn be_deaf(&self, times: usize) {
        self.script.deaf.store(times, Ordering::SeqCst);
    }

    /// Makes reports with the outcome of this order unreadable.
    pub fn choke_on(&self, order: u64) {
        self.script.poison.store(order, Ordering::SeqCst);
    }

    /// From now on another oracle is elected.
    pub fn be_deposed(&self) {
        self.script.deposed.store(true, Ordering::SeqCst);
        self.script.news.notify_waiters();
    }

    pub async fn report(&self) -> Reports {
        self.reports.lock().await.recv().await.unwrap()
    }

    /// The next outcome of an order.
    pub async fn done(&self) -> OrderReport {
        loop {
            if let Some(done) = self.report().await.done.pop() {
                return done;
            }
        }
    }

    /// The outcome of an order and its receiver's report, in whichever order they arrive.
    pub async fn both(&self) -> (OrderReport, ReceivedReport) {
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

async fn serve(channel: Channel<TcpStream>, script: Arc<Script>) {
    let peer = channel.peer();
    let answer = service_fn(move |request: Request<Incoming>| {
        let script = script.clone();
        async move {
            if script.deposed.load(Ordering::SeqCst) {
                return Ok(refusal(
                    StatusCode::MISDIRECTED_REQUEST,
                    "not_elected",
                    "n7 is elected",
                ));
            }
            match request.uri().path() {
                "/v1/measure/orders" => Ok(reply(&orders(peer, &script).await)),
                _ => take(request, &script).await,
            }
        }
    });
    // The connection breaks if a test wants that.
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
    assert!(body.len() <= MOST_BYTES, "{}", body.len());
    let poison = script.poison.load(Ordering::SeqCst);
    if reports.done.iter().any(|done| done.id == poison) {
        return Ok(refusal(StatusCode::BAD_REQUEST, "bad_request", "a field is not readable"));
    }
    let accepted = reports.done.len() + reports.received.len() + reports.probed.len();
    // One by one: a busy node reports several at once.
    for done in reports.done {
        let one = Reports { done: vec![done], ..Reports::default() };
        script.reports.send(one).await.unwrap();
    }
    for received in reports.received {
        let one = Reports { received: vec![received], ..Reports::default() };
        script.reports.send(one).await.unwrap();
    }
    for probed in reports.probed {
        let one = Reports { probed: vec![probed], ..Reports::default() };
        script.reports.send(one).await.unwrap();
    }
    Ok(reply(&ReportsReply { accepted: accepted as u64, refused: Vec::new() }))
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Full<Bytes>> {
    let mut answer = reply(&ApiError { code: code.to_owned(), message: message.to_owned() });
    *answer.status_mut() = status;
    answer
}

fn reply(body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    Response::new(Full::new(serde_json::to_vec(body).unwrap().into()))
}
