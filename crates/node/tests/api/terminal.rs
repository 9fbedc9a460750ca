//! Commands in terminals that register themselves.

use super::scene::{Scene, read_until, reply, request};
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request,
    body::{Bytes, Frame},
};
use serde_json::{Value, json};
use std::{convert::Infallible, time::Duration};
use tokio::sync::mpsc;

/// A registration that sends what it is given.
fn registration(first: &str) -> (mpsc::Sender<String>, Request<UnsyncBoxBody<Bytes, Infallible>>) {
    let (lines, queue) = mpsc::channel::<String>(16);
    lines.try_send(format!("{first}\n")).unwrap();
    let sent = stream::unfold(queue, |mut queue| async {
        let line = queue.recv().await?;
        Some((Ok(Frame::data(Bytes::from(line))), queue))
    });
    let request = Request::builder().method("POST").uri("/v1/jobs/terminal");
    let body = UnsyncBoxBody::new(StreamBody::new(sent));
    (lines, request.header("host", "node").body(body).unwrap())
}

fn first() -> String {
    let arguments = json!(["get", "https://example.org/a"]);
    json!({ "arguments": arguments, "directory": "/tmp", "pid": 7 }).to_string()
}

impl Scene {
    async fn only_job(&self) -> Value {
        self.get("/v1/jobs").await.json()["jobs"][0].clone()
    }

    async fn until_state(&self, state: &str) -> Value {
        for _ in 0..1000 {
            let job = self.only_job().await;
            if job["state"] == state {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not {state}: {}", self.only_job().await);
    }
}

#[tokio::test]
async fn a_command_in_a_terminal_is_listed_with_its_events_and_ends_with_its_exit_code() {
    let scene = Scene::start().await;
    let (lines, request) = registration(&first());
    let mut body = scene.exchange_at_socket(request).await.into_body();
    let id: Value = serde_json::from_str(&read_until(&mut body, "\n").await).unwrap();
    let job = scene.only_job().await;
    assert_eq!((&job["id"], &job["origin"]), (&id["id"], &json!("terminal")));
    assert_eq!((&job["state"], &job["pid"]), (&json!("running"), &json!(7)));
    let refused = scene.send("POST", &format!("/v1/jobs/{}/pause", id["id"]), None).await;
    refused.refusal(409, "bad_state");
    lines.send("{\"event\": \"chosen\", \"path\": \"direct\"}\nnot JSON\n".into()).await.unwrap();
    lines.send("{\"event\": \"exit\", \"exit_code\": 0}\n".into()).await.unwrap();
    scene.until_state("finished").await;
    let events = scene.get(&format!("/v1/jobs/{}/events", id["id"])).await.json();
    assert_eq!(events["events"][0]["event"], "chosen");
    assert!(body.frame().await.is_none(), "the reply ends with the command");
}

#[tokio::test]
async fn a_command_in_a_terminal_is_told_that_it_is_cancelled() {
    let scene = Scene::start().await;
    let (lines, request) = registration(&first());
    let mut body = scene.exchange_at_socket(request).await.into_body();
    read_until(&mut body, "\n").await;
    let id = scene.only_job().await["id"].clone();
    let cancelled = scene.send("POST", &format!("/v1/jobs/{id}/cancel"), None).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    assert_eq!(read_until(&mut body, "\n").await, "{\"cancel\":true}\n");
    lines.send("{\"event\": \"exit\", \"exit_code\": 130}\n".into()).await.unwrap();
    scene.until_state("cancelled").await;
}

#[tokio::test]
async fn a_command_that_vanishes_has_failed() {
    let scene = Scene::start().await;
    let (lines, request) = registration(&first());
    let mut body = scene.exchange_at_socket(request).await.into_body();
    read_until(&mut body, "\n").await;
    drop((lines, body));
    scene.until_state("failed").await;
}

#[tokio::test]
async fn registrations_must_be_valid_and_come_over_the_socket() {
    let scene = Scene::start().await;
    for text in ["", "{}", "nonsense", "[1]"] {
        let (lines, request) = registration(text);
        drop(lines);
        reply(scene.exchange_at_socket(request).await).await.refusal(400, "bad_request");
    }
    let refused = scene.send("POST", "/v1/jobs/terminal", Some(json!({}))).await;
    refused.refusal(403, "socket_only");
    let at_socket = request("GET", "/v1/jobs/terminal", &[("host", "node")], "");
    reply(scene.exchange_at_socket(at_socket).await).await.refusal(405, "method");
    assert_eq!(scene.get("/v1/jobs").await.json()["jobs"], json!([]));
}
