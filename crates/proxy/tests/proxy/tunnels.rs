//! `CONNECT`, and upgraded connections.

use crate::scene::{Origin, Scene, field, soon, status, text};
use thalweg_proxy::{ProxyEvent, TunnelKind};
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn a_tunnel_carries_bytes_and_ends_both_ways() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (scene, origin) = (Scene::new().await, Origin::at(address).await);
        let mut program = scene.program().await;
        let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at);
        // Bytes after the request belong to the tunnel.
        program.send(connect + "early").await;
        let mut at = origin.accept().await;
        assert_eq!(text(at.take(5).await), "early");
        let head = program.head().await;
        assert_eq!((status(&head), field(&head, "content-length")), (200, None), "{head}");
        assert_eq!(field(&head, "transfer-encoding"), None);
        at.send("to the program").await;
        assert_eq!(text(program.take(14).await), "to the program");
        // Each side may end alone; the other goes on.
        program.end().await;
        assert_eq!(at.rest().await, b"");
        let late = vec![9; 3_000_000];
        let (sent, got) = tokio::join!(
            async {
                soon(at.tcp.write_all(&late)).await.unwrap();
                at.end().await;
            },
            program.rest()
        );
        assert_eq!((sent, got == late), ((), true));
        let (summary, events) = scene.end().await;
        assert_eq!((summary.tunnels, summary.cut), (1, 0));
        let [ProxyEvent::Tunnel { kind, up_bytes, down_bytes, broken, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((*kind, *up_bytes, broken), (TunnelKind::Connect, 5, &None));
        assert_eq!(*down_bytes, 14 + late.len() as u64);
    }
}

#[tokio::test]
async fn a_destination_that_resets_resets_the_program() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at)).await;
    let at = origin.accept().await;
    program.head().await;
    socket2::SockRef::from(&at.tcp).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(at);
    let mut byte = [0];
    let read = soon(tokio::io::AsyncReadExt::read(&mut program.tcp, &mut byte)).await;
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_websocket_is_carried_with_the_bytes_that_follow_the_heads() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\
                 Sec-WebSocket-Version: 13\r\n";
    program.send(origin.get("/chat", lines)).await;
    let mut at = origin.accept().await;
    let head = at.head().await;
    assert_eq!(field(&head, "upgrade"), Some("websocket"));
    assert!(field(&head, "connection").unwrap().eq_ignore_ascii_case("upgrade"));
    at.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: a\r\n\r\nfirst",
    )
    .await;
    let head = program.head().await;
    assert_eq!((status(&head), field(&head, "upgrade")), (101, Some("websocket")));
    assert_eq!(field(&head, "sec-websocket-accept"), Some("a"));
    assert_eq!(text(program.take(5).await), "first");
    program.send("ping").await;
    assert_eq!(text(at.take(4).await), "ping");
    at.send("pong").await;
    assert_eq!(text(program.take(4).await), "pong");
    at.end().await;
    assert_eq!(program.rest().await, b"");
    program.end().await;
    let (summary, events) = scene.end().await;
    assert_eq!(summary.tunnels, 1);
    let upgrade =
        |e: &ProxyEvent| matches!(e, ProxyEvent::Tunnel { kind: TunnelKind::Upgrade, .. });
    assert!(events.iter().any(upgrade), "{events:?}");
}

#[tokio::test]
async fn a_declined_upgrade_is_passed_on_as_an_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "Connection: upgrade\r\nUpgrade: websocket\r\n")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno").await;
    let (head, content) = program.answer().await;
    assert_eq!((status(&head), text(content)), (426, "no".to_owned()));
}

#[tokio::test]
async fn an_unrequested_upgrade_is_refused() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n").await;
    let (head, _) = program.answer().await;
    assert_eq!(status(&head), 502, "{head}");
    assert_eq!(at.rest().await, b"");
    // The program's connection goes on.
    program.send(origin.get("/next", "")).await;
    origin.accept().await.head().await;
}
