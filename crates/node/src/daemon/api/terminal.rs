//! `POST /v1/jobs/terminal`: a command in a terminal registers itself, so that it is listed and can be cancelled.
//!
//! Both bodies last as long as the command. The request: a [`TerminalRequest`], then the command's events, one JSON
//! object a line, and at last `{"event": "exit", "exit_code": 0}`. The reply: `{"id": 7}` as soon as the first line was
//! read, and `{"cancel": true}` when the owner cancels the job.

use super::{
    Api,
    error::{ApiRefusal, ErrorBody},
    page::OwnerOnly,
};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use thalweg_jobs::{Registration, TerminalRequest};
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};
use tokio_util::sync::CancellationToken;

/// The longest line that is read, bytes: an event with the names of many receivers. Longer ones are left out.
const MAX_LINE: usize = 256 * 1024;

/// The time limit of the first line.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// JSON lines.
const CONTENT_TYPE: &str = "application/x-ndjson";

/// Register a command that runs in a terminal
///
/// The request is a stream of JSON lines of at most 256 kB (longer ones are left out): a `TerminalRequest`, the command's events, and at last
/// `{"event": "exit", "exit_code": 0}`. The reply is one, too: `{"id": 7}` at once, and `{"cancel": true}` when the job is
/// cancelled. If the request ends without `exit`, the job has failed. Only at the socket.
#[utoipa::path(post, path = "/v1/jobs/terminal", operation_id = "register_terminal", tag = "jobs",
    request_body(content(("application/x-ndjson")), description = "JSON lines"),
    responses(
        (status = 200, description = "JSON lines, while the command runs",
            content(("application/x-ndjson"))),
        (status = 400, description = "The first line is not a request", body = ErrorBody),
        (status = 429, description = "The queue is full (`queue_full`)", body = ErrorBody),
    ))]
pub async fn terminal(
    _: OwnerOnly,
    State(api): State<Arc<Api>>,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let jobs = api.jobs()?.clone();
    let mut lines = JsonLines::new(body);
    let first = timeout(FIRST_LINE, lines.next()).await.ok().flatten();
    let request = first.and_then(|line| serde_json::from_slice::<TerminalRequest>(&line).ok());
    let request = request.ok_or_else(|| {
        let message =
            "the first line must be {\"arguments\": […], \"directory\": \"…\", \"pid\": …}";
        ApiRefusal::new(StatusCode::BAD_REQUEST, "bad_request", message)
    })?;
    let registered = spawn_blocking(move || jobs.register(request)).await;
    let registration = registered.map_err(ApiRefusal::broken)??;
    // The client reads little: one line for the number, and one if it is cancelled.
    let (replies, queue) = mpsc::channel(2);
    _ = replies.try_send(line(&json!({ "id": registration.id() })));
    tokio::spawn(follow(lines, registration, replies, api.stop.clone()));
    let replies = stream::unfold(queue, |mut queue| async move {
        let reply: Bytes = queue.recv().await?;
        Some((Ok::<_, Infallible>(reply), queue))
    });
    let headers = [(header::CONTENT_TYPE, CONTENT_TYPE)];
    Ok((headers, Body::from_stream(replies)).into_response())
}

fn line(value: &Value) -> Bytes {
    format!("{value}\n").into()
}

/// Passes the command's events on until it has ended. Without an exit code the registration is dropped, by which the job
/// has failed.
async fn follow(
    mut lines: JsonLines,
    registration: Registration,
    replies: mpsc::Sender<Bytes>,
    stop: CancellationToken,
) {
    let mut is_cancelled = false;
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            () = registration.cancelled(), if !is_cancelled => {
                is_cancelled = true;
                _ = replies.try_send(line(&json!({ "cancel": true })));
                continue;
            }
            next = lines.next() => next,
        };
        let Some(line) = next else { return };
        // A line that is no JSON is left out: the command goes on, and so does its job.
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
        match exit_code(&event) {
            // The end is written to disk. If that fails, the journal's owner has reported it.
            Some(code) => return drop(spawn_blocking(move || registration.end(code)).await),
            None => registration.event(event),
        }
    }
}

/// The exit code in the last line.
fn exit_code(event: &Value) -> Option<u8> {
    let is_exit = event["event"] == "exit";
    // A code of more than a byte is no exit code of this system.
    is_exit.then(|| event["exit_code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(1))
}

/// The lines of a body.
struct JsonLines {
    body: Body,
    buffer: BytesMut,
    /// How many bytes of the buffer are known to hold no line end.
    searched: usize,
    /// Whether the line that is being read is too long.
    is_skipping: bool,
}

impl JsonLines {
    fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, is_skipping: false }
    }

    /// The next line that is neither empty nor too long; `None` at the end. If the future is dropped, nothing is lost.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                let is_rest = std::mem::take(&mut self.is_skipping);
                match line.trim_ascii() {
                    _ if is_rest || line.len() > MAX_LINE + 1 => continue,
                    [] => continue,
                    trimmed => return Some(trimmed.to_owned()),
                }
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                self.buffer.clear();
                (self.searched, self.is_skipping) = (0, true);
            }
            let frame = self.body.frame().await?.ok()?;
            // Trailers hold nothing for us.
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(chunks: &[&str]) -> Body {
        let chunks: Vec<_> = chunks.iter().map(|c| Ok::<_, Infallible>(c.to_string())).collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn lines_are_found_however_they_are_cut() {
        let mut lines = JsonLines::new(body(&["{\"a\"", ":1}\n\n{}", "\n1\n2", "\n", "rest"]));
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await {
            seen.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(seen, ["{\"a\":1}", "{}", "1", "2"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_left_out() {
        let long = "x".repeat(MAX_LINE);
        for (cut, wanted) in [(&long[..], &long[..]), (&format!("{long}x")[..], "next")] {
            for chunks in [&[cut, "\nnext\n"][..], &[&format!("{cut}\nnext\n")]] {
                let line = JsonLines::new(body(chunks)).next().await.unwrap();
                assert!(line == wanted.as_bytes(), "{} bytes", line.len());
            }
        }
    }

    #[test]
    fn the_last_line_has_the_exit_code() {
        assert_eq!(exit_code(&json!({ "event": "exit", "exit_code": 23 })), Some(23));
        assert_eq!(exit_code(&json!({ "event": "exit" })), Some(1));
        assert_eq!(exit_code(&json!({ "event": "exit", "exit_code": 256 })), Some(1));
        assert_eq!(exit_code(&json!({ "event": "ended", "exit_code": 0 })), None);
        assert_eq!(exit_code(&json!(["event"])), None);
    }
}
