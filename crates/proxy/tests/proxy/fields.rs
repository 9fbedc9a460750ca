//! Header fields: of one hop, of the message, large ones, many, and their case.

use crate::scene::{Origin, Scene, field, ok, status};

#[tokio::test]
async fn hop_by_hop_fields_are_not_passed_on() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let lines = "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nX-Yours: 2\r\nKeep-Alive: 5\r\n\
                 Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n\
                 Authorization: Basic YTpi\r\nTE: gzip\r\nUpgrade: h2c\r\n";
    program.send(origin.get("/", lines)).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    for gone in ["x-mine", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade"]
    {
        assert_eq!(field(&head, gone), None, "{gone} in {head}");
    }
    assert_eq!(field(&head, "x-yours"), Some("2"));
    assert_eq!(field(&head, "authorization"), Some("Basic YTpi"));
    assert!(field(&head, "via").unwrap().starts_with("1.1 thalweg-"));
    at.send(
        "HTTP/1.1 200 OK\r\nConnection: close, X-Theirs\r\nX-Theirs: 1\r\nX-Kept: 2\r\n\
         Keep-Alive: 9\r\nVia: 1.1 other\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let head = program.head().await;
    assert_eq!((field(&head, "x-theirs"), field(&head, "keep-alive")), (None, None));
    assert_eq!(field(&head, "x-kept"), Some("2"));
    let vias: Vec<_> = head.lines().filter(|l| l.to_ascii_lowercase().starts_with("via")).collect();
    assert_eq!(vias.len(), 2, "{head}");
    // The origin's `close` was for its own link, so the program's connection stays open.
    program.send(origin.get("/", "")).await;
    let mut next = origin.accept().await;
    next.head().await;
    next.send(ok("2")).await;
    program.answer().await;
}

#[tokio::test]
async fn host_comes_from_the_target_and_a_user_name_is_not_passed_on() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let target = format!("http://me:secret@{}/p?q=1", origin.at);
    program.send(format!("GET {target} HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n")).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert!(head.starts_with("GET /p?q=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some(&*origin.at.to_string()));
    assert!(!head.contains("secret"), "{head}");
}

#[tokio::test]
async fn names_keep_their_case() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "X-oDD-Case: 1\r\nx-low: 2\r\n")).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert!(head.contains("X-oDD-Case: 1\r\n") && head.contains("x-low: 2\r\n"), "{head}");
    at.send("HTTP/1.1 299 Odd Reason\r\nX-bACK: 3\r\nContent-Length: 0\r\n\r\n").await;
    let head = program.head().await;
    assert!(head.starts_with("HTTP/1.1 299 Odd Reason\r\n"), "{head}");
    assert!(head.contains("X-bACK: 3\r\n"), "{head}");
}

#[tokio::test]
async fn large_and_many_fields_pass() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let large = "c".repeat(60_000);
    let many: String = (0..300).map(|n| format!("X-{n}: {n}\r\n")).collect();
    program.send(origin.get("/", &format!("Cookie: {large}\r\n{many}"))).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert_eq!(field(&head, "cookie").unwrap().len(), large.len());
    assert_eq!(field(&head, "x-299"), Some("299"));
    at.send(format!("HTTP/1.1 200 OK\r\nSet-Cookie: {large}\r\n{many}Content-Length: 0\r\n\r\n"))
        .await;
    let head = program.head().await;
    assert_eq!(field(&head, "set-cookie").unwrap().len(), large.len());
    assert_eq!(field(&head, "x-299"), Some("299"));
}

#[tokio::test]
async fn too_many_fields_are_refused() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let many: String = (0..2000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    program.send(origin.get("/", &many)).await;
    assert_eq!(status(&program.head().await), 431);
}

#[tokio::test]
async fn repeated_lines_stay_apart_and_bytes_beyond_ascii_stay() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-L: \xe9\r\n").await;
    at.send("X-Fold: one\r\n  two\r\nContent-Length: 0\r\n\r\n").await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(program.take(1).await);
    }
    let has = |part: &[u8]| head.windows(part.len()).any(|w| w == part);
    assert!(has(b"Set-Cookie: a=1\r\n") && has(b"Set-Cookie: b=2\r\n"));
    assert!(has(b": \xe9\r\n"));
    assert!(has(b"X-Fold: one two\r\n"), "{}", String::from_utf8_lossy(&head));
}

#[tokio::test]
async fn a_repeated_length_is_passed_on_once() {
    for lines in ["Content-Length: 2, 2", "Content-Length: 2\r\nContent-Length: 2"] {
        let (scene, origin) = (Scene::new().await, Origin::new().await);
        let mut program = scene.program().await;
        program.send(origin.get("/", "")).await;
        let mut at = origin.accept().await;
        at.head().await;
        at.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nok")).await;
        let head = program.head().await.to_ascii_lowercase();
        let lengths = head.lines().filter(|line| line.starts_with("content-length:"));
        assert_eq!(lengths.collect::<Vec<_>>(), ["content-length: 2"], "{lines}");
        assert_eq!(program.take(2).await, b"ok");
    }
    // hyper refuses a list in a request (RFC 9110 §8.6 allows that as well).
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("POST", "/", "Content-Length: 2, 2\r\n") + "hi").await;
    assert_eq!(status(&program.head().await), 400);
}
