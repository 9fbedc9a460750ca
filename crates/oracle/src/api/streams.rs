//! Routes for streams: see `thalweg_wire::stream::plan`.

use super::{
    measure::{elected, principal, query},
    read_body,
};
use crate::{Caller, Oracle, OracleError, limits::WAIT};
use axum::{
    Json,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use std::time::Duration;
use thalweg_wire::stream::plan::{Reply, Report};

pub(super) async fn report(
    State(oracle): State<Oracle>,
    caller: Caller,
    body: Body,
) -> Result<Json<Reply>, OracleError> {
    let key = principal(&oracle, &caller)?;
    elected(&oracle)?;
    let report: Report = read_body(body).await?;
    Ok(Json(oracle.inner.streams.report(key, report)?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlanQuery {
    after: u64,
    wait_s: u64,
}

pub(super) async fn plan(
    State(oracle): State<Oracle>,
    caller: Caller,
    asked: Result<Query<PlanQuery>, QueryRejection>,
) -> Result<Response, OracleError> {
    let key = principal(&oracle, &caller)?;
    let PlanQuery { after, wait_s } = query(asked)?;
    elected(&oracle)?;
    let (wait, stop) = (Duration::from_secs(wait_s).min(WAIT), oracle.inner.stopping.subscribe());
    let plan = oracle.inner.streams.plan(key, after, wait, stop).await?;
    Ok(plan
        .map_or_else(|| StatusCode::NO_CONTENT.into_response(), |plan| Json(plan).into_response()))
}
