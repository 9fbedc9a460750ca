//! Messages that two readers may understand differently (RFC 9112 §11.1, §11.2): the proxy and the origin must never
//! disagree about where one ends.

use crate::scene::{Origin, Peer, Scene, field, ok, status, text};
use std::time::Duration;
use tokio::time::timeout;

/// A request hidden in a message: no origin may ever see it as a request of its own.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// How long an origin waits for what follows a head.
const BEHIND: Duration = Duration::from_millis(300);

/// Sends this request and ends the direction. Returns all that the origin gets meanwhile, and all that the program
/// gets.
async fn through(request: &str) -> (String, String) {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let url = origin.url("/");
    let mut program = scene.program().await;
    program.send(request.replace("{url}", &url).replace("{host}", &origin.at.to_string())).await;
    program.end().await;
    let mut got = String::new();
    let told = {
        let mut serving = std::pin::pin!(serve(&origin, &mut got));
        let told = tokio::select! {
            told = program.rest() => told,
            never = serving.as_mut() => match never {},
        };
        // The program may be answered before the origin has read all.
        _ = timeout(BEHIND + BEHIND / 2, serving).await;
        told
    };
    (got, String::from_utf8_lossy(&told).into_owned())
}

/// Answers each message after its head, as a strict origin would, and records all bytes.
async fn serve(origin: &Origin, got: &mut String) -> std::convert::Infallible {
    loop {
        let mut at = origin.accept().await;
        let mut bytes = Vec::new();
        while let Ok(1..) = tokio::io::AsyncReadExt::read_buf(&mut at.tcp, &mut bytes).await {
            if bytes.windows(4).any(|w| w == b"\r\n\r\n") {
                *got += &String::from_utf8_lossy(&bytes);
                at.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                    .await;
                // What follows belongs to the same message.
                let rest = timeout(BEHIND, at.rest()).await;
                bytes = rest.unwrap_or_default();
                break;
            }
        }
        *got += &String::from_utf8_lossy(&bytes);
    }
}

#[tokio::test]
async fn ambiguous_messages_are_refused_and_reach_no_origin() {
    let post = "POST {url} HTTP/1.1\r\nHost: {host}\r\n";
    for lines in [
        "Content-Length : 0",
        "Content-Length: +4",
        "Content-Length: -1",
        "Content-Length: 0x4",
        "Content-Length: 4, 5",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: \x0bchunked",
        "X: a\rTransfer-Encoding: chunked",
        "X: a\0b",
        " Transfer-Encoding: chunked",
        "Host: elsewhere",
    ] {
        let (got, told) = through(&format!("{post}{lines}\r\n\r\n{HIDDEN}")).await;
        assert_eq!(got, "", "{lines:?} reached the origin");
        assert!(told.is_empty() || matches!(status(&told), 400 | 501), "{lines:?}: {told}");
        assert!(!told.contains("200 OK"), "{lines:?}: {told}");
    }
}

#[tokio::test]
async fn invalid_chunks_end_the_message_and_the_connection() {
    let post = "POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "0x1\r\na\r\n0\r\n\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\na",
        "2\r\nabc\r\n0\r\n\r\n",
        "\r\n",
    ] {
        let (got, told) = through(&format!("{post}{chunks}{HIDDEN}")).await;
        assert!(!got.contains("/hidden") && !got.ends_with("0\r\n\r\n"), "{chunks:?}: {got}");
        assert!(!told.contains("hidden"), "{chunks:?}: {told}");
    }
}

#[tokio::test]
async fn bare_line_ends_never_reach_the_origin() {
    let request = "GET {url} HTTP/1.1\nHost: {host}\nX-A: 1\n\n";
    let (got, told) = through(request).await;
    match got.is_empty() {
        true => assert_eq!(status(&told), 400),
        // RFC 9112 §2.2 allows a recipient to accept them; what is passed on must be strict again.
        false => assert!(!got.replace("\r\n", "").contains('\n'), "{got:?}"),
    }
}

#[tokio::test]
async fn a_folded_line_of_a_request_is_refused_or_unfolded() {
    let request = "GET {url} HTTP/1.1\r\nHost: {host}\r\nX-A: one\r\n two\r\n\r\n";
    let (got, told) = through(request).await;
    match got.is_empty() {
        true => assert_eq!(status(&told), 400),
        false => assert!(got.contains("one two"), "{got:?}"),
    }
}

/// RFC 9112 §6.3: chunks override a length, and the connection is closed after the answer; §6.1: a message of HTTP/1.0
/// has no chunks.
#[tokio::test]
async fn after_a_message_with_two_lengths_nothing_is_read() {
    let request = |version: &str, lines: &str| {
        format!(
            "POST {{url}} HTTP/{version}\r\nHost: {{host}}\r\nConnection: keep-alive\r\n{lines}\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
             GET {{url}}hidden HTTP/1.1\r\nHost: {{host}}\r\n\r\n"
        )
    };
    for version in ["1.1", "1.0"] {
        let (got, _) = through(&request(version, "Content-Length: 3\r\n")).await;
        assert!(!got.contains("GET /hidden"), "{version}: {got}");
        let one = |name| field(&got, name).is_some();
        assert!(!(one("content-length") && one("transfer-encoding")), "{version}: {got}");
    }
    // With one length it is the next request.
    let (got, _) = through(&request("1.1", "")).await;
    assert!(got.contains("GET /hidden"), "{got}");
}

/// A page in a browser can send such a request to the proxy itself: its content stays content.
#[tokio::test]
async fn content_of_a_request_to_the_proxy_itself_is_not_a_request() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let content = origin.get("/hidden", "");
    let head = format!("POST / HTTP/1.1\r\nHost: {}\r\n", scene.at);
    program.send(format!("{head}Content-Length: {}\r\n\r\n{content}", content.len())).await;
    program.end().await;
    let told = text(program.rest().await);
    assert_eq!(status(&told), 405);
    assert_eq!(told.matches("HTTP/1.1 ").count(), 1, "{told}");
    assert_eq!(scene.end().await.0.requests, 0);
}

/// Bytes that an origin sends beyond its answer are not the answer to the next request, which may be another program's.
#[tokio::test]
async fn an_unrequested_answer_is_not_passed_on() {
    let extra = ok("poison");
    for answer in [
        ok("first") + &extra,
        format!("HTTP/1.1 204 No Content\r\nContent-Length: {}\r\n\r\n{extra}", extra.len()),
        format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {}\r\n\r\n{extra}", extra.len()),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{extra}"),
    ] {
        let (scene, origin) = (Scene::new().await, Origin::new().await);
        let mut program = scene.program().await;
        program.send(origin.get("/1", "")).await;
        let mut at = origin.accept().await;
        at.head().await;
        at.send(&answer).await;
        let head = program.head().await;
        let (mut next, second) = (scene.program().await, origin.get("/2", ""));
        next.send(second).await;
        let mut again = origin.accept().await;
        assert!(again.head().await.starts_with("GET /2 "), "{head}");
        again.send(ok("second")).await;
        assert_eq!(text(next.answer().await.1), "second", "after {answer:?}");
    }
}

#[tokio::test]
async fn an_answer_with_two_different_lengths_is_refused() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program: Peer = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc").await;
    assert_eq!(status(&program.head().await), 502);
}
