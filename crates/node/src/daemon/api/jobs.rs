//! The routes of jobs: the queue of transfers, and the commands that run in terminals.

use super::{
    Api,
    error::{ApiRefusal, ErrorBody, JobNumber, JsonBody},
};
use crate::daemon::JobList;
use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use thalweg_jobs::{Job, JobError, JobRequest, Jobs, Priority};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// The last events of a job's command.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobEvents {
    /// At most 256, each as the command prints it with `--json`, and `time`.
    events: Vec<Value>,
}

/// A job's new priority.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityRequest {
    priority: Priority,
}

/// Runs a change of the queue, which is written to disk, where it may block.
async fn change<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce(Jobs) -> Result<T, JobError> + Send + 'static,
) -> Result<T, ApiRefusal> {
    let jobs = api.jobs()?.clone();
    Ok(spawn_blocking(move || work(jobs)).await.map_err(ApiRefusal::broken)??)
}

/// List all jobs
#[utoipa::path(get, path = "/v1/jobs",
    operation_id = "list_jobs", tag = "jobs", responses(
    (status = 200, description = "All jobs", body = JobList),
))]
pub async fn list(State(api): State<Arc<Api>>) -> Result<Json<JobList>, ApiRefusal> {
    let (change, jobs) = api.jobs()?.list();
    Ok(Json(JobList { change: change.to_string(), jobs }))
}

/// Queue a command
///
/// The daemon runs `thalweg` with these arguments as its own user, and with `--json`.
#[utoipa::path(post, path = "/v1/jobs",
    operation_id = "add_job", tag = "jobs", request_body(
    content = JobRequest,
    example = json!({ "arguments": ["get", "https://mirror.invalid/big.iso"], "directory": "/srv/data" }),
), responses(
    (status = 201, description = "The new job", body = Job, links(
        ("show" = (operation_id = "show_job", parameters(("id" = "$response.body#/id")))),
        ("events" = (operation_id = "list_job_events", parameters(("id" = "$response.body#/id")))),
        ("pause" = (operation_id = "pause_job", parameters(("id" = "$response.body#/id")))),
        ("resume" = (operation_id = "resume_job", parameters(("id" = "$response.body#/id")))),
        ("cancel" = (operation_id = "cancel_job", parameters(("id" = "$response.body#/id")))),
        ("priority" = (operation_id = "set_job_priority", parameters(("id" = "$response.body#/id")))),
        ("forget" = (operation_id = "forget_job", parameters(("id" = "$response.body#/id")))),
    )),
    (status = 400, description = "The command cannot be queued (`bad_request`)", body = ErrorBody),
    (status = 429, description = "The queue is full (`queue_full`)", body = ErrorBody),
))]
pub async fn add(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<JobRequest>,
) -> Result<(StatusCode, Json<Job>), ApiRefusal> {
    let job = change(&api, move |jobs| jobs.add(request)).await?;
    Ok((StatusCode::CREATED, Json(job)))
}

/// Show a job
#[utoipa::path(get, path = "/v1/jobs/{id}",
    operation_id = "show_job", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", maximum = 9007199254740991.0)),
    responses(
        (status = 200, description = "The job", body = Job),
        (status = 404, description = "There is no such job (`no_job`)", body = ErrorBody),
    ))]
pub async fn show(
    State(api): State<Arc<Api>>,
    JobNumber(id): JobNumber,
) -> Result<Json<Job>, ApiRefusal> {
    api.jobs()?.job(id).map(Json).ok_or_else(|| ApiRefusal::no_job(&id.to_string()))
}

/// Show the last events of a job's command
#[utoipa::path(get, path = "/v1/jobs/{id}/events",
    operation_id = "list_job_events", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", maximum = 9007199254740991.0)),
    responses(
        (status = 200, description = "The events, the oldest first", body = JobEvents),
        (status = 404, description = "There is no such job (`no_job`)", body = ErrorBody),
    ))]
pub async fn job_events(
    State(api): State<Arc<Api>>,
    JobNumber(id): JobNumber,
) -> Result<Json<JobEvents>, ApiRefusal> {
    let events = api.jobs()?.events(id).ok_or_else(|| ApiRefusal::no_job(&id.to_string()))?;
    Ok(Json(JobEvents { events }))
}

macro_rules! transition {
    ($(#[$doc:meta])* $name:ident, $path:literal, $operation:literal) => {
        $(#[$doc])*
        #[utoipa::path(post, path = $path, operation_id = $operation, tag = "jobs",
            params(("id" = u64, Path, description = "The job's number", maximum = 9007199254740991.0)),
            responses(
                (status = 200, description = "The job", body = Job),
                (status = 404, description = "There is no such job (`no_job`)", body = ErrorBody),
                (status = 409, description = "Its state does not allow it (`bad_state`)", body = ErrorBody),
            ))]
        pub async fn $name(
            State(api): State<Arc<Api>>,
            JobNumber(id): JobNumber,
        ) -> Result<Json<Job>, ApiRefusal> {
            change(&api, move |jobs| jobs.$name(id)).await.map(Json)
        }
    };
}

transition! {
    /// Pause a job
    ///
    /// Its process ends and keeps what it has; `resume` continues it. A command in a terminal cannot be paused.
    pause, "/v1/jobs/{id}/pause", "pause_job"
}

transition! {
    /// Continue a paused job, or repeat a failed one
    resume, "/v1/jobs/{id}/resume", "resume_job"
}

transition! {
    /// Cancel a job
    cancel, "/v1/jobs/{id}/cancel", "cancel_job"
}

/// Set a job's priority
#[utoipa::path(put, path = "/v1/jobs/{id}/priority",
    operation_id = "set_job_priority", tag = "jobs", request_body = PriorityRequest,
    params(("id" = u64, Path, description = "The job's number", maximum = 9007199254740991.0)),
    responses(
        (status = 200, description = "The job", body = Job),
        (status = 404, description = "There is no such job (`no_job`)", body = ErrorBody),
        (status = 409, description = "Its state does not allow it (`bad_state`)", body = ErrorBody),
    ))]
pub async fn set_priority(
    State(api): State<Arc<Api>>,
    JobNumber(id): JobNumber,
    JsonBody(request): JsonBody<PriorityRequest>,
) -> Result<Json<Job>, ApiRefusal> {
    change(&api, move |jobs| jobs.set_priority(id, request.priority)).await.map(Json)
}

/// Forget an ended job
#[utoipa::path(delete, path = "/v1/jobs/{id}",
    operation_id = "forget_job", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", maximum = 9007199254740991.0)),
    responses(
        (status = 204, description = "It is forgotten"),
        (status = 404, description = "There is no such job (`no_job`)", body = ErrorBody),
        (status = 409, description = "It has not ended (`bad_state`)", body = ErrorBody),
    ))]
pub async fn forget(
    State(api): State<Arc<Api>>,
    JobNumber(id): JobNumber,
) -> Result<StatusCode, ApiRefusal> {
    change(&api, move |jobs| jobs.forget(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
