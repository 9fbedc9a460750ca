//! Where messages end: reused connections, chunks, lengths, answers without content.

use crate::scene::{Origin, Scene, field, ok, status, text};
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn connections_of_both_sides_are_used_again() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/1", "")).await;
    let mut at = origin.accept().await;
    for n in 1..=3 {
        assert!(at.head().await.starts_with(&format!("GET /{n} HTTP/1.1\r\n")));
        at.send(ok(&n.to_string())).await;
        let (head, content) = program.answer().await;
        assert_eq!((status(&head), text(content)), (200, n.to_string()));
        // If the proxy opened a second connection, this origin would never see the request.
        program.send(origin.get(&format!("/{}", n + 1), "")).await;
    }
    at.head().await;
    at.send(ok("4")).await;
    program.answer().await;
    drop((program, at));
    let (summary, events) = scene.end().await;
    assert_eq!((summary.connections, summary.requests, events.len()), (1, 4, 4));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/1", "") + &origin.get("/2", "")).await;
    let mut at = origin.accept().await;
    for n in ["1", "2"] {
        assert!(at.head().await.starts_with(&format!("GET /{n} ")));
        at.send(ok(n)).await;
    }
    assert_eq!(text(program.answer().await.1), "1");
    assert_eq!(text(program.answer().await.1), "2");
}

#[tokio::test]
async fn a_program_of_http_1_0_gets_an_end_it_understands() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("GET {} HTTP/1.0\r\n\r\n", origin.url("/old"))).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert!(head.starts_with("GET /old HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some(&*origin.at.to_string()));
    assert!(field(&head, "via").unwrap().starts_with("1.0 thalweg-"));
    at.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    let answer = text(program.rest().await);
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    assert_eq!(field(&answer, "transfer-encoding"), None);
}

#[tokio::test]
async fn an_idle_link_that_the_origin_closed_costs_the_program_nothing() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/1", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(ok("1")).await;
    program.answer().await;
    program.send(origin.get("/2", "")).await;
    // The second request reaches the old link, which is closed without an answer.
    at.head().await;
    drop(at);
    let mut again = origin.accept().await;
    assert!(again.head().await.starts_with("GET /2 "));
    again.send(ok("2")).await;
    assert_eq!(text(program.answer().await.1), "2");
}

#[tokio::test]
async fn a_request_that_is_not_safe_is_sent_only_once() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/1", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(ok("1")).await;
    program.answer().await;
    program.send(origin.ask("POST", "/2", "Content-Length: 1\r\n") + "x").await;
    at.head().await;
    drop(at);
    let (head, _) = program.answer().await;
    assert_eq!(status(&head), 502);
    assert!(field(&head, "proxy-status").unwrap().contains("http_response_incomplete"));
}

#[tokio::test]
async fn chunks_go_both_ways_with_their_trailers() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let lines = "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\nTE: trailers\r\n";
    program.send(origin.ask("POST", "/", lines)).await;
    program.send("5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nX-Sum: 7\r\n\r\n").await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    assert_eq!((field(&head, "content-length"), field(&head, "te")), (None, Some("trailers")));
    let (content, trailers) = unchunked(&at.until("\r\n\r\n").await);
    assert_eq!(content, "hello world");
    assert_eq!(trailers.to_ascii_lowercase(), "x-sum: 7");
    at.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n").await;
    at.send("2\r\nhi\r\n0\r\nX-End: 8\r\n\r\n").await;
    let head = program.head().await;
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    let (content, trailers) = unchunked(&program.until("\r\n\r\n").await);
    assert_eq!((content.as_str(), trailers.to_ascii_lowercase().as_str()), ("hi", "x-end: 8"));
}

/// The content of chunks, and the trailer section.
fn unchunked(text: &str) -> (String, String) {
    let (mut content, mut rest) = (String::new(), text);
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
        if size == 0 {
            return (content, after.trim_end().to_owned());
        }
        content += &after[..size];
        rest = &after[size + 2..];
    }
}

#[tokio::test]
async fn an_upload_arrives_as_it_was_sent() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let sent = content.clone();
    let head = origin.ask("PUT", "/", &format!("Content-Length: {}\r\n", sent.len()));
    let upload = tokio::spawn(async move {
        program.send(head).await;
        program.send(sent).await;
        program
    });
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert_eq!(field(&head, "content-length"), Some(&*content.len().to_string()));
    assert_eq!(field(&head, "transfer-encoding"), None);
    assert!(at.take(content.len()).await == content, "other bytes");
    at.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(status(&upload.await.unwrap().head().await), 201);
}

#[tokio::test]
async fn answers_without_content_keep_their_fields_and_the_connection() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("HEAD", "/head", "")).await;
    let mut at = origin.accept().await;
    for (method, answer, length) in [
        ("HEAD", "200 OK\r\nContent-Length: 1234", Some("1234")),
        ("GET", "204 No Content\r\nETag: \"x\"", None),
        // hyper leaves out the length that a 304 may state (RFC 9110 §8.6).
        ("GET", "304 Not Modified\r\nContent-Length: 99\r\nETag: \"x\"", None),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked", None),
        ("GET", "205 Reset Content\r\nContent-Length: 0", Some("0")),
    ] {
        at.head().await;
        at.send(format!("HTTP/1.1 {answer}\r\n\r\n")).await;
        let head = program.head().await;
        assert_eq!(status(&head).to_string(), answer[..3]);
        assert_eq!(field(&head, "content-length"), length, "{method} {answer}: {head}");
        if answer.contains("ETag") {
            assert_eq!(field(&head, "etag"), Some("\"x\""));
        }
        let next = if answer.contains("204") { "GET" } else { "HEAD" };
        let next = if answer.contains("1234") || answer.contains("chunked") { "GET" } else { next };
        program.send(origin.ask(next, "/next", "")).await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_looks_complete() {
    for (head, sent) in [
        ("Content-Length: 10", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n"),
        ("Transfer-Encoding: chunked", "a\r\nabc"),
    ] {
        let (scene, origin) = (Scene::new().await, Origin::new().await);
        let mut program = scene.program().await;
        program.send(origin.get("/", "")).await;
        let mut at = origin.accept().await;
        at.head().await;
        at.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{sent}")).await;
        let answer = program.head().await;
        at.end().await;
        drop(at);
        let rest = String::from_utf8_lossy(&program.rest().await).into_owned();
        match field(&answer, "content-length") {
            Some(length) => assert!(rest.len() < length.parse().unwrap(), "{rest}"),
            None => assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}"),
        }
        let (_, events) = scene.end().await;
        let told = format!("{events:?}");
        assert!(told.contains("complete: false"), "{told}");
    }
}

#[tokio::test]
async fn a_length_beside_chunks_is_not_passed_on() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let lines = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
    program.send(origin.ask("POST", "/", lines) + "0\r\n\r\n").await;
    // Both are sound: refusing it, or passing on one reading of it.
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert_eq!(field(&head, "content-length"), None, "{head}");
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    at.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    at.send("1\r\na\r\n0\r\n\r\n").await;
    let head = program.head().await;
    assert_eq!(field(&head, "content-length"), None, "{head}");
    assert_eq!(program.until("0\r\n\r\n").await, "1\r\na\r\n0\r\n\r\n");
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_arrives() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.0 200 OK\r\n\r\nold").await;
    at.end().await;
    let head = program.head().await;
    assert!(field(&head, "via").unwrap().starts_with("1.0 thalweg-"), "{head}");
    assert_eq!(unchunked(&program.until("\r\n\r\n").await).0, "old");
}

/// Bytes that may lie between an origin and a program that does not read: the kernel buffers of both ends on two
/// connections (6 MB to receive, 4 MB to send), and the proxy's own.
const BETWEEN: usize = 24 << 20;

#[tokio::test]
async fn a_slow_origin_slows_the_program() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let length = 4 * BETWEEN;
    program.send(origin.ask("PUT", "/", &format!("Content-Length: {length}\r\n"))).await;
    let mut at = origin.accept().await;
    at.head().await;
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    let second = std::time::Duration::from_secs(1);
    while let Ok(n) = tokio::time::timeout(second, program.tcp.write(&piece)).await {
        sent += n.unwrap();
        assert!(sent < BETWEEN, "{sent} bytes wait for an origin that reads nothing");
    }
    let rest = tokio::spawn(async move {
        while sent < length {
            let n = piece.len().min(length - sent);
            program.send(&piece[..n]).await;
            sent += n;
        }
        program
    });
    for _ in 0..length >> 20 {
        assert!(at.take(1 << 20).await.iter().all(|b| *b == 7));
    }
    at.send(ok("all")).await;
    assert_eq!(text(rest.await.unwrap().answer().await.1), "all");
}

#[tokio::test]
async fn a_slow_reader_slows_the_origin() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    let length = 4 * BETWEEN;
    at.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")).await;
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    // As long as anything moves within a second, it is given more.
    let second = std::time::Duration::from_secs(1);
    while let Ok(n) = tokio::time::timeout(second, at.tcp.write(&piece)).await {
        sent += n.unwrap();
        assert!(sent < BETWEEN, "{sent} bytes wait for a program that reads nothing");
    }
    let rest = tokio::spawn(async move {
        while sent < length {
            let n = piece.len().min(length - sent);
            at.send(&piece[..n]).await;
            sent += n;
        }
    });
    program.head().await;
    for _ in 0..length >> 20 {
        assert!(program.take(1 << 20).await.iter().all(|b| *b == 7));
    }
    rest.await.unwrap();
}

/// Sends `answer`, then ends or resets the connection; returns what the HTTP/1.0 program reads last.
async fn end_for_http_1_0(answer: &str, reset: bool) -> std::io::Result<usize> {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("GET {} HTTP/1.0\r\n\r\n", origin.url("/"))).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(answer).await;
    program.until("abc").await;
    if reset {
        socket2::SockRef::from(&at.tcp).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
    drop(at);
    let mut rest = [0; 9];
    crate::scene::soon(tokio::io::AsyncReadExt::read(&mut program.tcp, &mut rest)).await
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_looks_complete_to_http_1_0() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (answer, reset) in [
        (format!("{chunked}3\r\nabc\r\n"), false),
        (format!("{chunked}3\r\nabc\r\n"), true),
        ("HTTP/1.0 200 OK\r\n\r\nabc".to_owned(), true),
    ] {
        let read = end_for_http_1_0(&answer, reset).await;
        let kind = read.expect_err("an end that says: this is all").kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{answer} {reset}");
    }
    let whole = end_for_http_1_0(&format!("{chunked}3\r\nabc\r\n0\r\n\r\n"), false).await;
    assert_eq!(whole.unwrap(), 0);
}
