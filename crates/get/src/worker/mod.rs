//! The task of one path, with its one connection.
//!
//! A path begins in one of four ways ([`Start`]): it requests the first bytes, which also determine the object; if it
//! is the only path, it requests all bytes; it requests one byte, only to determine the object; or it only connects, so
//! that it can request its share as soon as the object is known.

mod body;
mod first_request;
mod inquiry;
mod second_request;
mod segments;

pub(super) use body::Body;
pub(super) use first_request::{HEAD, pause};

use super::{
    HttpSettings, IdleConnections, PathError,
    cookies::Cookies,
    digest_login::{DigestLogins, MAX_REPEATS},
    facts::Connections,
    http::Connection,
    many::wall_time,
    resource::{Answer, Resource, has_odd_framing},
    server::ServerTraits,
};
use body::drain;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION},
};
use inquiry::ONE_BYTE;
use second_request::{DueRequest, EarlyRequest, spare_connection};
use segments::UnreadAnswer;
use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use thalweg_net::Route;
use thalweg_paths::url::HttpUrl;
use thalweg_units::PathId;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// How long reading the rest of a body may take, before the next order.
const TAIL_PATIENCE: Duration = Duration::from_secs(2);

/// The state that all paths of one download share.
pub(super) struct DownloadState {
    pub(super) web: HttpSettings,
    /// The URL as the user gave it; only its origin gets the user's fields.
    pub(super) url: HttpUrl,
    pub(super) fields: HeaderMap,
    /// How long a path may take until its first answer, dialling and redirects included.
    pub(super) patience: Duration,
    /// The same for the whole file in one answer.
    pub(super) plain_patience: Duration,
    /// Whether the server serves only one range for each request.
    pub(super) one_by_one: AtomicBool,
    /// Connections of earlier downloads; this download leaves its own there.
    pub(super) kept: Arc<IdleConnections>,
    /// How long paths that only connect wait first ([`Start::Connect`]).
    pub(super) head_start: Duration,
    /// What is known about the server.
    pub(super) server: Arc<ServerTraits>,
    /// The cookies that servers have set in this call.
    pub(super) cookies: Arc<Cookies>,
    /// The challenges of servers that take Digest logins.
    pub(super) logins: Arc<DigestLogins>,
    /// Whether only the whole is requested, without ranges.
    pub(super) is_plain: bool,
    /// Whether the user gave a digest of the whole.
    pub(super) is_verifiable: bool,
    /// Whether only that digest verifies the object, and the versions in the answers are ignored.
    pub(super) by_hash: bool,
    /// Whether a segment was received as requested.
    pub(super) served_segment: AtomicBool,
    /// Whether the server serves ranges, according to an answer.
    pub(super) offers_ranges: AtomicBool,
    /// Whether the first answer was shorter than requested.
    pub(super) is_clamped: AtomicBool,
    /// Whether the server closes each connection after one answer.
    pub(super) closes: AtomicBool,
    /// How long a path may be silent.
    pub(super) stall: Duration,
    /// Whether this is the only path left, of any server. It may then be silent for longer.
    pub(super) is_alone: AtomicBool,
    /// The connections whose counters are read.
    pub(super) connections: Arc<Connections>,
}

/// How a path's task begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Requests these bytes. The answer has them, if the object does, and determines the object.
    Bytes(Range<u64>),
    /// Requests the object without a range; the answer has its bytes and metadata.
    Whole,
    /// Requests one byte, to determine the object.
    Probe,
    /// Connects, and waits for orders.
    Connect,
    /// Waits for orders.
    Wait,
}

/// A report of a path.
pub(super) enum Report {
    /// The connection is open; dialling took this long.
    Connected(Duration),
    /// The server asked to wait this long before the first request is repeated.
    Waiting(StatusCode, Duration),
    /// The first answer, with its body if that is the object.
    Answered(Box<Answer>, Option<Body>),
    /// The time from dialling to the first answer, idle time excluded.
    Setup(Duration),
    /// The request for the ordered range was sent.
    Sent,
    /// The object's URL had expired, and the original one led to this.
    Moved(Arc<Resource>),
    /// The next ordered bytes and their position. Never more than ordered.
    Data(u64, Bytes),
    /// This many bytes of a multipart part were received and are not verified yet.
    Held(u64),
    /// As `Data`, for bytes that were reported as `Held`.
    Verified(u64, Bytes),
    /// This many bytes were received or in flight and are no longer needed. Of a longer answer, the length of a first
    /// request is assumed.
    Unused(u64),
    /// The path failed, and its task has ended.
    Failed(PathError),
}

/// A report and its sender.
pub(super) struct Message {
    pub(super) path: PathId,
    /// The number of the path's task; a stopped one may still have sent reports.
    pub(super) session: u32,
    pub(super) report: Report,
}

/// An order to a path.
pub(super) enum Order {
    /// Determine the object.
    Probe,
    /// Fetch these bytes, in this order.
    Fetch {
        /// At least one range; no range is empty.
        ranges: Vec<Range<u64>>,
        /// The resource that the answers must agree with.
        resource: Arc<Resource>,
    },
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPurpose {
    /// To determine the object: the head of the answer may take this long, not counting connection set-up.
    First(Duration),
    /// To fetch an assigned range.
    Ordered,
    /// Any other purpose, such as following a redirect.
    Other,
}

/// One task, which is aborted on drop.
type Spare = JoinSet<Result<Connection, PathError>>;

/// The task of one path. When it ends, it closes the connection or leaves it to later downloads.
pub(super) struct Worker {
    pub(super) shared: Arc<DownloadState>,
    pub(super) path: PathId,
    pub(super) session: u32,
    pub(super) route: Route,
    /// The URL that this path asks first: the download's, or its mirror's.
    pub(super) url: HttpUrl,
    pub(super) reports: mpsc::Sender<Message>,
    pub(super) line: PathConnection,
}

/// The state of a path's connection.
#[derive(Default)]
pub(super) struct PathConnection {
    connection: Option<Connection>,
    /// The server of the connection.
    origin: Option<HttpUrl>,
    /// An answer that was not read yet.
    pending: Option<UnreadAnswer>,
    /// Whether the server closes this connection after its first answer.
    closes: bool,
    /// The request that follows the pending answer.
    ahead: Option<EarlyRequest>,
    /// The same, before it is sent.
    due: Option<DueRequest>,
    /// A connection for the next request, being opened because the server closes each connection.
    spare: Option<Spare>,
    /// How long the last dial took; `None` once it was reported.
    dialled: Option<Duration>,
    /// Whether the time of the first answer was reported.
    set_up: bool,
    /// Whether the URL may be refreshed: bytes were received since the last refresh.
    may_refresh: bool,
}

impl Worker {
    /// Begins as `start` says, then carries out orders until there are no more, or one fails.
    pub(super) async fn run(mut self, start: Start, mut orders: mpsc::Receiver<Order>) {
        match self.work(start, &mut orders).await {
            Ok(()) => self.leave(),
            Err(error) => {
                self.line = PathConnection::default();
                self.tell(Report::Failed(error)).await;
            }
        }
    }

    async fn work(
        &mut self,
        start: Start,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), PathError> {
        self.line.may_refresh = true;
        match start {
            Start::Bytes(range) => self.discover(Some(range)).await?,
            Start::Whole => self.discover(None).await?,
            Start::Probe => self.discover(Some(ONE_BYTE)).await?,
            Start::Connect => self.connect().await?,
            Start::Wait => {}
        }
        while let Some(order) = orders.recv().await {
            match order {
                Order::Probe => self.discover(Some(ONE_BYTE)).await?,
                Order::Fetch { ranges, resource } => self.fetch(ranges, resource).await?,
            }
        }
        Ok(())
    }

    async fn tell(&self, report: Report) {
        let message = Message { path: self.path, session: self.session, report };
        // The receiver is gone only if the task is about to be stopped.
        _ = self.reports.send(message).await;
    }

    fn fields_for(&self, url: &HttpUrl) -> HeaderMap {
        let shared = &self.shared;
        let mut fields = shared.web.fields_for(&shared.url, url, &shared.fields);
        shared.cookies.add_to(&mut fields, url, wall_time());
        fields
    }

    /// Connects to the server of the path's URL.
    async fn connect(&mut self) -> Result<(), PathError> {
        let (patience, url) = (self.shared.patience, self.url.clone());
        sleep(self.shared.head_start).await;
        let connection = timeout(patience, self.open(&url)).await;
        let (connection, _) = connection.unwrap_or(Err(PathError::Silent(patience)))?;
        self.line.connection = Some(connection);
        let took = self.line.dialled.unwrap_or_default();
        self.tell(Report::Connected(took)).await;
        Ok(())
    }

    /// Takes or opens a connection to the server of `url`. Returns true if it was opened earlier.
    async fn open(&mut self, url: &HttpUrl) -> Result<(Connection, bool), PathError> {
        let began = Instant::now();
        if let Some(connection) = self.take_spare(url).await {
            self.line.dialled = Some(began.elapsed());
            self.shared.connections.watch(self.path, connection.monitor());
            return Ok((connection, true));
        }
        self.line.origin = Some(url.clone());
        let (web, kept) = (&self.shared.web, &self.shared.kept);
        let opened = match kept.take(&self.route, url, web.version) {
            Some(connection) => (connection, true),
            None => (Connection::open(web, &self.route, url).await?, false),
        };
        self.line.dialled = Some(began.elapsed());
        self.shared.connections.watch(self.path, opened.0.monitor());
        Ok(opened)
    }

    /// Opens a connection for the next request if the server closes the current one.
    fn open_spare(&mut self, url: &HttpUrl) {
        let is_of_use = self.line.closes && !self.shared.server.is_asked_in_turn();
        if is_of_use && self.line.spare.is_none() {
            let (web, route, url) = (self.shared.web.clone(), self.route.clone(), url.clone());
            let mut spare = JoinSet::new();
            spare.spawn(async move { Connection::open(&web, &route, &url).await });
            self.line.spare = Some(spare);
        }
    }

    /// The spare connection, if it leads to the server of `url` and is open.
    async fn take_spare(&mut self, url: &HttpUrl) -> Option<Connection> {
        let spare = self.line.spare.take().filter(|_| self.leads_to(url));
        spare_connection(spare).await
    }

    /// Whether this path's connections lead to the server of `url`.
    fn leads_to(&self, url: &HttpUrl) -> bool {
        self.line.origin.as_ref().is_some_and(|o| o.same_origin(url))
    }

    /// The current connection, if it leads to the server of `url` and is open.
    fn reuse(&mut self, url: &HttpUrl) -> Option<Connection> {
        let leads = self.leads_to(url);
        self.line.connection.take().filter(|c| leads && c.is_open())
    }

    /// Sends `request` to the server of `url` and waits for the head of its answer. An open connection is used first.
    /// If the server has closed it, or the answer on it cannot be read, that is not a failure: the request is repeated
    /// on a new connection. A Digest challenge is answered.
    async fn send(
        &mut self,
        url: &HttpUrl,
        request: &Request<Empty<Bytes>>,
        what: RequestPurpose,
    ) -> Result<Response<Incoming>, PathError> {
        let mut request = request.clone();
        if self.shared.server.refuses_identity() {
            request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let mut challenges = 0;
        loop {
            let (mut connection, reused) = match self.reuse(url) {
                Some(connection) => (connection, true),
                None => self.open(url).await?,
            };
            if what == RequestPurpose::Ordered {
                self.tell(Report::Sent).await;
            }
            let asked = Instant::now();
            let signed = self.signed(url, &request);
            let answer = connection.ask(signed.clone());
            let answer = match what {
                RequestPurpose::First(most) => {
                    timeout(most, answer).await.unwrap_or(Err(PathError::Silent(most)))
                }
                RequestPurpose::Ordered | RequestPurpose::Other => answer.await,
            };
            match answer {
                // Only the first answer of a connection is rewritten.
                Ok(response) if reused && has_odd_framing(response.headers()) => {}
                Ok(response) => {
                    self.line.connection = Some(connection);
                    self.line.closes = closes(&response);
                    if what == RequestPurpose::Ordered {
                        self.open_spare(url);
                    }
                    self.shared.cookies.learn(url, response.headers(), wall_time());
                    self.note_setup(asked.elapsed()).await;
                    if !self.is_challenge(url, &signed, &response) || challenges == MAX_REPEATS {
                        return Ok(response);
                    }
                    challenges += 1;
                    self.settle(response.into_body()).await;
                }
                // Too many interim answers do not mean that an idle connection was closed.
                Err(PathError::NoAnswer(_) | PathError::NotHttp(_) | PathError::BadLength(_))
                    if reused => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The request with a Digest login, if the server wants one. The user's own `Authorization` is kept.
    fn signed(&self, url: &HttpUrl, request: &Request<Empty<Bytes>>) -> Request<Empty<Bytes>> {
        let mut request = request.clone();
        if !self.shared.fields.contains_key(AUTHORIZATION) {
            self.shared.logins.sign(url, &mut request);
        }
        request
    }

    /// Whether to repeat the request with a Digest login.
    fn is_challenge(
        &self,
        url: &HttpUrl,
        sent: &Request<Empty<Bytes>>,
        answer: &Response<Incoming>,
    ) -> bool {
        !self.shared.fields.contains_key(AUTHORIZATION)
            && self.shared.logins.learn(url, sent, answer.status(), answer.headers())
    }

    /// Keeps the connection if the rest of the body is short. Errors in the rest are ignored.
    async fn settle(&mut self, body: Incoming) {
        if !matches!(timeout(TAIL_PATIENCE, drain(body)).await, Ok(Ok(true))) {
            self.line.connection = None;
        }
    }

    /// Reports, once, the time from dialling to the path's first answer.
    async fn note_setup(&mut self, asked: Duration) {
        if !std::mem::replace(&mut self.line.set_up, true) {
            let dialled = self.line.dialled.take().unwrap_or_default();
            self.tell(Report::Setup(dialled + asked)).await;
        }
    }

    /// Leaves the connection to later downloads if no answer on it is unread.
    fn leave(mut self) {
        let unread = self.line.pending.is_some();
        if let (Some(connection), Some(origin), false) =
            (self.line.connection.take(), self.line.origin.take(), unread)
        {
            self.shared.kept.give(&self.route, &origin, self.shared.web.version, connection);
        }
    }
}

/// Whether the connection ends with this answer (RFC 9112 §9.3).
fn closes(answer: &Response<Incoming>) -> bool {
    let has = |option: &str| {
        let fields = answer.headers().get_all(CONNECTION).iter().filter_map(|f| f.to_str().ok());
        fields.flat_map(|f| f.split(',')).any(|o| o.trim().eq_ignore_ascii_case(option))
    };
    has("close") || (answer.version() == Version::HTTP_10 && !has("keep-alive"))
}
