//! The client of the local API's part for jobs.

use super::client::{LocalClient, LocalError};
use bytes::{Buf as _, Bytes};
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{
    Method, Request, Response,
    body::{Body, Frame, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{convert::Infallible, io::BufRead as _};
use thalweg_jobs::{Job, JobRequest, Priority, TerminalRequest};
use tokio::{sync::mpsc, task::JoinHandle};
use utoipa::ToSchema;

/// The longest event that is read, bytes; a job with a thousand receivers has 100 kB.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// The reply to `GET /v1/jobs`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The last change that the list contains: `GET /v1/events?after=…` continues from it.
    #[schema(pattern = "^[0-9]+-[0-9]+$")]
    pub change: String,
    /// In the order of the queue, the ended ones last.
    pub jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct EventList {
    events: Vec<Value>,
}

/// A change of jobs, as `GET /v1/events` sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobChange {
    /// `job`, `job_event`, `job_removed` or `reset`.
    pub name: String,
    pub data: Value,
}

/// The stream of changes.
#[derive(Debug)]
pub struct JobChanges {
    body: Incoming,
    buffer: Vec<u8>,
    connection: JoinHandle<()>,
}

impl LocalClient {
    /// All jobs, in the order of the queue, the ended ones last.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn jobs(&self) -> Result<JobList, LocalError> {
        self.ask(Method::GET, "/v1/jobs", &()).await
    }

    /// A job.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn job(&self, id: u64) -> Result<Job, LocalError> {
        self.ask(Method::GET, &format!("/v1/jobs/{id}"), &()).await
    }

    /// The last events of a job.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn job_events(&self, id: u64) -> Result<Vec<Value>, LocalError> {
        let list: EventList = self.ask(Method::GET, &format!("/v1/jobs/{id}/events"), &()).await?;
        Ok(list.events)
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn add_job(&self, request: &JobRequest) -> Result<Job, LocalError> {
        self.ask(Method::POST, "/v1/jobs", request).await
    }

    /// Pauses, resumes or cancels a job: `action` is the last part of the path.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn change_job(&self, id: u64, action: &str) -> Result<Job, LocalError> {
        self.ask(Method::POST, &format!("/v1/jobs/{id}/{action}"), &json!({})).await
    }

    /// Changes the priority of a job.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn set_job_priority(&self, id: u64, priority: Priority) -> Result<Job, LocalError> {
        let body = json!({ "priority": priority });
        self.ask(Method::PUT, &format!("/v1/jobs/{id}/priority"), &body).await
    }

    /// Removes an ended job from the list.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn forget_job(&self, id: u64) -> Result<(), LocalError> {
        self.ask_without_reply(Method::DELETE, &format!("/v1/jobs/{id}")).await
    }

    /// Follows the changes of jobs after `from`, the `change` of a [`JobList`].
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn job_changes(&self, from: &str) -> Result<JobChanges, LocalError> {
        let request = self
            .request(Method::GET, "/v1/events")
            .header("last-event-id", from)
            .body(Full::<Bytes>::default())
            .map_err(|e| self.broken(e))?;
        let (reply, connection) = self.open(request).await?;
        if !reply.status().is_success() {
            return Err(self.broken(reply.status()));
        }
        Ok(JobChanges { body: reply.into_body(), buffer: Vec::new(), connection })
    }

    /// Lists this process as a job of a terminal: sends `events` until their sender is dropped. `cancelled` is called if
    /// the job is cancelled.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn list_terminal(
        &self,
        terminal: &TerminalRequest,
        events: mpsc::Receiver<Value>,
        cancelled: impl Fn(),
    ) -> Result<(), LocalError> {
        let first = serde_json::to_value(terminal).map_err(|e| self.broken(e))?;
        let rest = stream::unfold(events, |mut events| async {
            let event = events.recv().await?;
            Some((event, events))
        });
        let lines = stream::iter([first])
            .chain(rest)
            .map(|value| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{value}\n")))));
        let request = self
            .request(Method::POST, "/v1/jobs/terminal")
            .body(StreamBody::new(lines))
            .map_err(|e| self.broken(e))?;
        let (reply, connection) = self.open(request).await?;
        let mut body = reply.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let line = frame.into_data().unwrap_or_default();
            if serde_json::from_slice::<Value>(&line).is_ok_and(|line| line["cancel"] == true) {
                cancelled();
            }
        }
        connection.abort();
        Ok(())
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder().method(method).uri(path);
        request.header(header::HOST, "node").header(header::CONTENT_TYPE, "application/json")
    }

    /// Sends a request on a connection of its own, which goes on for the reply's body.
    async fn open<B>(
        &self,
        request: Request<B>,
    ) -> Result<(Response<Incoming>, JoinHandle<()>), LocalError>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stream = TokioIo::new(self.connect().await?);
        let (mut send, connection) = http1::handshake(stream).await.map_err(|e| self.broken(e))?;
        // Its error is also that of the request or of the body.
        let connection = tokio::spawn(async move { _ = connection.await });
        let reply = send.send_request(request).await.map_err(|e| self.broken(e))?;
        Ok((reply, connection))
    }
}

impl JobChanges {
    /// The next change; `None` once the daemon has ended the stream.
    pub async fn next(&mut self) -> Option<JobChange> {
        loop {
            if let Some(change) = self.take() {
                return Some(change);
            }
            if self.buffer.len() > MAX_EVENT {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(data.chunk());
            }
        }
    }

    /// Takes the first whole event from the buffer (HTML Living Standard, 9.2.6); comments are left out.
    fn take(&mut self) -> Option<JobChange> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
            if let Some(change) = parse_event(&event) {
                return Some(change);
            }
        }
    }
}

impl Drop for JobChanges {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn parse_event(event: &[u8]) -> Option<JobChange> {
    let (mut name, mut data) = (String::new(), String::new());
    for line in event.lines().map_while(Result::ok) {
        match line.split_once(':') {
            Some(("event", value)) => value.trim_start().clone_into(&mut name),
            Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
            _ => {}
        }
    }
    if name.is_empty() {
        return None;
    }
    Some(JobChange { name, data: serde_json::from_str(&data).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_name_and_data_and_a_comment_is_none() {
        let event = b"id: 7-1\nevent: job_removed\ndata: {\"id\":\ndata: 3}\n\n";
        let wanted = JobChange { name: "job_removed".to_owned(), data: json!({ "id": 3 }) };
        assert_eq!(parse_event(event), Some(wanted));
        assert_eq!(parse_event(b": still here\n\n"), None);
    }
}
