//! The stream of changes.

use super::scene::{Scene, read_until, reply};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

/// The ids and names of the events in a text; a block without an event has an empty name.
fn events(text: &str) -> Vec<(String, String)> {
    let field = |block: &str, name: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value.unwrap_or_default().to_owned()
    };
    let blocks = text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
    blocks.map(|block| (field(block, "id"), field(block, "event"))).collect()
}

fn data(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_client_that_reconnects_misses_nothing() {
    let scene = Scene::start().await;
    let response = scene.open("/v1/events", &[]).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    let mut body = response.into_body();
    // The first block has the position, before anything has happened.
    let position = read_until(&mut body, "\n\n").await;
    assert_eq!(events(&position)[0].1, "");
    let first = scene.add_job().await;
    let text = read_until(&mut body, "\"waits_for\":\"slot\"").await;
    let (seen, name) = events(&text).pop().unwrap();
    assert_eq!((name.as_str(), &data(&text)[0]["id"]), ("job", &json!(first)));
    drop(body);

    let (second, third) = (scene.add_job().await, scene.add_job().await);
    let resumed = scene.open("/v1/events?limit=2", &[("last-event-id", &seen)]).await;
    let text = reply(resumed).await.text();
    let ids: Vec<_> = data(&text).iter().map(|job| job["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [second, third]);
    // The position by which a browser reconnects that has seen no event yet is as good.
    let start = events(&position)[0].0.clone();
    let resumed = scene.open(&format!("/v1/events?limit=3&after={start}"), &[]).await;
    let ids: Vec<_> =
        data(&reply(resumed).await.text()).iter().map(|job| job["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [first, second, third]);
}

#[tokio::test]
async fn the_list_names_the_change_from_which_to_follow() {
    let scene = Scene::start().await;
    scene.add_job().await;
    let change = scene.get("/v1/jobs").await.json()["change"].as_str().unwrap().to_owned();
    let id = scene.add_job().await;
    let text = reply(scene.open(&format!("/v1/events?limit=1&after={change}"), &[]).await).await;
    assert_eq!(data(&text.text())[0]["id"], id);
}

#[tokio::test]
async fn a_client_of_another_run_is_told_to_begin_anew() {
    let scene = Scene::start().await;
    for id in ["1-1", "nonsense", "-", "99999999999999999999-1"] {
        let resumed = scene.open("/v1/events?limit=1", &[("last-event-id", id)]).await;
        let text = reply(resumed).await.text();
        let reset = events(&text).into_iter().find(|(_, name)| name == "reset").unwrap();
        let list = scene.get("/v1/jobs").await.json();
        assert_eq!(json!(reset.0), list["change"], "it continues from here");
    }
}

#[tokio::test]
async fn states_that_a_later_one_replaces_are_left_out() {
    let scene = Scene::start().await;
    let start = scene.get("/v1/jobs").await.json()["change"].as_str().unwrap().to_owned();
    let id = scene.add_job().await;
    for action in ["pause", "resume", "cancel"] {
        let done = scene.send("POST", &format!("/v1/jobs/{id}/{action}"), None).await;
        assert_eq!(done.status, 200, "{done:?}");
    }
    let text = reply(scene.open(&format!("/v1/events?seconds=1&after={start}"), &[]).await).await;
    let jobs = data(&text.text());
    assert_eq!((jobs.len(), &jobs[0]["state"]), (1, &json!("cancelled")), "{}", text.text());
    scene.send("DELETE", &format!("/v1/jobs/{id}"), None).await;
    let text = reply(scene.open(&format!("/v1/events?limit=1&after={start}"), &[]).await).await;
    assert_eq!(events(&text.text())[1].1, "job_removed");
    assert_eq!(data(&text.text()), [json!({ "id": id })]);
}

#[tokio::test]
async fn streams_are_bounded_in_length_and_number() {
    let scene = Scene::start().await;
    for query in
        ["limit=0", "seconds=0", "seconds=2592001", "limit=-1", "limit=1000001", "seconds="]
    {
        let refused = reply(scene.open(&format!("/v1/events?{query}"), &[]).await).await;
        refused.refusal(400, "bad_request");
    }
    let empty = reply(scene.open("/v1/events?seconds=1", &[]).await).await.text();
    assert_eq!(events(&empty).len(), 1, "only the position: {empty}");

    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(scene.open("/v1/events", &[]).await);
    }
    let refused = reply(scene.open("/v1/events", &[]).await).await;
    refused.refusal(429, "too_many_streams");
    assert_eq!(refused.header("retry-after"), "5");
    open.pop();
    // The place is free once the daemon sees that the client is gone.
    let free = async {
        while scene.open("/v1/events?seconds=1", &[]).await.status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), free).await.unwrap();
    // A daemon that ends, ends its streams.
    let mut body = open.pop().unwrap().into_body();
    read_until(&mut body, "\n\n").await;
    scene.end().await;
    assert!(body.frame().await.is_none_or(|frame| frame.is_err()));
}
