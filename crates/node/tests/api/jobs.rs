//! The life of jobs over the API.

use super::scene::Scene;
use serde_json::{Value, json};

#[tokio::test]
async fn a_job_is_queued_changed_and_forgotten() {
    let scene = Scene::start().await;
    let body = json!({
        "arguments": ["get", "https://example.org/big.iso", "-P", "/srv/my data"],
        "directory": "/srv", "priority": "low", "at": "2100-01-01T00:00:00Z",
    });
    let added = scene.send("POST", "/v1/jobs", Some(body)).await;
    assert_eq!(added.status, 201, "{added:?}");
    let job = added.json();
    assert_eq!((&job["state"], &job["priority"]), (&json!("queued"), &json!("low")));
    assert_eq!(job["command"], "thalweg get https://example.org/big.iso -P '/srv/my data'");
    let at = |rest: &str| format!("/v1/jobs/{}{rest}", job["id"]);
    assert_eq!(scene.get(&at("")).await.json()["id"], job["id"]);
    assert_eq!(scene.get(&at("/events")).await.json(), json!({ "events": [] }));

    let change = async |method: &str, path: &str, body: Option<Value>| {
        let done = scene.send(method, &at(path), body).await;
        assert_eq!(done.status, 200, "{done:?}");
        done.json()
    };
    let high = Some(json!({ "priority": "high" }));
    assert_eq!(change("PUT", "/priority", high).await["priority"], "high");
    assert_eq!(change("POST", "/pause", None).await["state"], "paused");
    assert_eq!(change("POST", "/resume", None).await["state"], "queued");
    scene.send("DELETE", &at(""), None).await.refusal(409, "bad_state");
    assert_eq!(change("POST", "/cancel", None).await["state"], "cancelled");
    scene.send("POST", &at("/pause"), None).await.refusal(409, "bad_state");
    assert_eq!(scene.get("/v1/jobs").await.json()["jobs"].as_array().unwrap().len(), 1);
    let gone = scene.send("DELETE", &at(""), None).await;
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    scene.get(&at("")).await.refusal(404, "no_job");
}

#[tokio::test]
async fn a_job_that_does_not_exist_is_not_found_by_any_request() {
    let scene = Scene::start().await;
    for id in
        ["1", "0", "18446744073709551615", "18446744073709551616", "-1", "+1", "a", "%ff", "1.0"]
    {
        let at = |rest: &str| format!("/v1/jobs/{id}{rest}");
        scene.get(&at("")).await.refusal(404, "no_job");
        scene.get(&at("/events")).await.refusal(404, "no_job");
        scene.send("DELETE", &at(""), None).await.refusal(404, "no_job");
        for action in ["/pause", "/resume", "/cancel"] {
            scene.send("POST", &at(action), None).await.refusal(404, "no_job");
        }
        let body = Some(json!({ "priority": "low" }));
        scene.send("PUT", &at("/priority"), body).await.refusal(404, "no_job");
    }
}
