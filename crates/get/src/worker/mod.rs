//! The task of one path, with its one connection.
//!
//! A path begins in one of four ways ([`Start`]): it asks for the first bytes, which also
//! say what the object is; where it is the only path, it asks for all of them; it asks for one byte, for what the object is
//! alone; or it only connects, so that it can ask for its share at once when the object is known.

mod beside;
mod body;
mod first;
mod inquiry;
mod segments;

pub(super) use body::Body;
pub(super) use first::{HEAD, pause};

use super::{
    Kept, PathError, Web,
    cookies::Cookies,
    digest_login::{DigestLogins, MAX_REPEATS},
    http::Connection,
    many::wall_time,
    resource::{Answer, Resource, has_odd_framing},
    server::ServerTraits,
};
use beside::{Ahead, Due, opened};
use body::drain;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION},
};
use inquiry::ONE_BYTE;
use segments::Pending;
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

/// How long the rest of a body may take to be read away; the next order waits meanwhile.
const TAIL_PATIENCE: Duration = Duration::from_secs(2);

/// What all paths of one download share.
pub(super) struct Shared {
    pub(super) web: Web,
    /// The URL as the user gave it; only its origin gets the user's fields.
    pub(super) url: HttpUrl,
    pub(super) fields: HeaderMap,
    /// How long a path may take until its first answer, dialling and redirects included.
    pub(super) patience: Duration,
    /// The same for the whole file in one answer.
    pub(super) plain_patience: Duration,
    /// The server wants its ranges one by one.
    pub(super) one_by_one: AtomicBool,
    /// Connections of earlier downloads, and the place for ours.
    pub(super) kept: Arc<Kept>,
    /// So long paths wait that are only to connect ([`Start::Connect`]).
    pub(super) head_start: Duration,
    /// What is known of the server.
    pub(super) server: Arc<ServerTraits>,
    /// The cookies that servers have set in this call.
    pub(super) cookies: Arc<Cookies>,
    /// The challenges of servers that take Digest logins.
    pub(super) logins: Arc<DigestLogins>,
    /// Only the whole is asked for, without ranges.
    pub(super) is_plain: bool,
    /// The user has said what the whole hashes to.
    pub(super) is_verifiable: bool,
    /// That alone judges: what answers call their version is not looked at.
    pub(super) by_hash: bool,
    /// A segment came as it was asked for.
    pub(super) served_segment: AtomicBool,
    /// The server serves ranges, as an answer shows or says.
    pub(super) offers_ranges: AtomicBool,
    /// The first answer held less than was asked for.
    pub(super) is_clamped: AtomicBool,
    /// The server closes each connection after one answer.
    pub(super) closes: AtomicBool,
    /// How long a path may be silent.
    pub(super) stall: Duration,
    /// Whether this is the only path left, of any server. It may then be silent for longer.
    pub(super) is_alone: AtomicBool,
}

/// How a path's task begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Asks for these bytes: they come, if the object has them, and say what it is.
    Bytes(Range<u64>),
    /// Requests the object without a range; the answer has its bytes and metadata.
    Whole,
    /// Asks for one byte, to know what the object is.
    Probe,
    /// Connects, and waits for orders.
    Connect,
    /// Waits for orders.
    Wait,
}

/// What a path tells.
pub(super) enum Report {
    /// The connection stands; dialling took so long.
    Connected(Duration),
    /// The server asked to wait so long before the first question is put again.
    Waiting(StatusCode, Duration),
    /// The first answer; with its body if that is the object.
    Answered(Box<Answer>, Option<Body>),
    /// The first answer came so long after dialling began, idle time left out.
    Setup(Duration),
    /// The request for the ordered range is on its way.
    Sent,
    /// The object's URL had expired; the original one led to this.
    Moved(Arc<Resource>),
    /// The next bytes that were ordered, and where they belong; never more.
    Data(u64, Bytes),
    /// So many bytes came in a list's part, and are not to be believed yet.
    Held(u64),
    /// As `Data`, of bytes that were held.
    Verified(u64, Bytes),
    /// This many bytes were received or in flight and are no longer requested. Of a longer answer, the length of a
    /// first request is assumed.
    Unused(u64),
    /// It is over; the task has ended.
    Failed(PathError),
}

/// A report and who sends it.
pub(super) struct Message {
    pub(super) path: PathId,
    /// Which of the path's tasks; a stopped one may still have sent some.
    pub(super) session: u32,
    pub(super) report: Report,
}

/// What a path is to do next.
pub(super) enum Order {
    /// Find out what the object is.
    Probe,
    /// Fetch these bytes, in this order.
    Fetch {
        /// Not empty, none empty.
        ranges: Vec<Range<u64>>,
        /// What the answers must agree with.
        resource: Arc<Resource>,
    },
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// To learn what the object is: the head of the answer may take this long, not counting connection set-up.
    First(Duration),
    /// To fetch an assigned range.
    Ordered,
    /// Any other purpose, such as following a redirect.
    Other,
}

/// One task, which ends with this.
type Spare = JoinSet<Result<Connection, PathError>>;

/// One path's task. Its end closes the connection, or leaves it to later downloads.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) path: PathId,
    pub(super) session: u32,
    pub(super) route: Route,
    /// The URL that this path asks first: the download's, or its mirror's.
    pub(super) url: HttpUrl,
    pub(super) reports: mpsc::Sender<Message>,
    pub(super) line: Line,
}

/// What a path's task holds of its connection.
#[derive(Default)]
pub(super) struct Line {
    connection: Option<Connection>,
    /// The server that it leads to.
    origin: Option<HttpUrl>,
    /// An answer that is there and was not read yet.
    pending: Option<Pending>,
    /// The server closes this connection after its first answer.
    closes: bool,
    /// The request that follows the pending answer.
    ahead: Option<Ahead>,
    /// The same, before it is made.
    due: Option<Due>,
    /// A connection for the next request to a server that closes each connection, being opened.
    spare: Option<Spare>,
    /// How long the last dial took; `None` once it was told.
    dialled: Option<Duration>,
    /// The first answer's time was told.
    set_up: bool,
    /// The URL may be asked for anew: bytes came since that was done last.
    may_refresh: bool,
}

impl Worker {
    /// Begins as `start` says, then does what is ordered until there are no more orders, or
    /// something fails.
    pub(super) async fn run(mut self, start: Start, mut orders: mpsc::Receiver<Order>) {
        match self.work(start, &mut orders).await {
            Ok(()) => self.leave(),
            Err(error) => {
                self.line = Line::default();
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
        // Nobody listens any more: the task is about to be stopped.
        _ = self.reports.send(message).await;
    }

    fn fields_for(&self, url: &HttpUrl) -> HeaderMap {
        let shared = &self.shared;
        let mut fields = shared.web.fields_for(&shared.url, url, &shared.fields);
        shared.cookies.add_to(&mut fields, url, wall_time());
        fields
    }

    /// Connects to the server of the URL that this path asks first.
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

    /// A connection to the server of `url`; true if it was used before.
    async fn open(&mut self, url: &HttpUrl) -> Result<(Connection, bool), PathError> {
        let began = Instant::now();
        if let Some(connection) = self.take_spare(url).await {
            self.line.dialled = Some(began.elapsed());
            return Ok((connection, true));
        }
        self.line.origin = Some(url.clone());
        let (web, kept) = (&self.shared.web, &self.shared.kept);
        let opened = match kept.take(&self.route, url, web.version) {
            Some(connection) => (connection, true),
            None => (Connection::open(web, &self.route, url).await?, false),
        };
        self.line.dialled = Some(began.elapsed());
        Ok(opened)
    }

    /// Opens a connection for the request after this one if the server closes the one there is.
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
        opened(spare).await
    }

    /// Whether this path's connections lead to the server of `url`.
    fn leads_to(&self, url: &HttpUrl) -> bool {
        self.line.origin.as_ref().is_some_and(|o| o.same_origin(url))
    }

    /// The connection there is, if it leads to the server of `url` and is open.
    fn reuse(&mut self, url: &HttpUrl) -> Option<Connection> {
        let leads = self.leads_to(url);
        self.line.connection.take().filter(|c| leads && c.is_open())
    }

    /// Sends `request` to the server of `url` and waits for the head of its answer. An open
    /// connection is used first. If the server has closed it, or the answer on it cannot be read,
    /// that is not a failure: the request is repeated on a new connection. A Digest challenge is answered.
    async fn send(
        &mut self,
        url: &HttpUrl,
        request: &Request<Empty<Bytes>>,
        what: Ask,
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
            if what == Ask::Ordered {
                self.tell(Report::Sent).await;
            }
            let asked = Instant::now();
            let signed = self.signed(url, &request);
            let answer = connection.ask(signed.clone());
            let answer = match what {
                Ask::First(most) => {
                    timeout(most, answer).await.unwrap_or(Err(PathError::Silent(most)))
                }
                Ask::Ordered | Ask::Other => answer.await,
            };
            match answer {
                // Only the first answer of a connection is rewritten.
                Ok(response) if reused && has_odd_framing(response.headers()) => {}
                Ok(response) => {
                    self.line.connection = Some(connection);
                    self.line.closes = closes(&response);
                    if what == Ask::Ordered {
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
                // A flood of interim answers is none of an idle connection's ends.
                Err(PathError::NoAnswer(_) | PathError::NotHttp(_) | PathError::BadLength(_))
                    if reused => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The request with a Digest login, if the server wants one. What the user wrote himself stays.
    fn signed(&self, url: &HttpUrl, request: &Request<Empty<Bytes>>) -> Request<Empty<Bytes>> {
        let mut request = request.clone();
        if !self.shared.fields.contains_key(AUTHORIZATION) {
            self.shared.logins.sign(url, &mut request);
        }
        request
    }

    /// Whether the request is to be repeated with a Digest login.
    fn is_challenge(
        &self,
        url: &HttpUrl,
        sent: &Request<Empty<Bytes>>,
        answer: &Response<Incoming>,
    ) -> bool {
        !self.shared.fields.contains_key(AUTHORIZATION)
            && self.shared.logins.learn(url, sent, answer.status(), answer.headers())
    }

    /// All that was wanted of a body is there: the connection goes on if the
    /// body ends soon. Whatever is wrong with the tail harms nothing.
    async fn settle(&mut self, body: Incoming) {
        if !matches!(timeout(TAIL_PATIENCE, drain(body)).await, Ok(Ok(true))) {
            self.line.connection = None;
        }
    }

    /// Tells, once, how long the path took from dialling to its first answer.
    async fn note_setup(&mut self, asked: Duration) {
        if !std::mem::replace(&mut self.line.set_up, true) {
            let dialled = self.line.dialled.take().unwrap_or_default();
            self.tell(Report::Setup(dialled + asked)).await;
        }
    }

    /// Leaves a connection on which nothing is under way to later downloads.
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
