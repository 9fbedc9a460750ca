//! Routes for measurements and detours: see `thalweg_wire::mesh::measure`.

use super::read_body;
use crate::{
    Caller, Oracle, OracleError, Refusal, election::ElectionState, limits::WAIT, registry::Access,
};
use axum::{
    Json,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use std::time::Duration;
use thalweg_base::{budget::PeerKey, costly};
use thalweg_units::NodeId;
use thalweg_wire::mesh::measure::{
    CandidatesReply, Orders, PathsReply, Reports, ReportsReply, Strategy,
};

/// The default number of candidates: UKAIRO's m = 5 (§2.2.3).
const CANDIDATES: usize = 5;

/// The default number of legs in one answer: a few MB.
const LEGS: usize = 50_000;

type QueryResult<T> = Result<Query<T>, QueryRejection>;

pub(super) fn query<T>(asked: QueryResult<T>) -> Result<T, Refusal> {
    asked.map(|Query(query)| query).map_err(|error| Refusal::Bad(error.body_text()))
}

/// The principal of the calling member.
pub(super) fn principal(oracle: &Oracle, caller: &Caller) -> Result<NodeId, OracleError> {
    let actor = oracle.registry().authorise(caller, Access::Member)?;
    let member = actor.0.ok_or(Refusal::NotMember)?;
    Ok(member.principal())
}

/// Refuses the request if another oracle is elected: only the scheduling oracle may take reports on its orders.
pub(super) fn elected(oracle: &Oracle) -> Result<(), Refusal> {
    match oracle.inner.election.state() {
        ElectionState::Another(elected) => {
            Err(Refusal::NotElected(oracle.registry().name_of(&elected)))
        }
        _ => Ok(()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OrdersQuery {
    wait_s: u64,
}

pub(super) async fn orders(
    State(oracle): State<Oracle>,
    caller: Caller,
    asked: QueryResult<OrdersQuery>,
) -> Result<Json<Orders>, OracleError> {
    let key = principal(&oracle, &caller)?;
    let wait = Duration::from_secs(query(asked)?.wait_s).min(WAIT);
    elected(&oracle)?;
    let stop = oracle.inner.stopping.subscribe();
    Ok(Json(oracle.inner.scheduler.orders(key, wait, stop).await?))
}

pub(super) async fn reports(
    State(oracle): State<Oracle>,
    caller: Caller,
    body: Body,
) -> Result<Json<ReportsReply>, OracleError> {
    let key = principal(&oracle, &caller)?;
    elected(&oracle)?;
    let reports: Reports = read_body(body).await?;
    Ok(Json(oracle.inner.scheduler.take_reports(&key, reports).await))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CandidatesQuery {
    strategy: Option<Strategy>,
    m: Option<usize>,
}

/// The most frequent request, so the caller's slot is looked up by key rather than searched for in the roster.
pub(super) async fn candidates(
    State(oracle): State<Oracle>,
    caller: Caller,
    asked: QueryResult<CandidatesQuery>,
) -> Result<Json<CandidatesReply>, OracleError> {
    let measuring = &oracle.inner.scheduler.measuring;
    let newest = oracle.registry().newest();
    let client = caller.key().and_then(|key| measuring.slot(&key, &newest.roster));
    if client.is_none() {
        oracle.registry().authorise(&caller, Access::Member)?;
    }
    let CandidatesQuery { strategy, m } = query(asked)?;
    Ok(Json(measuring.candidates(client, strategy, m.unwrap_or(CANDIDATES)).await))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PathsQuery {
    after: Option<u64>,
    legs: Option<usize>,
}

pub(super) async fn paths(
    State(oracle): State<Oracle>,
    caller: Caller,
    asked: QueryResult<PathsQuery>,
) -> Result<Json<PathsReply>, OracleError> {
    oracle.registry().authorise(&caller, Access::Member)?;
    let PathsQuery { after, legs } = query(asked)?;
    let measuring = oracle.inner.scheduler.measuring.clone();
    let work = move || measuring.paths(after, legs.unwrap_or(LEGS));
    let reply = match caller.key() {
        Some(key) => costly::run(PeerKey::Node(key), work).await,
        None => tokio::task::spawn_blocking(work).await,
    };
    reply.map(Json).map_err(|_| Refusal::Stopping.into())
}
