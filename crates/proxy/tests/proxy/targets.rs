//! Request targets: they pass byte for byte, or are refused with a text (RFC 9112 §3.2).

use crate::scene::{Origin, Peer, Scene, field, ok, status, text};

/// The request line that an origin gets, without its end.
async fn line(at: &mut Peer) -> Vec<u8> {
    let head = at.head_bytes().await;
    let end = head.windows(2).position(|two| two == b"\r\n").unwrap();
    head[..end].to_vec()
}

/// A GET for this target at `origin`.
fn get(origin: &Origin, target: &[u8]) -> Vec<u8> {
    let host = format!(" HTTP/1.1\r\nHost: {}\r\n\r\n", origin.at);
    [format!("GET http://{}", origin.at).as_bytes(), target, host.as_bytes()].concat()
}

#[tokio::test]
async fn each_byte_of_a_target_passes_on_one_connection() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(get(&origin, b"/first")).await;
    let mut at = origin.accept().await;
    assert_eq!(line(&mut at).await, b"GET /first HTTP/1.1");
    for byte in (b'!'..=0xff).filter(|byte| *byte != 0x7f) {
        at.send(ok("x")).await;
        program.answer().await;
        for target in [&[b'/', byte][..], &[b'/', b'?', byte, b'x']] {
            program.send(get(&origin, target)).await;
            let expected = [&b"GET "[..], target, b" HTTP/1.1"].concat();
            assert_eq!(line(&mut at).await, expected, "{byte:#x}");
            if target.len() == 2 {
                at.send(ok("x")).await;
                program.answer().await;
            }
        }
    }
}

#[tokio::test]
async fn odd_targets_pass_unchanged() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let long = [&b"/"[..], &[b'a'; 60_000]].concat();
    for (target, expected) in [
        (&b""[..], &b"/"[..]),
        (b"?q", b"/?q"),
        (b"/", b"/"),
        (b"//x//y", b"//x//y"),
        (b"/a/../b/./c", b"/a/../b/./c"),
        (b"/%zz%", b"/%zz%"),
        (b"/%2f%2F", b"/%2f%2F"),
        (b"/a|b^c\"d{e}f[g]h\\i`j<k>l", b"/a|b^c\"d{e}f[g]h\\i`j<k>l"),
        (b"/caf\xc3\xa9?caf\xe9", b"/caf\xc3\xa9?caf\xe9"),
        (b"/\xff\xfe\x80", b"/\xff\xfe\x80"),
        (b"/?q=[x]|{y}^&f={\"a\":1}", b"/?q=[x]|{y}^&f={\"a\":1}"),
        (b"/x#y", b"/x#y"),
        (b"/@user:pw@host:1/", b"/@user:pw@host:1/"),
        (b"/http://other/", b"/http://other/"),
        (b"/*", b"/*"),
        (&long, &long),
    ] {
        let mut program = scene.program().await;
        program.send(get(&origin, target)).await;
        let mut at = origin.accept().await;
        let shown = String::from_utf8_lossy(&target[..target.len().min(80)]);
        assert_eq!(line(&mut at).await, [&b"GET "[..], expected, b" HTTP/1.1"].concat(), "{shown}");
        at.send(ok("yes")).await;
        assert_eq!(text(program.answer().await.1), "yes", "{shown}");
    }
}

#[tokio::test]
async fn options_without_a_path_asks_the_server_and_not_a_resource() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    for (path, expected) in
        [("", "OPTIONS * HTTP/1.1"), ("/", "OPTIONS / HTTP/1.1"), ("?a", "OPTIONS /?a HTTP/1.1")]
    {
        program.send(origin.ask("OPTIONS", path, "Connection: close\r\n")).await;
        let mut at = origin.accept().await;
        assert_eq!(text(line(&mut at).await), expected);
        at.send(ok("")).await;
        program.answer().await;
        program = scene.program().await;
    }
}

#[tokio::test]
async fn refusals_have_a_text() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let at = origin.at;
    let long = "a".repeat(70_000);
    for (target, code) in [
        (format!("http://{at}/a b"), 400),
        (format!("http://{at}/a\tb"), 400),
        (format!("http://{at}/a\rb"), 400),
        (format!("http://{at}/\0"), 400),
        (format!("http://{at}/\x7f"), 400),
        (format!("http://{at}/{long}"), 414),
        ("http://a<b>/".into(), 400),
        ("http://a%41/".into(), 400),
        ("http://\u{e9}.example/".into(), 400),
        ("http://a@b@c/".into(), 400),
        ("http://a:b/".into(), 400),
        ("http://a:99999/".into(), 400),
        ("http:///x".into(), 400),
        ("http:/x".into(), 400),
        ("x".into(), 400),
        ("*".into(), 400),
        ("gopher://a/".into(), 501),
    ] {
        let mut program = scene.program().await;
        program.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let (head, content) = program.answer().await;
        let shown = &target[..target.len().min(60)];
        assert_eq!(status(&head), code, "{shown}");
        assert_eq!(
            field(&head, "proxy-status"),
            Some("thalweg; error=http_request_error"),
            "{shown}"
        );
        assert!(content.starts_with(b"thalweg proxy: "), "{shown}");
    }
    for (request, code) in [
        ("GET / HTTP/2.0\r\n\r\n".to_owned(), 505),
        ("GET /\r\n\r\n".into(), 400),
        ("\x16\x03\x01\x02\x00\x01\x00".into(), 400),
        (format!("GET http://{at}/ HTTP/1.1\r\nHost : a\r\n\r\n"), 400),
        (format!("GET http://{at}/ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"), 400),
        (format!("GET http://{at}/ HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(600)), 431),
        (
            format!("GET http://{at}/ HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(1 << 20)),
            431,
        ),
    ] {
        let mut program = scene.program().await;
        program.send(&request).await;
        let (head, content) = program.answer().await;
        let shown = &request[..request.len().min(60)];
        assert_eq!(status(&head), code, "{shown}: {head}");
        assert_eq!(
            field(&head, "proxy-status"),
            Some("thalweg; error=http_request_error"),
            "{shown}"
        );
        assert!(content.starts_with(b"thalweg proxy: "), "{shown}");
        assert_eq!(program.rest().await, b"", "{shown}: it is closed");
    }
}

/// The ends of contents between heads are found: a line of content that looks like a request stays content.
#[tokio::test]
async fn pipelined_requests_keep_their_targets_and_contents() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let content = "GET /<not> HTTP/1.1\r\n\r\n";
    let all = [
        origin.ask("POST", "/<1>", &format!("Content-Length: {}\r\n", content.len())),
        content.to_owned(),
        origin.ask("POST", "/<2>", "Transfer-Encoding: chunked\r\n"),
        format!("{:x};a=b\r\n{content}\r\n0\r\nX-Sum: 1\r\n\r\n", content.len()),
        "\r\n".to_owned(),
        origin.ask("GET", "/<3>", ""),
        origin.ask("HEAD", "/<4>", ""),
    ];
    program.send(all.concat()).await;
    let mut at = origin.accept().await;
    assert_eq!(line(&mut at).await, b"POST /<1> HTTP/1.1");
    assert_eq!(text(at.take(content.len()).await), content);
    at.send(ok("1")).await;
    assert_eq!(line(&mut at).await, b"POST /<2> HTTP/1.1");
    assert!(at.until("0\r\n").await.contains(content));
    at.until("\r\n").await;
    at.send(ok("2")).await;
    assert_eq!(line(&mut at).await, b"GET /<3> HTTP/1.1");
    at.send(ok("3")).await;
    assert_eq!(line(&mut at).await, b"HEAD /<4> HTTP/1.1");
    at.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    for expected in ["1", "2", "3"] {
        assert_eq!(text(program.answer().await.1), expected);
    }
    assert_eq!(status(&program.head().await), 204);
}

/// A request whose target the origin gets is sent again on another link, with the same target.
#[tokio::test]
async fn a_request_sent_again_on_another_link_keeps_its_target() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(get(&origin, b"/<1>")).await;
    let mut at = origin.accept().await;
    line(&mut at).await;
    at.send(ok("1")).await;
    program.answer().await;
    program.send(get(&origin, b"/<2>")).await;
    assert_eq!(line(&mut at).await, b"GET /<2> HTTP/1.1");
    drop(at);
    let mut at = origin.accept().await;
    assert_eq!(line(&mut at).await, b"GET /<2> HTTP/1.1");
    at.send(ok("2")).await;
    assert_eq!(text(program.answer().await.1), "2");
}

/// A request that must not be sent twice is not sent on a link that its origin has closed without notice.
#[tokio::test]
async fn a_post_uses_a_new_link_if_the_old_one_has_ended() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    for i in 0..50 {
        program.send(origin.ask("POST", &format!("/{i}"), "Content-Length: 2\r\n") + "hi").await;
        let mut at = origin.accept().await;
        assert_eq!(line(&mut at).await, format!("POST /{i} HTTP/1.1").as_bytes());
        at.take(2).await;
        at.send(ok("yes")).await;
        drop(at);
        let (head, content) = program.answer().await;
        assert_eq!((status(&head), text(content)), (200, "yes".to_owned()), "{i}");
    }
}

#[tokio::test]
async fn bytes_that_follow_connect_belong_to_the_tunnel() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let early = "GET /<x> HTTP/1.1\r\n\r\nand more";
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n{early}", origin.at)).await;
    let mut at = origin.accept().await;
    assert_eq!(text(at.take(early.len()).await), early);
    assert_eq!(status(&program.head().await), 200);
    at.send("down").await;
    assert_eq!(text(program.take(4).await), "down");
}
