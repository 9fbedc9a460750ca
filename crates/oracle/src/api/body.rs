//! Reading a request's body within bounds.

use crate::{
    OracleError, Refusal,
    limits::{BODY, BODY_TIME},
};
use axum::body::{Body, HttpBody as _, to_bytes};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// The body as `T`, whatever its content type says.
pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, OracleError> {
    if body.size_hint().lower() > BODY as u64 {
        return Err(Refusal::TooLarge(BODY).into());
    }
    let read = timeout(BODY_TIME, to_bytes(body, BODY)).await;
    let read = read.map_err(|_| Refusal::Slow(BODY_TIME))?;
    // It ends here by the bound, or because the connection broke and nobody reads the answer.
    let bytes = read.map_err(|_| Refusal::TooLarge(BODY))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::Bad(format!("the request's body: {error}")).into())
}
