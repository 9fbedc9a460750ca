//! Takes the place of an oracle that cannot run: members still get the last signed roster.
//!
//! Nothing is signed here, so there is no newer roster, nobody joins and nobody is revoked; the rest of the mesh goes
//! on until the roster expires.

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::future::BoxFuture;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use thalweg_mesh::Membership;
use thalweg_mesh::service::{ApiService, Caller, Control};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, ApiError, RevokeReply, RevokeRequest, RosterRank,
    StatusReply, TokenReply, TokenRequest,
};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

/// The most connections, as many as an oracle has places for waiting requests; further ones are closed, and their nodes
/// ask again.
const PLACES: usize = 1024;

/// The longest wait of a request for a newer roster; nodes ask for 20 s.
const WAIT: Duration = Duration::from_secs(30);

/// The time limit of a request's head.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// The longest that a connection is served; then the node connects again and proves its key.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// Answers in place of an oracle that does not run; cheap to clone.
#[derive(Clone, Debug)]
pub struct OracleDown {
    membership: Membership,
    why: Arc<str>,
    places: Arc<Semaphore>,
}

impl OracleDown {
    /// Serves the roster of `membership`; all else is refused with `why`.
    pub fn new(membership: Membership, why: &str) -> Self {
        Self { membership, why: why.into(), places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Why the oracle does not run, and what to do.
    pub fn why(&self) -> &str {
        &self.why
    }

    fn error(&self) -> ApiError {
        ApiError { code: "oracle_down".to_owned(), message: self.why.to_string() }
    }

    fn router(&self, protocol: Protocol) -> Router {
        match protocol {
            Protocol::Api => Router::new()
                .route("/v1/roster", get(newest))
                .fallback(refuse)
                .with_state(self.clone()),
            // Strangers do not learn what is wrong.
            _ => Router::new().fallback(refuse_stranger),
        }
    }

    /// The roster once it ranks above the caller's; `None` if that does not happen in time. A caller that does not name
    /// its roster's key has the same key.
    async fn newer(&self, query: &NewestQuery) -> Option<Arc<[u8]>> {
        let (mut rosters, wait) = (self.membership.subscribe(), Duration::from_secs(query.wait_s));
        let newer = rosters.wait_for(|roster| {
            roster.as_ref().map(|roster| roster.rank()).is_some_and(|rank| {
                let endorsement = query.key.unwrap_or(rank.endorsement);
                rank > RosterRank { endorsement, version: query.after }
            })
        });
        timeout(wait.min(WAIT), newer).await.ok()?.ok()?;
        self.membership.signed()
    }
}

/// The query of `GET /v1/roster`, as at the oracle.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewestQuery {
    after: u64,
    key: Option<u64>,
    wait_s: u64,
}

async fn newest(State(down): State<OracleDown>, Query(query): Query<NewestQuery>) -> Response {
    match down.newer(&query).await {
        Some(signed) => {
            let body = Body::from(signed.to_vec());
            ([(CONTENT_TYPE, "application/octet-stream")], body).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn refuse(State(down): State<OracleDown>) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(down.error())).into_response()
}

async fn refuse_stranger() -> Response {
    let message = "the mesh's oracle is not running; `thalweg status` on its host shows the \
                   reason. The token is not used up: join again later"
        .to_owned();
    let error = ApiError { code: "oracle_down".to_owned(), message };
    (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
}

impl ApiService for OracleDown {
    fn serve(&self, channel: Channel<TcpStream>, caller: Caller) -> BoxFuture<'static, ()> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let service = TowerToHyperService::new(self.router(caller.protocol));
        let member = caller.protocol == Protocol::Api;
        Box::pin(async move {
            let Ok(_place) = place else { return };
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .keep_alive(member)
                .serve_connection(TokioIo::new(channel), service);
            let longest = if member { LONGEST } else { HEAD_TIME };
            // If a connection breaks, its caller asks again.
            _ = timeout(longest, served).await;
        })
    }
}

impl Control for OracleDown {
    fn token(&self, _: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async { Err(self.error()) })
    }

    fn revoke(&self, _: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(async { Err(self.error()) })
    }

    fn set_addresses(
        &self,
        _: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        Box::pin(async { Err(self.error()) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async { Err(self.error()) })
    }
}
