//! Conversion of errors to HTTP responses.

use crate::{OracleError, Refusal};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use std::time::Duration;
use thalweg_wire::mesh::ApiError;

/// The status, an [`ApiError`], and `Retry-After` where a retry makes sense.
impl IntoResponse for OracleError {
    fn into_response(self) -> Response {
        let error = ApiError { code: self.code().to_owned(), message: self.to_string() };
        let mut response = (status(&self), Json(error)).into_response();
        if let Some(wait) = retry_after(&self) {
            let seconds = HeaderValue::from(wait.as_secs().max(1));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

/// The status code: RFC 9110 §15, RFC 6585 §4.
fn status(error: &OracleError) -> StatusCode {
    let OracleError::Refused(refusal) = error else { return StatusCode::SERVICE_UNAVAILABLE };
    match refusal {
        Refusal::Bad(_) | Refusal::Keys(_) | Refusal::Address { .. } | Refusal::Role { .. } => {
            StatusCode::BAD_REQUEST
        }
        Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Slow(_) => StatusCode::REQUEST_TIMEOUT,
        Refusal::NoRoute | Refusal::UnknownMember(_) | Refusal::AlreadyRevoked { .. } => {
            StatusCode::NOT_FOUND
        }
        Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
        Refusal::RateLimited(_) | Refusal::ChangesTooOften(_) | Refusal::Waiting(_) => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Refusal::NameTaken(_)
        | Refusal::KeyTaken(_)
        | Refusal::Full(_)
        | Refusal::Yourself(_)
        | Refusal::Last { .. }
        | Refusal::NotListed(_) => StatusCode::CONFLICT,
        Refusal::NotElected(_) => StatusCode::MISDIRECTED_REQUEST,
        Refusal::Crowded | Refusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::NotMember
        | Refusal::NotAdmin(_)
        | Refusal::TokenUnknown
        | Refusal::TokenUsed
        | Refusal::TokenExpired { .. }
        | Refusal::TokenVoid
        | Refusal::TokenName(_)
        | Refusal::KeyRevoked(_) => StatusCode::FORBIDDEN,
    }
}

/// How long to wait before a retry; `None` if a retry is pointless.
fn retry_after(error: &OracleError) -> Option<Duration> {
    match error {
        OracleError::Refused(Refusal::RateLimited(wait) | Refusal::ChangesTooOften(wait)) => {
            Some(*wait)
        }
        OracleError::Refused(Refusal::Waiting(_) | Refusal::Crowded | Refusal::Stopping)
        | OracleError::Store(_) => Some(Duration::from_secs(5)),
        _ => None,
    }
}
