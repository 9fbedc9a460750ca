//! The client of the oracle: HTTP/1.1 inside a channel to the first oracle that answers.

mod connection;
mod error;
mod skew;

pub use error::{Attempt, OracleError};
pub use skew::ClockSkew;

use crate::{Oracle, service::Control};
use bytes::Bytes;
use connection::{ConnectSettings, Connection, OracleAnswer};
use futures_util::future::BoxFuture;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt, io,
    sync::{
        Arc,
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
        AddressesReply, AddressesRequest, ApiError, JoinReply, JoinRequest, ReachReply,
        ReachRequest, RevokeReply, RevokeRequest, Roster, RosterRank, StatusReply, TokenReply,
        TokenRequest,
        measure::{CandidatesReply, Orders, PathsReply, Reports, ReportsReply, Strategy},
    },
    stream::plan::{Plan, Reply, Report},
};
use tokio::time::timeout;

/// How long an answer may take, beyond the wait that was asked for: three round trips and a slow disk.
const ANSWER: Duration = Duration::from_secs(15);

/// The largest answer, bytes: a roster in hexadecimal, and what JSON adds.
const MAX_ANSWER: usize = 2 * Roster::MAX_BYTES + 4096;

/// The most pages: a million legs, as many as 10,000 nodes have if one pair in 100 is measured.
const MAX_PAGES: usize = 20;

/// The largest answer about paths, bytes: a full matrix of 500 nodes, with 120 bytes of JSON per leg.
const MAX_PATHS: usize = 32 * 1024 * 1024;

/// The code with which an oracle refuses if another one is elected.
const NOT_ELECTED: &str = "not_elected";

/// A client of the mesh's oracles, with one of this host's keys; cheap to clone.
///
/// Requests for the roster and the status go over one connection, which is kept between them. A request that changes
/// something is sent once, over a connection of its own, so that it never takes effect twice.
#[derive(Clone)]
pub struct OracleClient(Arc<Inner>);

struct Inner {
    settings: ConnectSettings,
    clock: WallClock,
    /// Shared with the clients that [`OracleClient::beside`] created.
    oracles: Arc<Mutex<Vec<Oracle>>>,
    /// The index of the oracle that is asked first, modulo their number.
    first: AtomicUsize,
    kept: Mutex<Option<Connection>>,
    skew: Mutex<Option<ClockSkew>>,
}

impl OracleClient {
    /// Creates a client that proves `key` to these oracles, which are tried in order.
    ///
    /// # Errors
    /// TLS does not accept the key; not expected.
    pub fn new(key: &PrivateKey, oracles: Vec<Oracle>, clock: WallClock) -> io::Result<Self> {
        Self::with_dial_options(key, oracles, clock, DialOptions::default())
    }

    /// As [`OracleClient::new`], with these options for connections.
    ///
    /// # Errors
    /// As [`OracleClient::new`].
    pub fn with_dial_options(
        key: &PrivateKey,
        oracles: Vec<Oracle>,
        clock: WallClock,
        dial: DialOptions,
    ) -> io::Result<Self> {
        let settings = ConnectSettings { connector: Connector::new(key)?, dial };
        let (kept, skew) = (Mutex::default(), Mutex::default());
        let oracles = Arc::new(Mutex::new(oracles));
        let first = AtomicUsize::new(0);
        Ok(Self(Arc::new(Inner { settings, clock, oracles, first, kept, skew })))
    }

    /// Another client of the same oracles, whose long polls use another connection.
    #[must_use]
    pub fn beside(&self) -> Self {
        let Inner { settings, clock, oracles, .. } = &*self.0;
        let (settings, clock, oracles) = (settings.clone(), clock.clone(), Arc::clone(oracles));
        let (kept, skew) = (Mutex::default(), Mutex::default());
        let first = AtomicUsize::new(0);
        Self(Arc::new(Inner { settings, clock, oracles, first, kept, skew }))
    }

    /// The oracles that are asked.
    pub fn oracles(&self) -> Vec<Oracle> {
        self.0.oracles.lock().clone()
    }

    /// Sets the oracles. A kept connection to another one is used until it closes.
    pub fn set_oracles(&self, oracles: Vec<Oracle>) {
        *self.0.oracles.lock() = oracles;
    }

    /// How far this host's clock was off the oracle's at the last answer, if by more than a minute.
    pub fn skew(&self) -> Option<ClockSkew> {
        *self.0.skew.lock()
    }

    /// Joins the mesh; the oracle must be the token's.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn join(&self, request: &JoinRequest) -> Result<JoinReply, OracleError> {
        let answer = self.post(Protocol::Join, "/v1/join", request).await?;
        let reply: JoinReply = read(&answer)?;
        self.set_skew(ClockSkew::between(self.0.clock.now(), reply.time));
        Ok(reply)
    }

    /// The bytes of the signed roster, once it ranks above `after`; `None` if that does not happen within `wait` (whole
    /// seconds).
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn roster(
        &self,
        after: Option<RosterRank>,
        wait: Duration,
    ) -> Result<Option<Bytes>, OracleError> {
        let RosterRank { endorsement, version } =
            after.unwrap_or(RosterRank { endorsement: 0, version: 0 });
        let wait_s = wait.as_secs();
        let path = format!("/v1/roster?after={version}&key={endorsement}&wait_s={wait_s}");
        let answer = self.get(&path, wait).await?;
        Ok((answer.status != StatusCode::NO_CONTENT).then_some(answer.body))
    }

    /// The oracle's view of the mesh.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn status(&self) -> Result<StatusReply, OracleError> {
        let reply: StatusReply = read(&self.get("/v1/status", Duration::ZERO).await?)?;
        self.set_skew(ClockSkew::between(self.0.clock.now(), reply.time));
        Ok(reply)
    }

    /// Requests a join token; for admins.
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

    /// Replaces the addresses of this host in the roster.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn set_addresses(
        &self,
        request: &AddressesRequest,
    ) -> Result<AddressesReply, OracleError> {
        read(&self.post(Protocol::Api, "/v1/addresses", request).await?)
    }

    /// States the relays through which this node is reached; for the keys of nodes.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn reach(&self, request: &ReachRequest) -> Result<ReachReply, OracleError> {
        read(&self.post(Protocol::Api, "/v1/reach", request).await?)
    }

    async fn get(&self, path: &str, wait: Duration) -> Result<OracleAnswer, OracleError> {
        self.get_up_to(path, wait, MAX_ANSWER).await
    }

    async fn get_up_to(
        &self,
        path: &str,
        wait: Duration,
        most: usize,
    ) -> Result<OracleAnswer, OracleError> {
        self.repeat(|| connection::request(Method::GET, path, Bytes::new()), wait, most).await
    }

    /// Sends a request that may be sent twice: over the kept connection, and over a new one if that fails.
    async fn repeat(
        &self,
        request: impl Fn() -> connection::OracleRequest,
        wait: Duration,
        most: usize,
    ) -> Result<OracleAnswer, OracleError> {
        let kept = self.0.kept.lock().take();
        if let Some(mut connection) = kept.filter(Connection::is_open)
            && let Ok(answer) = self.ask(&mut connection, request(), wait, most).await
        {
            *self.0.kept.lock() = Some(connection);
            return self.check(answer);
        }
        let mut connection = self.open(Protocol::Api).await?;
        let answer = self.ask(&mut connection, request(), wait, most).await?;
        *self.0.kept.lock() = Some(connection);
        self.check(answer)
    }

    async fn post<T: Serialize + Sync>(
        &self,
        protocol: Protocol,
        path: &str,
        body: &T,
    ) -> Result<OracleAnswer, OracleError> {
        let body = serde_json::to_vec(body).map_err(|e| OracleError::Broken(e.to_string()))?;
        let mut connection = self.open(protocol).await?;
        let request = connection::request(Method::POST, path, body.into());
        let answer = self.ask(&mut connection, request, Duration::ZERO, MAX_ANSWER).await?;
        self.check(answer)
    }

    /// Has the next request go to the next oracle, so that one that is not honest cannot keep the others' rosters away.
    pub fn ask_next_oracle(&self) {
        self.0.first.fetch_add(1, Ordering::Relaxed);
        self.0.kept.lock().take();
    }

    /// Connects to the first oracle that can be reached.
    async fn open(&self, protocol: Protocol) -> Result<Connection, OracleError> {
        let mut tried = Vec::new();
        let mut oracles = self.oracles();
        let first = self.0.first.load(Ordering::Relaxed) % oracles.len().max(1);
        oracles.rotate_left(first);
        for oracle in oracles {
            match Connection::open(&self.0.settings, &oracle, protocol).await {
                Ok(connection) => return Ok(connection),
                Err(attempts) => tried.extend(attempts),
            }
        }
        Err(OracleError::Unreachable(tried))
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        request: connection::OracleRequest,
        wait: Duration,
        most: usize,
    ) -> Result<OracleAnswer, OracleError> {
        let limit = wait + ANSWER;
        match timeout(limit, connection.ask(request, most)).await {
            Ok(answer) => answer,
            Err(_) => Err(OracleError::Silent(limit)),
        }
    }

    /// A successful answer, or the oracle's refusal as an error.
    fn check(&self, answer: OracleAnswer) -> Result<OracleAnswer, OracleError> {
        if let Some(theirs) = answer.date {
            self.set_skew(ClockSkew::between(self.0.clock.now(), theirs));
        }
        if answer.status.is_success() {
            return Ok(answer);
        }
        let error = serde_json::from_slice::<ApiError>(&answer.body);
        let Ok(error) = error else { return Err(OracleError::Status(answer.status.as_u16())) };
        Err(OracleError::Refused(error))
    }

    fn set_skew(&self, skew: Option<ClockSkew>) {
        *self.0.skew.lock() = skew;
    }
}

/// Requests of nodes and clients about measurements: see [`thalweg_wire::mesh::measure`].
impl OracleClient {
    /// The measurements that this node is to make; empty if there are none within `wait` (whole seconds).
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn orders(&self, wait: Duration) -> Result<Orders, OracleError> {
        let path = format!("/v1/measure/orders?wait_s={}", wait.as_secs());
        let mut oracles = self.oracles().len();
        loop {
            match self.get(&path, wait).await.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns_to_next(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Reports what was measured, received and observed. It is sent once: a report that fails may have arrived, and the
    /// oracle recognizes an order's second report by its number.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn report(&self, reports: &Reports) -> Result<ReportsReply, OracleError> {
        let path = "/v1/measure/reports";
        let mut oracles = self.oracles().len();
        loop {
            let answer = self.post(Protocol::Api, path, reports).await;
            match answer.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns_to_next(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Whether another oracle is elected to do this; then the next one is asked first from now on.
    fn turns_to_next(&self, error: &OracleError) -> bool {
        let is_another = matches!(error, OracleError::Refused(e) if e.code == NOT_ELECTED);
        if is_another {
            self.0.first.fetch_add(1, Ordering::Relaxed);
            self.0.kept.lock().take();
        }
        is_another
    }

    /// At most `m` relays for the caller, by this rule or the oracle's own, the better first.
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

    /// All that the oracle knows of paths, page by page, but at most `MAX_PAGES` pages.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn paths(&self) -> Result<PathsReply, OracleError> {
        let mut all: PathsReply = self.page(None).await?;
        for _ in 1..MAX_PAGES {
            let Some(after) = all.next.take() else { break };
            let page = self.page(Some(after)).await?;
            if page.nodes != all.nodes {
                // The set of nodes has changed: the indices may mean others. The legs so far are sound.
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

/// Requests of nodes about streams: see [`thalweg_wire::stream::plan`].
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
                Err(error) if oracles > 1 && self.turns_to_next(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// This node's plan for streams, once its version differs from `after`; `None` if that does not happen within
    /// `wait` (whole seconds).
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
                Err(error) if oracles > 1 && self.turns_to_next(&error) => oracles -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

fn read<T: DeserializeOwned>(answer: &OracleAnswer) -> Result<T, OracleError> {
    serde_json::from_slice(&answer.body).map_err(|e| OracleError::Broken(e.to_string()))
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

    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        Box::pin(async move { Ok(Self::set_addresses(self, &request).await?) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async move { Ok(Self::status(self).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_same_word_in_queries_and_in_json() {
        for rule in
            [Strategy::Oblivious, Strategy::Balanced, Strategy::Specific, Strategy::LoadAware]
        {
            assert_eq!(serde_json::to_value(rule).unwrap(), word(rule));
        }
    }
}
