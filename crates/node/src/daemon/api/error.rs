//! Refusals of the API, and extractors whose refusals are JSON too.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use thalweg_jobs::JobError;
use thalweg_wire::mesh::ApiError;
use utoipa::ToSchema;

/// Why a request was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiError)]
pub struct ErrorBody {
    /// The error for programs, e.g. `no_job`.
    code: String,
    /// The error for people: what failed and what to try.
    message: String,
}

/// An error with its status.
#[derive(Debug)]
pub struct ApiRefusal {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiRefusal {
    /// Creates a refusal with this status, code and message.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { code: code.to_owned(), message: message.into() } }
    }

    /// No job has this number.
    pub fn no_job(id: &str) -> Self {
        let id: String = id.chars().take(32).flat_map(char::escape_debug).collect();
        let message =
            format!("there is no job {id}; `thalweg jobs` and `GET /v1/jobs` list the others");
        Self::new(StatusCode::NOT_FOUND, "no_job", message)
    }

    /// Something that the node does not have.
    pub fn missing(code: &str, message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// A task of this process ended unexpectedly.
    pub fn broken(why: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why.to_string())
    }
}

/// The status of a code: those of this API, of the queue, and of the oracle (its `Refusal`).
fn status_of(code: &str) -> StatusCode {
    match code {
        "not_admin" | "not_admitted" | "not_member" => StatusCode::FORBIDDEN,
        "unknown_member" | "already_revoked" | "not_found" => StatusCode::NOT_FOUND,
        "bad_state" | "yourself" | "last" | "not_listed" | "name_taken" | "full"
        | "not_changed" | "settings" => StatusCode::CONFLICT,
        "queue_full" | "rate_limited" => StatusCode::TOO_MANY_REQUESTS,
        "disk" => StatusCode::INTERNAL_SERVER_ERROR,
        "not_elected" | "oracle" | "storage" => StatusCode::BAD_GATEWAY,
        code if code.starts_with("oracle_") => StatusCode::BAD_GATEWAY,
        code if code.starts_with("no_") => StatusCode::NOT_FOUND,
        code if code.starts_with("too_many_") => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::BAD_REQUEST,
    }
}

impl From<ApiError> for ApiRefusal {
    fn from(error: ApiError) -> Self {
        Self::new(status_of(&error.code), &error.code, error.message)
    }
}

impl From<JobError> for ApiRefusal {
    fn from(error: JobError) -> Self {
        Self::new(status_of(error.code), error.code, error.to_string())
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        let headers = response.headers_mut();
        match self.status {
            // RFC 9110 §15.5.2 requires a challenge.
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

/// The reply to a path that does not exist.
pub async fn no_route() -> ApiRefusal {
    let message = "the API has no such path; `GET /v1/openapi.json` describes it";
    ApiRefusal::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// The reply to a method that the path does not have; axum adds `Allow`.
pub async fn no_method() -> ApiRefusal {
    let message = "the path does not have this method; the header `Allow` lists its methods";
    ApiRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
}

/// A request's JSON body. A body that cannot be read is refused with an [`ErrorBody`].
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiRefusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiRefusal> {
        let refuse = |rejection: JsonRejection| {
            let code = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => "too_large",
                StatusCode::UNSUPPORTED_MEDIA_TYPE => "media_type",
                _ => "bad_request",
            };
            ApiRefusal::new(rejection.status(), code, rejection.body_text())
        };
        let Json(body) = Json::from_request(request, state).await.map_err(refuse)?;
        Ok(Self(body))
    }
}

/// A request's query. One that cannot be read is refused with an [`ErrorBody`].
#[derive(Debug)]
pub struct QueryOf<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(e) => Err(ApiRefusal::new(e.status(), "bad_request", e.body_text())),
        }
    }
}

/// The number of a job in a path. Text that is no number is the name of no job.
#[derive(Clone, Copy, Debug)]
pub struct JobNumber(pub u64);

impl<S: Send + Sync> FromRequestParts<S> for JobNumber {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        let text = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = text.map_err(|_| ApiRefusal::no_job("of this name"))?;
        // `parse` also takes a sign, with which a job would have two paths.
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.map(Self).ok_or_else(|| ApiRefusal::no_job(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_status_that_says_who_is_to_act() {
        let statuses = [
            ("no_job", 404),
            ("no_roster", 404),
            ("unknown_member", 404),
            ("bad_request", 400),
            ("bad_state", 409),
            ("not_changed", 409),
            ("queue_full", 429),
            ("too_many_waiting", 429),
            ("not_admin", 403),
            ("disk", 500),
            ("oracle_unreachable", 502),
            ("a_later_code", 400),
        ];
        for (code, status) in statuses {
            assert_eq!(status_of(code).as_u16(), status, "{code}");
        }
    }

    #[test]
    fn names_of_jobs_from_requests_are_escaped_and_cut() {
        let refusal = ApiRefusal::no_job(&format!("a\u{1b}[2J{}", "x".repeat(1000)));
        assert!(refusal.body.message.starts_with(r"there is no job a\u{1b}[2Jx"));
        assert!(refusal.body.message.len() < 120);
    }
}
