//! Who is let in, and who is not.

use super::scene::{Scene, request_as};
use http_body_util::BodyExt as _;
use serde_json::json;
use std::{
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// A user of this host who is neither the node's nor root.
const OTHER: u32 = 4242;

/// The user that the kernel also reports for users without a number.
const NOBODY: u32 = 65_534;

#[tokio::test]
async fn the_owner_needs_no_token_at_the_socket_and_programs_need_it_on_loopback() {
    let scene = Scene::start().await;
    assert_eq!(scene.at_socket("GET", "/v1/status").await.json()["name"], "n1");
    assert_eq!(scene.get("/v1/status").await.json()["name"], "n1");
    let mode = scene.token_file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let host = scene.host();
    let wrong = format!("{}0", scene.bearer());
    for bearer in ["", "Bearer", "Bearer 0", &wrong] {
        let headers = [("host", &*host), ("authorization", bearer)];
        let refused = scene.raw("GET", "/v1/jobs", &headers, "").await;
        let message = refused.refusal(401, "unauthorized");
        assert!(message.contains(scene.token_file.to_str().unwrap()), "{message}");
        assert!(message.contains("thalweg page"), "{message}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
    }
    // What does not exist is no secret, but strangers are not told either.
    let refused = scene.raw("GET", "/v1/nothing", &[("host", &host)], "").await;
    refused.refusal(401, "unauthorized");
}

#[tokio::test]
async fn a_name_that_was_rebound_to_loopback_is_refused() {
    let scene = Scene::start().await;
    let (bearer, port) = (scene.bearer(), scene.api.unwrap().port());
    let rebound = format!("evil.example:{port}");
    for host in [&rebound, "evil.example", "127.0.0.1", ""] {
        let headers = [("host", host), ("authorization", &*bearer)];
        for path in ["/", "/v1/jobs", "/enter?code=0", "/app.js"] {
            scene.raw("GET", path, &headers, "").await.refusal(403, "wrong_host");
        }
    }
    for host in [format!("localhost:{port}"), format!("[::1]:{port}")] {
        let headers = [("host", &*host), ("authorization", &*bearer)];
        assert_eq!(scene.raw("GET", "/v1/jobs", &headers, "").await.status, 200);
    }
}

#[tokio::test]
async fn a_form_on_another_site_changes_nothing() {
    let scene = Scene::start().await;
    let (host, cookie) = (scene.host(), scene.cookie().await);
    let body = json!({ "arguments": ["get", "https://a/b"], "directory": "/" }).to_string();
    let form = [("host", &*host), ("cookie", &*cookie), ("origin", "http://evil.example")];
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json"] {
        let headers: Vec<_> = form.iter().copied().chain([("content-type", kind)]).collect();
        scene.raw("POST", "/v1/jobs", &headers, &body).await.refusal(403, "wrong_origin");
        let headers: Vec<_> =
            headers.into_iter().chain([("sec-fetch-site", "cross-site")]).collect();
        scene.raw("POST", "/v1/jobs", &headers, &body).await.refusal(403, "cross_site");
    }
    // A browser that tells no origin, and one that tells it of another port of this host.
    let headers = [("host", &*host), ("cookie", &*cookie), ("content-type", "application/json")];
    scene.raw("POST", "/v1/jobs", &headers, &body).await.refusal(403, "wrong_origin");
    let near = [headers[0], headers[1], ("sec-fetch-site", "same-site")];
    scene.raw("GET", "/v1/jobs", &near, "").await.refusal(403, "cross_site");
    assert_eq!(scene.get("/v1/jobs").await.json()["jobs"], json!([]));

    let own = format!("http://{host}");
    let headers: Vec<_> = headers.into_iter().chain([("origin", &*own)]).collect();
    assert_eq!(scene.raw("POST", "/v1/jobs", &headers, &body).await.status, 201);
}

#[tokio::test]
async fn no_page_of_another_origin_is_let_in_by_a_preflight() {
    let scene = Scene::start().await;
    let host = scene.host();
    let headers = [
        ("host", &*host),
        ("origin", "http://evil.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    let refused = scene.raw("OPTIONS", "/v1/jobs", &headers, "").await;
    refused.refusal(401, "unauthorized");
    assert!(!refused.headers.keys().any(|name| name.as_str().starts_with("access-control")));
}

#[tokio::test]
async fn strangers_that_connect_and_wait_keep_nobody_out() {
    let scene = Scene::start().await;
    let at = scene.api.unwrap();
    let mut events = scene.open("/v1/events", &[]).await.into_body();
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut tcp = TcpStream::connect(at).await.unwrap();
        tcp.write_all(b"GET / HT").await.unwrap();
        idle.push(tcp);
    }
    // Once the other connections are a second old, a new one gets a place.
    let served = async {
        let request = format!("GET /v1/jobs HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
        loop {
            let (mut tcp, mut text) = (TcpStream::connect(at).await.unwrap(), String::new());
            let sent = tcp.write_all(request.as_bytes()).await;
            if sent.is_ok() && tcp.read_to_string(&mut text).await.is_ok() && !text.is_empty() {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let text = timeout(Duration::from_secs(20), served).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 401"), "{text}");
    // The stream of a known caller goes on.
    scene.add_job().await;
    super::scene::read_until(&mut events, "event: job").await;
    drop(idle);
}

#[tokio::test]
async fn another_user_of_the_host_can_use_neither_cookie_nor_token() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let scene = Scene::start().await;
    let (cookie, bearer, link) = (scene.cookie().await, scene.bearer(), scene.link().await);
    let cookie = format!("Cookie: {cookie}");
    for user in [OTHER, NOBODY] {
        let stolen = request_as(user, &scene, "/v1/jobs", &cookie).await;
        assert!(stolen.starts_with("HTTP/1.1 401 "), "{stolen}");
        let page = request_as(user, &scene, "/", &cookie).await;
        assert!(page.starts_with("HTTP/1.1 401 ") && page.contains("thalweg page"), "{page}");
        let token = format!("Authorization: {bearer}");
        let refused = request_as(user, &scene, "/v1/jobs", &token).await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        assert!(refused.contains("wrong_user"), "{refused}");
    }
    assert!(request_as(0, &scene, "/v1/jobs", &cookie).await.starts_with("HTTP/1.1 200 "));
    // A link can be given to another user, whose session it then opens: not even root can use that one.
    let entered = request_as(OTHER, &scene, &link, "X: y").await;
    assert!(entered.starts_with("HTTP/1.1 303 "), "{entered}");
    let theirs = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let theirs = format!("Cookie: {}", theirs.split(';').next().unwrap());
    assert!(request_as(OTHER, &scene, "/v1/jobs", &theirs).await.starts_with("HTTP/1.1 200 "));
    assert!(request_as(0, &scene, "/v1/jobs", &theirs).await.starts_with("HTTP/1.1 401 "));
    scene.end().await;
}

/// Connections that another user opened and keeps open.
struct Crowd(Child);

impl Crowd {
    /// Opens more than a user has places, as this user.
    async fn of(user: u32, scene: &Scene) -> Self {
        let port = scene.api.unwrap().port();
        let script = format!(
            "for n in $(seq 20); do exec {{fd}}<>/dev/tcp/127.0.0.1/{port}; done; echo; read -r"
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).uid(user).gid(user).current_dir("/");
        bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        tokio::task::spawn_blocking(move || {
            let mut child = bash.spawn().unwrap();
            let mut line = [0];
            let output = child.stdout.as_mut().unwrap();
            std::io::Read::read_exact(output, &mut line).unwrap();
            Self(child)
        })
        .await
        .unwrap()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Its standard input is closed by this, which ends it.
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn other_users_cannot_crowd_out_the_owner_or_each_other() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let scene = Scene::start().await;
    let mut crowds = Vec::new();
    for user in OTHER..OTHER + 5 {
        crowds.push(Crowd::of(user, &scene).await);
    }
    // All of these places are young, so that none could be taken from its user without a share of one's own.
    let text = request_as(OTHER + 9, &scene, "/v1/jobs", "X: y").await;
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    assert_eq!(scene.get("/v1/jobs").await.status, 200);
    drop(crowds);
}

#[tokio::test]
async fn a_revocation_ends_open_streams_and_replaces_the_token() {
    let scene = Scene::start().await;
    let (mut events, old) = (scene.open("/v1/events", &[]).await.into_body(), scene.bearer());
    let host = scene.host();
    scene.send("POST", "/v1/page/revoke", None).await.refusal(403, "socket_only");
    assert_eq!(scene.at_socket("POST", "/v1/page/revoke").await.status, 204);
    let ended = async { while let Some(Ok(_)) = events.frame().await {} };
    timeout(Duration::from_secs(20), ended).await.unwrap();
    let headers = [("host", &*host), ("authorization", &*old)];
    scene.raw("GET", "/v1/jobs", &headers, "").await.refusal(401, "unauthorized");
    assert_eq!(scene.get("/v1/jobs").await.status, 200, "the file has the new one");
}

#[tokio::test]
async fn a_default_port_that_is_taken_is_said_and_the_node_runs_without() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let scene = Scene::start_at(at, true).await;
    assert_eq!(scene.api, None);
    let event = scene.log.recv_timeout(Duration::from_secs(20)).unwrap().to_string();
    assert!(event.starts_with(&format!("event=no_page at={at} why=")), "{event}");
    let refused = scene.at_socket("POST", "/v1/page/links").await;
    let message = refused.refusal(503, "no_page");
    assert!(message.contains(&at.to_string()) && message.contains("[api] listen"), "{message}");
    let holder = format!("process {} (", std::process::id());
    assert!(message.contains(&holder), "{message}");
    scene.at_socket("POST", "/v1/page/revoke").await.refusal(503, "no_page");
    assert_eq!(scene.at_socket("GET", "/v1/status").await.status, 200);
}
