//! Requests that are refused, and the description of the API.

use super::scene::Scene;
use serde_json::{Value, json};

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_refused_in_json() {
    let scene = Scene::start().await;
    for path in ["/v1", "/v1/", "/v2/jobs", "/v1/jobs/", "/v1/jobs/1/2/3", "/page/../v1/jobs"] {
        scene.get(path).await.refusal(404, "not_found");
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/jobs", ["GET", "HEAD", "POST"].as_slice()),
        ("PUT", "/v1/jobs/7", &["GET", "HEAD", "DELETE"]),
        ("POST", "/v1/status", &["GET", "HEAD"]),
        ("GET", "/v1/jobs/7/pause", &["POST"]),
        ("TRACE", "/v1/events", &["GET", "HEAD"]),
        ("PATCH", "/", &["GET", "HEAD"]),
    ] {
        let refused = scene.send(method, path, None).await;
        refused.refusal(405, "method");
        let mut listed: Vec<_> = refused.header("allow").split(',').map(str::trim).collect();
        let mut wanted = allowed.to_vec();
        listed.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(listed, wanted, "{method} {path}");
    }
    scene.at_socket("DELETE", "/v1/jobs").await.refusal(405, "method");
    scene.at_socket("GET", "/").await.refusal(404, "not_found");
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused_in_json() {
    let scene = Scene::start().await;
    let (host, bearer) = (scene.host(), scene.bearer());
    let send = async |path: &str, kind: &str, body: &str| {
        let method = if path.ends_with("priority") { "PUT" } else { "POST" };
        let headers = [("host", &*host), ("authorization", &*bearer), ("content-type", kind)];
        scene.raw(method, path, &headers, body).await
    };
    let id = scene.add_job().await;
    let priority = format!("/v1/jobs/{id}/priority");
    let json = "application/json";
    for path in ["/v1/jobs", &priority, "/v1/tokens", "/v1/revoke", "/v1/drop-boxes/strike"] {
        send(path, json, "{").await.refusal(400, "bad_request");
        send(path, json, "").await.refusal(400, "bad_request");
        for body in ["[]", "null", "7", "{}", "{\"a\": 1}"] {
            send(path, json, body).await.refusal(422, "bad_request");
        }
        send(path, "text/plain", "{}").await.refusal(415, "media_type");
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(64 * 1024));
        send(path, json, &long).await.refusal(413, "too_large");
    }
    let unknown = json!({ "arguments": ["get", "https://a/b"], "directory": "/", "at_once": true });
    send("/v1/jobs", json, &unknown.to_string()).await.refusal(422, "bad_request");
    let relative = json!({ "arguments": ["get", "https://a/b"], "directory": "." });
    send("/v1/jobs", json, &relative.to_string()).await.refusal(400, "bad_request");
    let other = json!({ "arguments": ["node"], "directory": "/" });
    send("/v1/jobs", json, &other.to_string()).await.refusal(400, "bad_request");
}

#[tokio::test]
async fn what_the_node_does_not_have_is_refused_with_its_own_code() {
    let scene = Scene::start().await;
    scene.get("/v1/roster").await.refusal(404, "no_roster");
    scene.get("/v1/interfaces").await.refusal(404, "no_interfaces");
    assert_eq!(scene.get("/v1/paths").await.json(), json!({ "paths": null, "candidates": [] }));
    let matrix = scene.get("/v1/paths/matrix").await;
    assert_eq!((matrix.status, matrix.header("content-type")), (200, "application/octet-stream"));
    let (host, bearer, etag) = (scene.host(), scene.bearer(), matrix.header("etag"));
    let headers = [("host", &*host), ("authorization", &*bearer), ("if-none-match", etag)];
    let again = scene.raw("GET", "/v1/paths/matrix", &headers, "").await;
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, etag));
    let since = format!("/v1/paths/matrix?since={}", etag.trim_matches('"'));
    let changes = scene.get(&since).await;
    assert!(
        changes.status == 200 && String::from_utf8_lossy(&changes.body).contains("\"changed\":0"),
        "{changes:?}"
    );
    assert_eq!(scene.get("/v1/drop-boxes").await.json(), Value::Null);
    assert_eq!(scene.get("/v1/carrier").await.json(), Value::Null);
    scene.get("/v1/oracle").await.refusal(502, "oracle_down");
    let strike = json!({ "drop_box": "taxes", "numbers": [1], "keys": [] });
    let refused = scene.send("POST", "/v1/drop-boxes/strike", Some(strike)).await;
    refused.refusal(404, "no_drop_box");
}

#[tokio::test]
async fn the_description_names_every_error_and_all_its_references_exist() {
    let scene = Scene::start().await;
    let api = scene.get("/v1/openapi.json").await.json();
    assert_eq!(api, scene.at_socket("GET", "/v1/openapi.json").await.json());
    assert_eq!(api["openapi"], "3.1.0");
    let paths = api["paths"].as_object().unwrap();
    assert!(paths.len() >= 20, "{}", paths.len());
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let responses = &operation["responses"];
            assert!(operation["summary"].is_string(), "{method} {path}");
            for status in ["401", "403"] {
                let schema = &responses[status]["content"]["application/json"]["schema"];
                assert_eq!(schema["$ref"], "#/components/schemas/ApiError", "{method} {path}");
            }
            if operation["requestBody"]["content"]["application/json"].is_object() {
                assert!(responses["422"].is_object() && responses["415"].is_object(), "{path}");
            }
            if path.starts_with("/v1/jobs") || path == "/v1/events" {
                assert!(responses["503"].is_object(), "{method} {path}");
            }
        }
    }
    let text = api.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(api.pointer(pointer).is_some(), "{pointer}");
    }
}
