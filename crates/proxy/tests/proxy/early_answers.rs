//! Answers that come before the request's content has ended. They reach the program, whatever the origin does
//! afterwards (RFC 9112 §9.3, §9.6), even a program that sends everything before it reads.

use crate::scene::{HANGS, Origin, Peer, Scene, soon, status};
use socket2::SockRef;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use thalweg_net::{DialOptions, Dialer, SocketOptions};
use thalweg_paths::history_chooser::HistoryChooser;
use thalweg_proxy::{Proxy, ProxyConfig, RedirectSource};
use thalweg_wire::socks5::encode_connect;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// What an origin does after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterAnswer {
    /// Keeps its direction open, as nginx does.
    ReadsOn,
    /// Ends its direction, as RFC 9112 §9.6 requires.
    HalfCloses,
    /// Closes with bytes unread, so that its kernel resets the connection.
    Closes,
    /// Resets after it has read some more of the content.
    Resets,
}

const ALL: [AfterAnswer; 4] =
    [AfterAnswer::ReadsOn, AfterAnswer::HalfCloses, AfterAnswer::Closes, AfterAnswer::Resets];

/// How the content is framed.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunked,
    /// With a length and `Expect: 100-continue`, which the program does not wait for.
    Expects,
}

const FRAMINGS: [Framing; 3] = [Framing::Length, Framing::Chunked, Framing::Expects];

/// Answers a request's head, and then does what `then` says.
async fn answer(mut at: Peer, status: u16, then: AfterAnswer) {
    at.head().await;
    let lines = "Connection: close\r\nContent-Length: 9\r\n\r\ntoo large";
    at.send(format!("HTTP/1.1 {status} No\r\n{lines}")).await;
    let mut piece = vec![0; 1 << 16];
    match then {
        AfterAnswer::Closes => return,
        AfterAnswer::HalfCloses => at.end().await,
        AfterAnswer::Resets => {
            _ = soon(at.tcp.read(&mut piece)).await;
            SockRef::from(&at.tcp).set_linger(Some(Duration::ZERO)).unwrap();
            return;
        }
        AfterAnswer::ReadsOn => {}
    }
    while matches!(timeout(HANGS, at.tcp.read(&mut piece)).await, Ok(Ok(1..))) {}
}

/// A whole request with this much content.
fn upload(origin: &Origin, framing: Framing, length: usize) -> Vec<u8> {
    let lines = match framing {
        Framing::Length => format!("Content-Length: {length}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::Expects => format!("Content-Length: {length}\r\nExpect: 100-continue\r\n"),
    };
    let mut all = origin.ask("PUT", "/", &lines).into_bytes();
    if let Framing::Chunked = framing {
        all.extend(format!("{length:x}\r\n").bytes());
    }
    all.resize(all.len() + length, b'x');
    if let Framing::Chunked = framing {
        all.extend(b"\r\n0\r\n\r\n");
    }
    all
}

/// The status and content of the final answer.
async fn told(program: &mut Peer) -> (u16, Vec<u8>) {
    loop {
        let (head, content) = program.answer().await;
        // The proxy sends its own 100 if the origin is silent for too long.
        if status(&head) != 100 {
            return (status(&head), content);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_sends_all_before_it_reads_gets_the_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    for (code, length) in
        [(413, 24 << 20), (413, 200_000), (401, 1 << 20), (507, 1 << 20), (200, 1 << 20)]
    {
        for then in ALL {
            for framing in FRAMINGS {
                let what = format!("{code} {then:?} {framing:?} {length}");
                let mut program = scene.program().await;
                let all = upload(&origin, framing, length);
                let serving = async { answer(origin.accept().await, code, then).await };
                let asking = async {
                    let sent = soon(program.tcp.write_all(&all)).await;
                    sent.unwrap_or_else(|why| panic!("{what}: {why}"));
                    let told = told(&mut program).await;
                    drop(program);
                    told
                };
                let (_, (status, content)) = tokio::join!(serving, asking);
                assert_eq!((status, &content[..]), (code, &b"too large"[..]), "{what}");
            }
        }
    }
}

/// Whatever marks the end of the answer, and whatever the program's version.
#[tokio::test]
async fn an_early_answer_of_any_framing_arrives() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    for (answer, ends) in [
        ("HTTP/1.1 413 No\r\nConnection: close\r\n\r\ntoo large", true),
        ("HTTP/1.0 413 No\r\n\r\ntoo large", true),
        ("HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ntoo large\r\n0\r\n\r\n", true),
        ("HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ntoo large\r\n0\r\n\r\n", false),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 413 No\r\nContent-Length: 9\r\n\r\ntoo large",
            true,
        ),
    ] {
        for minor in [b'1', b'0'] {
            let mut program = scene.program().await;
            let mut all = upload(&origin, Framing::Length, 24 << 20);
            let version = all.windows(8).position(|w| w == b"HTTP/1.1").unwrap();
            all[version + 7] = minor;
            let serving = async {
                let mut at = origin.accept().await;
                at.head().await;
                at.send(answer).await;
                if ends {
                    at.end().await;
                }
                at.rest().await;
            };
            let asking = async {
                soon(program.tcp.write_all(&all))
                    .await
                    .unwrap_or_else(|why| panic!("{answer}: {why}"));
                program.end().await;
                String::from_utf8_lossy(&program.rest().await).into_owned()
            };
            let (_, told) = tokio::join!(serving, asking);
            assert!(
                told.contains(" 413 ") && told.contains("too large"),
                "1.{} {answer}: {told}",
                minor as char
            );
        }
    }
}

/// The program's connection stays usable, because the rest of the content was read off.
#[tokio::test]
async fn after_refused_content_the_next_request_is_served() {
    for then in [AfterAnswer::ReadsOn, AfterAnswer::HalfCloses, AfterAnswer::Closes] {
        let (scene, origin) = (Scene::new().await, Origin::new().await);
        let mut program = scene.program().await;
        let both = [upload(&origin, Framing::Chunked, 3 << 20), origin.get("/next", "").into()];
        let serving = tokio::spawn(async move {
            answer(origin.accept().await, 413, then).await;
            origin.accept().await
        });
        program.send(both.concat()).await;
        assert_eq!(told(&mut program).await.0, 413, "{then:?}");
        let mut at = soon(serving).await.unwrap();
        assert!(at.head().await.starts_with("GET /next "), "{then:?}");
        at.send(crate::scene::ok("next")).await;
        assert_eq!(told(&mut program).await, (200, b"next".to_vec()), "{then:?}");
    }
}

/// An origin that has answered may want all of the content, and gets it, however long the program takes.
#[tokio::test]
async fn the_content_continues_after_an_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("PUT", "/", "Content-Length: 6\r\n")).await;
    program.send("one").await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(told(&mut program).await, (200, b"ok".to_vec()));
    program.send("two").await;
    assert_eq!(at.take(6).await, b"onetwo");
}

/// Refusals by the proxy itself, while the program is sending.
#[tokio::test]
async fn the_proxys_own_answer_reaches_a_program_that_sends_all_first() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let length = 24 << 20;
    let put = |target: &str, lines: &str| {
        let head =
            format!("PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{lines}\r\n");
        let mut all = head.into_bytes();
        all.resize(all.len() + length, b'x');
        all
    };
    let url = origin.url("/");
    for (request, code) in [
        (put(&format!("http://{closed}/"), ""), 502),
        (put(&format!("http://{closed}/"), "Expect: 100-continue\r\n"), 502),
        (put("https://a/", ""), 501),
        (put("/", ""), 421),
        (put(&format!("{url} b"), ""), 400),
        (put(&url, "Host: b\r\n"), 400),
        (put(&url, "Bad name: b\r\n"), 400),
        (put(&url, "Transfer-Encoding: gzip\r\n"), 400),
        (put(&format!("http://{}/", scene.at), ""), 508),
    ] {
        let mut program = scene.program().await;
        let head = String::from_utf8_lossy(&request[..80]).into_owned();
        soon(program.tcp.write_all(&request)).await.unwrap_or_else(|why| panic!("{head}: {why}"));
        let (status, content) = told(&mut program).await;
        assert_eq!(status, code, "{head}");
        assert!(content.starts_with(b"thalweg proxy: ") || code == 421, "{head}: in words");
    }
}

/// How a tunnel to an origin is asked for.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    Connect,
    Socks,
    Redirected,
}

/// A program's connection that leads to `to`.
async fn tunnel(kind: Tunnel, scene: &Scene, led: &Redirecting, to: SocketAddr) -> Peer {
    match kind {
        Tunnel::Connect => {
            let mut program = scene.program().await;
            program.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
            assert_eq!(status(&program.head().await), 200);
            program
        }
        Tunnel::Socks => {
            let mut program = scene.program().await;
            program.send([b"\x05\x01\x00".to_vec(), encode_connect(&to.into())].concat()).await;
            program.take(12).await;
            program
        }
        Tunnel::Redirected => led.program(to).await,
    }
}

/// A proxy to which a supervisor redirects connections.
struct Redirecting {
    meant: thalweg_proxy::RedirectDestinations,
    at: SocketAddr,
}

impl Redirecting {
    async fn new() -> Self {
        let config = ProxyConfig {
            redirect_source: RedirectSource::Supervisor,
            ..ProxyConfig::new("127.0.0.1:0".parse().unwrap())
        };
        let socket = SocketOptions { user_timeout: None, ..SocketOptions::default() };
        let dialer = Dialer::new(DialOptions { socket, ..DialOptions::default() });
        let chooser = Arc::new(HistoryChooser::new(Box::new(|_| Vec::new()), None));
        let proxy = Proxy::bind(config, dialer, chooser, Arc::new(())).await.unwrap();
        let at = SocketAddr::new([127, 0, 0, 1].into(), proxy.redirect_ports().unwrap().v4);
        let meant = proxy.redirect_destinations();
        tokio::spawn(proxy.run(std::future::pending()));
        Self { meant, at }
    }

    async fn program(&self, to: SocketAddr) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(self.meant.expect(socket.local_addr().unwrap(), to));
        let tcp: TcpStream = socket.connect(self.at).await.unwrap();
        Peer::new(tcp)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_a_tunnel_reaches_a_program_that_is_sending() {
    let (scene, led, origin) = (Scene::new().await, Redirecting::new().await, Origin::new().await);
    for kind in [Tunnel::Connect, Tunnel::Socks, Tunnel::Redirected] {
        for then in ALL {
            let serving = async { answer(origin.accept().await, 413, then).await };
            let asking = async {
                let mut program = tunnel(kind, &scene, &led, origin.at).await;
                let all = upload(&origin, Framing::Length, 24 << 20);
                let (mut from, mut to) = program.tcp.split();
                // As without a proxy, sending fails if the origin has closed, so the program reads meanwhile.
                let sending = async { _ = soon(to.write_all(&all)).await };
                let reading = async {
                    let mut got = Vec::new();
                    while !got.ends_with(b"too large") {
                        let n = soon(from.read_buf(&mut got)).await.unwrap_or_default();
                        assert!(
                            n > 0,
                            "{kind:?} {then:?}: it ends in {:?}",
                            String::from_utf8_lossy(&got)
                        );
                    }
                    got
                };
                tokio::join!(sending, reading).1
            };
            let (_, got) = tokio::join!(serving, asking);
            assert!(got.starts_with(b"HTTP/1.1 413 No\r\n"), "{kind:?} {then:?}");
        }
    }
}

/// The program sends everything before it reads, to an origin that closes in stages or reads on, as without a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_stays_half_closed_for_a_program_that_sends_all_first() {
    let (scene, led, origin) = (Scene::new().await, Redirecting::new().await, Origin::new().await);
    for kind in [Tunnel::Connect, Tunnel::Socks, Tunnel::Redirected] {
        for then in [AfterAnswer::ReadsOn, AfterAnswer::HalfCloses] {
            let serving = async { answer(origin.accept().await, 413, then).await };
            let asking = async {
                let mut program = tunnel(kind, &scene, &led, origin.at).await;
                program.send(upload(&origin, Framing::Length, 24 << 20)).await;
                told(&mut program).await
            };
            let (_, told) = tokio::join!(serving, asking);
            assert_eq!(told, (413, b"too large".to_vec()), "{kind:?} {then:?}");
        }
    }
}
