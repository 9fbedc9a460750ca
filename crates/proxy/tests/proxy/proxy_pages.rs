//! Requests to the proxy itself.

use crate::scene::{Origin, Scene, field, ok, status, text};

async fn ask(scene: &Scene, request: &str) -> (String, String) {
    let mut program = scene.program().await;
    let port = scene.at.port().to_string();
    let request = request.replace("{at}", &scene.at.to_string()).replace("{port}", &port);
    program.send(&request).await;
    let head = program.head().await;
    if request.starts_with("HEAD") {
        return (head, String::new());
    }
    let n = field(&head, "content-length").unwrap().parse().unwrap();
    let content = text(program.take(n).await);
    (head, content)
}

#[tokio::test]
async fn the_pac_file_names_this_proxy() {
    let scene = Scene::new().await;
    let (head, pac) = ask(&scene, "GET /proxy.pac HTTP/1.1\r\nHost: {at}\r\n\r\n").await;
    assert_eq!(status(&head), 200);
    assert_eq!(field(&head, "content-type"), Some("application/x-ns-proxy-autoconfig"));
    assert!(pac.starts_with("function FindProxyForURL(url, host) {"), "{pac}");
    let words = format!("return \"PROXY {0}; SOCKS5 {0}; DIRECT\";", scene.at);
    assert!(pac.contains(&words), "{pac}");
    let (head, _) = ask(&scene, "HEAD /proxy.pac HTTP/1.1\r\nHost: {at}\r\n\r\n").await;
    assert_eq!(field(&head, "content-length"), Some(&*pac.len().to_string()));
    let (_, old) = ask(&scene, "GET /proxy.pac HTTP/1.0\r\n\r\n").await;
    assert_eq!(old, pac);
}

#[tokio::test]
async fn it_listens_and_forwards_by_ipv6() {
    let config = thalweg_proxy::ProxyConfig::new("[::1]:0".parse().unwrap());
    let chooser =
        thalweg_paths::history_chooser::HistoryChooser::new(Box::new(|_| Vec::new()), None);
    let scene = Scene::with(config, std::sync::Arc::new(chooser)).await;
    let (_, pac) = ask(&scene, "GET /proxy.pac HTTP/1.1\r\nHost: {at}\r\n\r\n").await;
    assert!(pac.contains(&format!("PROXY [::1]:{}; ", scene.at.port())), "{pac}");
    let origin = Origin::at("[::1]:0").await;
    let mut program = scene.program().await;
    program.send(origin.get("/six", "")).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert!(head.starts_with("GET /six HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some(&*origin.at.to_string()));
    at.send(ok("6")).await;
    assert_eq!(text(program.answer().await.1), "6");
}

#[tokio::test]
async fn the_metrics_count_what_was_done() {
    let scene = Scene::new().await;
    let (head, _) = ask(&scene, "GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n").await;
    assert!(field(&head, "content-type").unwrap().starts_with("application/openmetrics-text"));
    let (_, text) = ask(&scene, "GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n").await;
    assert!(text.contains("\nthalweg_proxy_connections_total 2\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let families = crate::exposition::parse(&text).unwrap();
    assert_eq!(crate::exposition::problems(&families), Vec::<String>::new());
}

#[tokio::test]
async fn other_pages_hosts_and_methods_are_refused_with_a_reason() {
    let scene = Scene::new().await;
    for (request, code) in [
        ("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n", 200),
        ("GET /metrics HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n", 421),
        ("GET /x HTTP/1.1\r\nHost: {at}\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: {at}\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: www.example\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n", 200),
        // Another's name that leads here, as a web page would use it.
        ("GET /proxy.pac HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: {at}\r\nHost: rebound.example:{port}\r\n\r\n", 421),
    ] {
        let (head, _) = ask(&scene, request).await;
        assert_eq!(status(&head), code, "{request}");
        let error = (code >= 400).then_some("thalweg; error=http_request_denied");
        assert_eq!(field(&head, "proxy-status"), error, "{request}");
    }
}
