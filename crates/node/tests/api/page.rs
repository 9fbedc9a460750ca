//! The page: links, cookies, files, and headers.

use super::scene::{Reply, Scene};
use serde_json::json;

impl Scene {
    /// The path of a new link.
    pub async fn link(&self) -> String {
        let link = self.at_socket("POST", "/v1/page/links").await;
        assert_eq!(link.status, 200, "{link:?}");
        let url = link.json()["url"].as_str().unwrap().to_owned();
        url.strip_prefix(&format!("http://{}", self.host())).unwrap().to_owned()
    }

    async fn visit(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let host = self.host();
        let headers: Vec<_> = [("host", &*host)].iter().chain(headers).copied().collect();
        self.raw("GET", path, &headers, "").await
    }

    /// The cookie of a new session.
    pub async fn cookie(&self) -> String {
        let entered = self.visit(&self.link().await, &[]).await;
        assert_eq!((entered.status, entered.header("location")), (303, "/"), "{entered:?}");
        entered.header("set-cookie").split(';').next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_link_opens_the_page_once() {
    let scene = Scene::start().await;
    let link = scene.link().await;
    let host = scene.host();
    // A program that only looks does not use it up.
    assert_eq!(scene.raw("HEAD", &link, &[("host", &host)], "").await.status, 204);
    let entered = scene.visit(&link, &[("sec-fetch-site", "none")]).await;
    assert_eq!((entered.status, entered.header("location")), (303, "/"));
    let cookie = entered.header("set-cookie").to_owned();
    let port = scene.api.unwrap().port();
    assert!(cookie.starts_with(&format!("thalweg-{port}=")), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    let page = scene.visit("/", &[("cookie", cookie)]).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("set-cookie").starts_with(cookie), "it is kept for longer");
    assert_eq!(scene.visit("/v1/jobs", &[("cookie", cookie)]).await.json()["jobs"], json!([]));

    // A stolen old link.
    for path in [link.as_str(), "/enter", "/enter?code=", "/enter?code=0", "/enter?code=%ff"] {
        let refused = scene.visit(path, &[]).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (403, ""), "{refused:?}");
        assert!(refused.text().contains("thalweg page"), "{}", refused.text());
    }
    // The code itself is no cookie.
    let code = link.split_once("code=").unwrap().1;
    let cookie = format!("thalweg-{port}={code}");
    scene.visit("/v1/jobs", &[("cookie", &cookie)]).await.refusal(401, "unauthorized");
}

#[tokio::test]
async fn links_are_made_only_for_the_owner_at_the_socket() {
    let scene = Scene::start().await;
    let refused = scene.send("POST", "/v1/page/links", None).await;
    assert!(refused.refusal(403, "socket_only").contains("node.sock"));
    let (cookie, own) = (scene.cookie().await, format!("http://{}", scene.host()));
    let host = scene.host();
    let headers = [("host", &*host), ("cookie", &*cookie), ("origin", &*own)];
    let refused = scene.raw("POST", "/v1/page/links", &headers, "").await;
    refused.refusal(403, "socket_only");
}

#[tokio::test]
async fn a_browser_without_a_session_is_told_how_to_get_one() {
    let scene = Scene::start().await;
    let locked = scene.visit("/", &[]).await;
    assert_eq!((locked.status, locked.header("content-type")), (401, "text/html; charset=utf-8"));
    assert!(locked.text().contains("<code>thalweg page</code>"), "{}", locked.text());
    assert!(!locked.text().contains("<script") && !locked.text().contains("style"));
    for path in ["/app.js", "/charts.js", "/app.css", "/favicon.svg", "/v1/openapi.json"] {
        scene.visit(path, &[]).await.refusal(401, "unauthorized");
    }
}

#[tokio::test]
async fn files_are_sent_once_and_all_replies_are_protected() {
    let scene = Scene::start().await;
    let cookie = scene.cookie().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/charts.js", "text/javascript; charset=utf-8"),
        ("/app.css", "text/css; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml"),
    ] {
        let file = scene.visit(path, &[("cookie", &cookie)]).await;
        assert_eq!((file.status, file.header("content-type")), (200, kind), "{path}");
        assert_eq!(file.header("cache-control"), "no-cache");
        assert!(!file.body.is_empty());
        let again =
            scene.visit(path, &[("cookie", &cookie), ("if-none-match", file.header("etag"))]).await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
    }
    for path in ["/", "/app.js", "/v1/jobs", "/v1/nothing", "/enter?code=0"] {
        for cookie in [&*cookie, ""] {
            let reply = scene.visit(path, &[("cookie", cookie)]).await;
            let policy = reply.header("content-security-policy");
            assert!(policy.starts_with("default-src 'self'; frame-ancestors 'none'"), "{reply:?}");
            assert_eq!(reply.header("x-content-type-options"), "nosniff");
            assert_eq!(reply.header("referrer-policy"), "no-referrer");
            assert!(!reply.header("cache-control").is_empty());
        }
    }
    let jobs = scene.visit("/v1/jobs", &[("cookie", &cookie)]).await;
    assert_eq!(jobs.header("cache-control"), "no-store");
}
