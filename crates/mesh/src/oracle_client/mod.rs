//! The client of the oracle: HTTP/1.1 inside a channel to the first oracle that answers.

mod connection;
mod error;
mod skew;

pub use error::{Attempt, OracleError};
pub use skew::ClockSkew;

use crate::{Oracle, service::Control};
use bytes::Bytes;
use connection::{Answer, Connection, Way};
use futures_util::future::BoxFuture;
use hyper::{Method, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_base::clock::WallClock;
use thalweg_net::{
    DialOptions, PrivateKey,
    channel::{Connector, Protocol},
};
use thalweg_wire::{
    Signable as _,
    mesh::{
        ApiError, JoinReply, JoinRequest, RevokeReply, RevokeRequest, Roster, StatusReply,
        TokenReply, TokenRequest,
        measure::{CandidatesReply, Orders, PathsReply, Reports, ReportsReply, Strategy},
    },
    stream::plan::{Plan, Reply, Report},
};
use tokio::time::timeout;

/// For an answer, beyond what it was asked to wait: three round trips and a slow disk.
const ANSWER: Duration = Duration::from_secs(15);

/// The greatest answer: a roster in hexadecimal, and what JSON adds.
const MAX_ANSWER: usize = 2 * Roster::MAX_BYTES + 4096;

/// The most pages: a million legs, which 10,000 nodes have with one pair of 100 measured.
const MAX_PAGES: usize = 20;

/// The greatest answer about paths: a full matrix of 500 nodes, 120 bytes of JSON a leg.
const MAX_PATHS: usize = 32 * 1024 * 1024;

/// The code of an oracle's refusal where one of several is elected and it is another.
const NOT_ELECTED: &str = "not_elected";

/// A client of the mesh's oracles, with one of this host's keys; cheap to clone.
///
/// Requests for the roster and the status go over one connection, kept between
/// them; what changes something is asked once, over one of its own, so that it
/// never happens twice.
#[derive(Clone)]
pub struct OracleClient(Arc<Inner>);

struct Inner {
    way: Way,
    clock: WallClock,
    /// Shared with those beside.
    oracles: Arc<Mutex<Vec<Oracle>>>,
    /// Which of them is asked first, counted round.
    first: AtomicUsize,
    kept: Mutex<Option<Connection>>,
    skew: Mutex<Option<ClockSkew>>,
}

impl OracleClient {
    /// A client that proves `key` to these oracles, tried in their order.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(key: &PrivateKey, oracles: Vec<Oracle>, clock: WallClock) -> io::Result<Self> {
        Self::dialling(key, oracles, clock, DialOptions::default())
    }

    /// The same, whose connections are made with these options.
    ///
    /// # Errors
    /// As [`OracleClient::new`].
    pub fn dialling(
        key: &PrivateKey,
        oracles: Vec<Oracle>,
        clock: WallClock,
        dial: DialOptions,
    ) -> io::Result<Self> {
        let way = Way { connector: Connector::new(key)?, dial };
        let (kept, skew) = (Mutex::default(), Mutex::default());
        let oracles = Arc::new(Mutex::new(oracles));
        let first = AtomicUsize::new(0);
        Ok(Self(Arc::new(Inner { way, clock, oracles, first, kept, skew })))
    }

    /// Another client of the same oracles, whose long polls hold another connection.
    #[must_use]
    pub fn beside(&self) -> Self {
        let Inner { way, clock, oracles, .. } = &*self.0;
        let (way, clock, oracles) = (way.clone(), clock.clone(), Arc::clone(oracles));
        let (kept, skew) = (Mutex::default(), Mutex::default());
        let first = AtomicUsize::new(0);
        Self(Arc::new(Inner { way, clock, oracles, first, kept, skew }))
    }

    /// The oracles that are asked.
    pub fn oracles(&self) -> Vec<Oracle> {
        lock(&self.0.oracles).clone()
    }

    /// Asks these from now on. A kept connection to another goes on until it closes.
    pub fn set_oracles(&self, oracles: Vec<Oracle>) {
        *lock(&self.0.oracles) = oracles;
    }

    /// How far this host's clock was off the oracle's at the last answer, if by more
    /// than a minute.
    pub fn skew(&self) -> Option<ClockSkew> {
        *lock(&self.0.skew)
    }

    /// Joins the mesh; the oracle must be the token's.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn join(&self, request: &JoinRequest) -> Result<JoinReply, OracleError> {
        let answer = self.post(Protocol::Join, "/v1/join", request).await?;
        let reply: JoinReply = read(&answer)?;
        self.note(ClockSkew::between(self.0.clock.now(), reply.time));
        Ok(reply)
    }

    /// The signed roster's bytes, once it has a version above `after`; `None` if it has
    /// not after `wait` (whole seconds).
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn roster(&self, after: u64, wait: Duration) -> Result<Option<Bytes>, OracleError> {
        let path = format!("/v1/roster?after={after}&wait_s={}", wait.as_secs());
        let answer = self.get(&path, wait).await?;
        Ok((answer.status != StatusCode::NO_CONTENT).then_some(answer.body))
    }

    /// The oracle's view of the mesh.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn status(&self) -> Result<StatusReply, OracleError> {
        let reply: StatusReply = read(&self.get("/v1/status", Duration::ZERO).await?)?;
        self.note(ClockSkew::between(self.0.clock.now(), reply.time));
        Ok(reply)
    }

    /// A new join token; for admins.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn token(&self, request: &TokenRequest) -> Result<TokenReply, OracleError> {
        read(&self.post(Protocol::Api, "/v1/tokens", request).await?)
    }

    /// Revokes a member; for admins.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<RevokeReply, OracleError> {
        read(&self.post(Protocol::Api, "/v1/revoke", request).await?)
    }

    async fn get(&self, path: &str, wait: Duration) -> Result<Answer, OracleError> {
        self.get_up_to(path, wait, MAX_ANSWER).await
    }

    async fn get_up_to(
        &self,
        path: &str,
        wait: Duration,
        most: usize,
    ) -> Result<Answer, OracleError> {
        self.repeat(|| connection::request(Method::GET, path, Bytes::new()), wait, most).await
    }

    /// Asks what may be asked twice: over the kept connection; once more over a new one if that has gone meanwhile.
    async fn repeat(
        &self,
        request: impl Fn() -> connection::Asked,
        wait: Duration,
        most: usize,
    ) -> Result<Answer, OracleError> {
        let kept = lock(&self.0.kept).take();
        if let Some(mut connection) = kept.filter(Connection::is_open)
            && let Ok(answer) = self.ask(&mut connection, request(), wait, most).await
        {
            *lock(&self.0.kept) = Some(connection);
            return self.judge(answer);
        }
        let mut connection = self.open(Protocol::Api).await?;
        let answer = self.ask(&mut connection, request(), wait, most).await?;
        *lock(&self.0.kept) = Some(connection);
        self.judge(answer)
    }

    async fn post<T: Serialize + Sync>(
        &self,
        protocol: Protocol,
        path: &str,
        body: &T,
    ) -> Result<Answer, OracleError> {
        let body = serde_json::to_vec(body).map_err(|e| OracleError::Broken(e.to_string()))?;
        let mut connection = self.open(protocol).await?;
        let request = connection::request(Method::POST, path, body.into());
        let answer = self.ask(&mut connection, request, Duration::ZERO, MAX_ANSWER).await?;
        self.judge(answer)
    }

    /// A connection to the first oracle that can be reached.
    async fn open(&self, protocol: Protocol) -> Result<Connection, OracleError> {
        let mut tried = Vec::new();
        let mut oracles = self.oracles();
        let first = self.0.first.load(Ordering::Relaxed) % oracles.len().max(1);
        oracles.rotate_left(first);
        for oracle in oracles {
            match Connection::open(&self.0.way, &oracle, protocol).await {
                Ok(connection) => return Ok(connection),
                Err(attempts) => tried.extend(attempts),
            }
        }
        Err(OracleError::Unreachable(tried))
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        request: connection::Asked,
        wait: Duration,
        most: usize,
    ) -> Result<Answer, OracleError> {
        let limit = wait + ANSWER;
        match timeout(limit, connection.ask(request, most)).await {
            Ok(answer) => answer,
            Err(_) => Err(OracleError::Silent(limit)),
        }
    }

    /// An answer of success, or the oracle's refusal.
    fn judge(&self, answer: Answer) -> Result<Answer, OracleError> {
        if let Some(theirs) = answer.date {
            self.note(ClockSkew::between(self.0.clock.now(), theirs));
        }
        if answer.status.is_success() {
            return Ok(answer);
        }
        let error = serde_json::from_slice::<ApiError>(&answer.body);
        let Ok(error) = error else { return Err(OracleError::Status(answer.status.as_u16())) };
        Err(OracleError::Refused(error))
    }

    fn note(&self, skew: Option<ClockSkew>) {
        *lock(&self.0.skew) = skew;
    }
}

/// What nodes and clients ask an oracle about measurements: see [`thalweg_wire::mesh::measure`].
impl OracleClient {
    /// Measurements that this node is to make; none came within `wait` (whole seconds) if empty.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn orders(&self, wait: Duration) -> Result<Orders, OracleError> {
        let path = format!("/v1/measure/orders?wait_s={}", wait.as_secs());
        let mut oracles = self.oracles().len();
        loop {
            match self.get(&path, wait).await.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Tells what was measured, received and seen. Asked once: a report that fails may have
    /// arrived, and the oracle knows an order's second report by its number.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn report(&self, reports: &Reports) -> Result<ReportsReply, OracleError> {
        let path = "/v1/measure/reports";
        let mut oracles = self.oracles().len();
        loop {
            let answer = self.post(Protocol::Api, path, reports).await;
            match answer.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Whether another oracle is elected to do this; then the next one is asked first from now on.
    fn turns(&self, error: &OracleError) -> bool {
        let is_another = matches!(error, OracleError::Refused(e) if e.code == NOT_ELECTED);
        if is_another {
            self.0.first.fetch_add(1, Ordering::Relaxed);
            lock(&self.0.kept).take();
        }
        is_another
    }

    /// At most `m` relays for whoever asks, by this rule or the oracle's own, the better first.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn candidates(
        &self,
        strategy: Option<Strategy>,
        m: usize,
    ) -> Result<CandidatesReply, OracleError> {
        let rule = strategy.map(|s| format!("strategy={}&", word(s))).unwrap_or_default();
        let path = format!("/v1/candidates?{rule}m={m}");
        read(&self.get(&path, Duration::ZERO).await?)
    }

    /// All that the oracle knows of paths, page by page; the first `MAX_PAGES` of them.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn paths(&self) -> Result<PathsReply, OracleError> {
        let mut all: PathsReply = self.page(None).await?;
        for _ in 1..MAX_PAGES {
            let Some(after) = all.next.take() else { break };
            let page = self.page(Some(after)).await?;
            if page.nodes != all.nodes {
                // Somebody came or went: the indices may mean others. What came so far is sound.
                break;
            }
            all.legs.extend(page.legs);
            all.next = page.next;
        }
        Ok(all)
    }

    async fn page(&self, after: Option<u64>) -> Result<PathsReply, OracleError> {
        let after = after.map(|after| format!("?after={after}")).unwrap_or_default();
        read(&self.get_up_to(&format!("/v1/paths{after}"), Duration::ZERO, MAX_PATHS).await?)
    }
}

/// What nodes ask an oracle about streams: see [`thalweg_wire::stream::plan`].
impl OracleClient {
    /// Reports this node's streams. A report replaces the last one, so it may arrive twice.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn report_streams(&self, report: &Report) -> Result<Reply, OracleError> {
        let body = serde_json::to_vec(report).map_err(|e| OracleError::Broken(e.to_string()))?;
        let body = Bytes::from(body);
        let request = || connection::request(Method::POST, "/v1/streams/report", body.clone());
        let mut oracles = self.oracles().len();
        loop {
            let answer = self.repeat(request, Duration::ZERO, MAX_ANSWER).await;
            match answer.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// This node's plan for streams, once it has another version than `after`; `None` if it has not after `wait` (whole
    /// seconds).
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn stream_plan(
        &self,
        after: u64,
        wait: Duration,
    ) -> Result<Option<Plan>, OracleError> {
        let path = format!("/v1/streams/plan?after={after}&wait_s={}", wait.as_secs());
        let mut oracles = self.oracles().len();
        loop {
            match self.get(&path, wait).await {
                Ok(answer) if answer.status == StatusCode::NO_CONTENT => return Ok(None),
                Ok(answer) => return read(&answer).map(Some),
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, OracleError> {
    serde_json::from_slice(&answer.body).map_err(|e| OracleError::Broken(e.to_string()))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only whole values are put in.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for OracleClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OracleClient").field("oracles", &self.oracles()).finish_non_exhaustive()
    }
}

const fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Oblivious => "oblivious",
        Strategy::Balanced => "balanced",
        Strategy::Specific => "specific",
        Strategy::LoadAware => "load_aware",
    }
}

impl Control for OracleClient {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async move { Ok(Self::token(self, &request).await?) })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(async move { Ok(Self::revoke(self, &request).await?) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async move { Ok(Self::status(self).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_asked_for_by_the_word_that_its_json_has() {
        for rule in
            [Strategy::Oblivious, Strategy::Balanced, Strategy::Specific, Strategy::LoadAware]
        {
            assert_eq!(serde_json::to_value(rule).unwrap(), word(rule));
        }
    }
}
