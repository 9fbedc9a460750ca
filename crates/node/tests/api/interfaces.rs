//! Changes of how processes use interfaces.

use super::scene::Scene;
use serde_json::json;

#[tokio::test]
async fn changes_reach_the_processes_as_the_command_line_sends_them() {
    let scene = Scene::start().await;
    let put = async |path: &str, body| scene.send("PUT", path, Some(body)).await.json();
    let settings = json!({ "schedule": "round-robin", "affinity": "2 min", "near": false });
    let changes =
        json!([{ "schedule": "round-robin" }, { "affinity": "120 s" }, { "near": false }]);
    assert_eq!(put("/v1/interfaces/settings", settings).await, changes);
    let policy = json!({ "tier": "backup", "rate_limit": "20 Mbit/s", "cap": "none" });
    let changed = put("/v1/interfaces/lte0/policy", policy).await;
    let changed = &changed[0]["policy"];
    assert_eq!((&changed["name"], &changed["tier"]), (&json!("lte0"), &json!("backup")));
    assert_eq!(changed["metered"], json!(null), "it stays");
    let rule = json!({ "process": "zoom*", "only": ["eth0"], "at": 1 });
    let added = scene.send("POST", "/v1/interfaces/rules", Some(rule)).await.json();
    let expected =
        json!([{ "rule": { "at": 1, "rule": { "process": "zoom*", "only": ["eth0"] } } }]);
    assert_eq!(added, expected);
}

#[tokio::test]
async fn changes_that_make_no_sense_are_refused() {
    let scene = Scene::start().await;
    for (method, path, body, why) in [
        ("PUT", "/v1/interfaces/settings", json!({}), "changes nothing"),
        ("PUT", "/v1/interfaces/settings", json!({ "affinity": "soon" }), "`affinity`"),
        ("PUT", "/v1/interfaces/lte0/policy", json!({}), "changes nothing"),
        ("PUT", "/v1/interfaces/lte0/policy", json!({ "cap": "much" }), "`cap`"),
        ("PUT", "/v1/interfaces/a%2Fb/policy", json!({ "metered": true }), "not the name"),
        (
            "PUT",
            "/v1/interfaces/sixteen-letters-/policy",
            json!({ "metered": true }),
            "not the name",
        ),
        ("POST", "/v1/interfaces/rules", json!({ "process": "curl" }), "exactly one of"),
        (
            "POST",
            "/v1/interfaces/rules",
            json!({ "only": ["a"], "avoid": ["b"] }),
            "exactly one of",
        ),
    ] {
        let refused = scene.send(method, path, Some(body)).await.refusal(400, "bad_request");
        assert!(refused.contains(why), "{path}: {refused}");
    }
    for body in
        [json!({ "tier": "first" }), json!({ "tiers": "never" }), json!({ "reset_day": 300 })]
    {
        let refused = scene.send("PUT", "/v1/interfaces/lte0/policy", Some(body)).await;
        refused.refusal(422, "bad_request");
    }
    let remove = async |number: &str| {
        scene.send("DELETE", &format!("/v1/interfaces/rules/{number}"), None).await
    };
    assert!(remove("3").await.refusal(409, "not_changed").contains("no rule"));
    remove("first").await.refusal(404, "no_rule");
}

#[tokio::test]
async fn a_page_elsewhere_changes_nothing() {
    let scene = Scene::start().await;
    let (host, cookie) = (scene.host(), scene.cookie().await);
    for origin in ["", "https://evil.example"] {
        let headers = [
            ("host", &*host),
            ("cookie", &*cookie),
            ("content-type", "application/json"),
            ("origin", origin),
        ];
        let headers = &headers[..if origin.is_empty() { 3 } else { 4 }];
        let body = r#"{"tier":"never"}"#;
        let refused = scene.raw("PUT", "/v1/interfaces/eth0/policy", headers, body).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
}
