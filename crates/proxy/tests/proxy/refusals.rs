//! Requests that are not forwarded, and what the program is told.

use crate::scene::{Origin, Scene, field, ok, status};
use std::sync::Arc;
use thalweg_net::Dialer;
use thalweg_paths::history_chooser::HistoryChooser;
use thalweg_proxy::{Proxy, ProxyConfig, ProxyError};
use tokio::net::TcpListener;

async fn answer(scene: &Scene, request: &str) -> (u16, String) {
    let mut program = scene.program().await;
    program.send(request).await;
    let head = program.head().await;
    let error = field(&head, "proxy-status").unwrap_or_default().to_owned();
    (status(&head), error)
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let scene = Scene::new().await;
    let origin = Origin::new().await;
    let url = origin.url("/");
    for (request, code) in [
        (format!("GET {url} HTTP/1.1\r\n\r\n"), 400),
        (format!("GET {url} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400),
        (format!("GET {url} HTTP/1.1\r\nHost: a\r\nbad name: 1\r\n\r\n"), 400),
        ("GET https://127.0.0.1/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501),
        ("GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501),
        ("CONNECT 127.0.0.1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        (
            format!(
                "POST {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
            ),
            501,
        ),
        (
            format!(
                "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
            ),
            400,
        ),
    ] {
        let (status, error) = answer(&scene, &request).await;
        assert_eq!(status, code, "{request}");
        assert!(error.starts_with("thalweg; error=http_re"), "{request}: {error}");
    }
}

#[tokio::test]
async fn a_failed_connection_gives_the_reason() {
    let scene = Scene::new().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let get = |at: &str| format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let connect = |at: &str| format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let closed = closed.to_string();
    let name = "no-such-name.invalid:80";
    for request in [get(&closed), connect(&closed)] {
        assert_eq!(
            answer(&scene, &request).await,
            (502, "thalweg; error=connection_refused".into())
        );
    }
    for request in [get(name), connect(name)] {
        assert_eq!(answer(&scene, &request).await, (502, "thalweg; error=dns_error".into()));
    }
    assert_eq!(scene.end().await.0.refused, 4);
}

#[tokio::test]
async fn nothing_goes_in_circles() {
    let scene = Scene::new().await;
    let at = scene.at;
    let to_itself = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
    assert_eq!(answer(&scene, &to_itself).await.0, 508);
    let by_name = format!("CONNECT localhost:{} HTTP/1.1\r\nHost: a\r\n\r\n", at.port());
    assert_eq!(answer(&scene, &by_name).await, (508, "thalweg; error=proxy_loop_detected".into()));
    // By another proxy in between: our own name comes back.
    let origin = Origin::new().await;
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut other = origin.accept().await;
    let via = field(&other.head().await, "via").unwrap().to_owned();
    let back = format!("Via: {via}, 1.1 other\r\n");
    assert_eq!(answer(&scene, &origin.get("/", &back)).await.0, 508);
    other.send(ok("")).await;
    program.head().await;
}

/// Names that are not near and lead to this host without a line in /etc/hosts: old spellings of 127.0.0.1, which the
/// system's resolver accepts.
#[tokio::test]
async fn foreign_names_do_not_lead_to_this_host() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    for host in ["127.1", "0x7f.0.0.1"] {
        let at = format!("{host}:{}", origin.at.port());
        let get = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
        let connect = format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n");
        for request in [get, connect] {
            let told = answer(&scene, &request).await;
            assert_eq!(told, (403, "thalweg; error=destination_ip_prohibited".into()), "{request}");
        }
    }
    for host in ["localhost", "127.0.0.1"] {
        let at = format!("{host}:{}", origin.at.port());
        let mut program = scene.program().await;
        program.send(format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n")).await;
        assert_eq!(status(&program.head().await), 200, "{host}");
    }
}

#[tokio::test]
async fn max_forwards_is_counted_down_and_obeyed() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let last = origin.ask("OPTIONS", "/", "Max-Forwards: 0\r\n");
    assert_eq!(answer(&scene, &last).await.0, 405);
    let mut program = scene.program().await;
    program.send(origin.ask("OPTIONS", "/", "Max-Forwards: 2\r\n")).await;
    let mut at = origin.accept().await;
    assert_eq!(field(&at.head().await, "max-forwards"), Some("1"));
}

#[tokio::test]
async fn an_origin_that_speaks_no_http_is_named() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("SSH-2.0-x\r\n").await;
    let (head, content) = program.answer().await;
    assert_eq!(status(&head), 502);
    let content = String::from_utf8(content).unwrap();
    assert!(content.contains(&origin.at.to_string()), "{content}");
}

#[tokio::test]
async fn the_proxy_does_not_start_where_others_could_use_it() {
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let config = ProxyConfig::new(open.parse().unwrap());
        let chooser = Arc::new(HistoryChooser::new(Box::new(|_| Vec::new()), None));
        let bound = Proxy::bind(config, Dialer::default(), chooser, Arc::new(())).await;
        assert!(matches!(bound, Err(ProxyError::Open(_))), "{open}");
    }
}

#[tokio::test]
async fn content_with_invalid_chunks_is_the_programs_fault() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("POST", "/", "Transfer-Encoding: chunked\r\n")).await;
    program.send("2\r\nhi\r\n").await;
    let mut at = origin.accept().await;
    at.until("hi\r\n").await;
    program.send("no chunk\r\n").await;
    assert_eq!(status(&program.head().await), 400);
    assert!(!at.rest().await.ends_with(b"0\r\n\r\n"), "it looks whole");
}

#[tokio::test]
async fn its_own_port_is_known_in_both_families() {
    let scene = Scene::new().await;
    let own = format!("[::ffff:127.0.0.1]:{}", scene.at.port());
    let connect = format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n");
    assert_eq!(answer(&scene, &connect).await.0, 508);
    let mapped = ProxyConfig::new("[::ffff:127.0.0.1]:0".parse().unwrap());
    let chooser = Arc::new(HistoryChooser::new(Box::new(|_| Vec::new()), None));
    let scene = Scene::with(mapped, chooser).await;
    let own = format!("127.0.0.1:{}", scene.at.port());
    let connect = format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n");
    assert_eq!(answer(&scene, &connect).await.0, 508);
}
