//! The HTTP API, with the bodies of `thalweg_wire::mesh`.

mod error;
mod measure;
mod roster;
mod streams;

use crate::{
    Caller, Oracle, OracleError, Refusal,
    limits::{BODY, BODY_TIME},
    registry::Access,
};
use axum::{
    Json, Router,
    body::{Body, HttpBody as _, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::request::Parts,
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{get, post},
};
use serde::de::DeserializeOwned;
use std::future::Future;
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, JoinReply, ReachReply, RevokeReply, StatusReply, TokenReply,
};
use tokio::time::{sleep, timeout};

type Answer<T> = Result<Json<T>, OracleError>;

pub(crate) fn router(oracle: Oracle) -> Router {
    Router::new()
        .route("/v1/join", post(join))
        .route("/v1/roster", get(roster::newest))
        .route("/v1/status", get(status))
        .route("/v1/tokens", post(tokens))
        .route("/v1/revoke", post(revoke))
        .route("/v1/addresses", post(addresses))
        .route("/v1/reach", post(reach))
        .route("/v1/measure/orders", get(measure::orders))
        .route("/v1/measure/reports", post(measure::reports))
        .route("/v1/candidates", get(measure::candidates))
        .route("/v1/paths", get(measure::paths))
        .route("/v1/streams/report", post(streams::report))
        .route("/v1/streams/plan", get(streams::plan))
        .fallback(async || OracleError::from(Refusal::NoRoute))
        .method_not_allowed_fallback(async || OracleError::from(Refusal::Method))
        .layer(from_fn_with_state(oracle.clone(), spaced))
        .with_state(oracle)
}

/// Delays a member's requests beyond its rate.
async fn spaced(State(oracle): State<Oracle>, request: Request, next: Next) -> Response {
    let key = request.extensions().get::<Caller>().and_then(Caller::key);
    if let Some(key) = key {
        while let Err(wait) = oracle.inner.requests.pass(&key) {
            sleep(wait).await;
        }
    }
    next.run(request).await
}

/// The route for joining only: whatever a key may do here before it is a member, it may do after it was revoked.
pub(crate) fn join_router(oracle: Oracle) -> Router {
    Router::new()
        .route("/v1/join", post(join))
        .fallback(async || OracleError::from(Refusal::NoRoute))
        .method_not_allowed_fallback(async || OracleError::from(Refusal::NoRoute))
        .with_state(oracle)
}

/// Routes for connections beyond the limits. The body is read first, because an answer sent before it can get lost.
pub(crate) fn crowded_router() -> Router {
    Router::new().fallback(async |body: Body| {
        let read = read_body::<serde::de::IgnoredAny>(body).await;
        drop(read);
        OracleError::from(Refusal::Crowded)
    })
}

/// A request without a [`Caller`] in its extensions comes from a stranger.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = OracleError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, OracleError> {
        parts.extensions.get().copied().ok_or_else(|| Refusal::NotMember.into())
    }
}

/// Runs `work` to its end even if the caller disconnects, so that everything committed is also published.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, OracleError>> + Send + 'static,
) -> Answer<T> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(Json(done?)),
        Err(_) => Err(Refusal::Stopping.into()),
    }
}

async fn join(State(oracle): State<Oracle>, caller: Caller, body: Body) -> Answer<JoinReply> {
    if let Caller::Peer { address, .. } = caller {
        oracle.inner.admission.pass(address)?;
    }
    let request = read_body(body).await?;
    to_the_end(async move { oracle.join(&caller, request).await }).await
}

async fn status(State(oracle): State<Oracle>, caller: Caller) -> Answer<StatusReply> {
    oracle.registry().authorise(&caller, Access::Member)?;
    Ok(Json(oracle.status()))
}

async fn tokens(State(oracle): State<Oracle>, caller: Caller, body: Body) -> Answer<TokenReply> {
    oracle.registry().authorise(&caller, Access::Admin)?;
    let request = read_body(body).await?;
    to_the_end(async move { oracle.create_token(&caller, request).await }).await
}

async fn revoke(State(oracle): State<Oracle>, caller: Caller, body: Body) -> Answer<RevokeReply> {
    oracle.registry().authorise(&caller, Access::Admin)?;
    let request = read_body(body).await?;
    to_the_end(async move { oracle.revoke(&caller, request).await }).await
}

async fn addresses(
    State(oracle): State<Oracle>,
    caller: Caller,
    body: Body,
) -> Answer<AddressesReply> {
    oracle.registry().authorise(&caller, Access::Member)?;
    let AddressesRequest { addresses } = read_body(body).await?;
    to_the_end(async move { oracle.set_addresses(&caller, addresses).await }).await
}

async fn reach(State(oracle): State<Oracle>, caller: Caller, body: Body) -> Answer<ReachReply> {
    oracle.registry().authorise(&caller, Access::Member)?;
    let request = read_body(body).await?;
    to_the_end(async move { oracle.set_reach(&caller, request).await }).await
}

/// Parses the body as JSON, whatever its content type.
async fn read_body<T: DeserializeOwned>(body: Body) -> Result<T, OracleError> {
    if body.size_hint().lower() > BODY as u64 {
        return Err(Refusal::TooLarge(BODY).into());
    }
    let read = timeout(BODY_TIME, to_bytes(body, BODY)).await;
    let read = read.map_err(|_| Refusal::Slow(BODY_TIME))?;
    // Reading fails at the bound, or because the connection broke and nobody reads the answer.
    let bytes = read.map_err(|_| Refusal::TooLarge(BODY))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::Bad(format!("the request's body cannot be read: {error}")).into())
}
