//! The client of the oracle: HTTP/1.1 inside a channel to the first oracle that answers.

mod connection;
mod control;
mod error;
mod measuring;
mod skew;

pub use error::{Attempt, OracleError};
pub use skew::ClockSkew;

use super::Oracle;
use bytes::Bytes;
use connection::{Answer, Connection, Way};
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
    },
};
use tokio::time::timeout;

/// For an answer, beyond what it was asked to wait: three round trips and a slow disk.
const ANSWER: Duration = Duration::from_secs(15);

/// The greatest answer: a roster in hexadecimal, and what JSON adds.
const MAX_ANSWER: usize = 2 * Roster::MAX_BYTES + 4096;

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

    /// Over the kept connection; once more over a new one if that has gone meanwhile.
    async fn get(&self, path: &str, wait: Duration) -> Result<Answer, OracleError> {
        self.get_up_to(path, wait, MAX_ANSWER).await
    }

    async fn get_up_to(
        &self,
        path: &str,
        wait: Duration,
        most: usize,
    ) -> Result<Answer, OracleError> {
        let request = || connection::request(Method::GET, path, Bytes::new());
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
