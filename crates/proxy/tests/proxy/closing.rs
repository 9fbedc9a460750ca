//! How connections end: programs that half-close or leave, and a proxy that shuts down.

use crate::scene::{Origin, Scene, ok, soon, text};

#[tokio::test]
async fn a_program_that_has_ended_its_side_gets_its_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    program.end().await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(ok("for you")).await;
    assert_eq!(text(program.answer().await.1), "for you");
}

#[tokio::test]
async fn a_program_that_leaves_ends_the_origins_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
    program.head().await;
    drop(program);
    // Writing fails once the proxy has closed the connection.
    let piece = vec![0; 1 << 16];
    let mut sent = 0usize;
    while soon(tokio::io::AsyncWriteExt::write_all(&mut at.tcp, &piece)).await.is_ok() {
        sent += piece.len();
        assert!(sent < 1_000_000_000, "nobody told the origin");
    }
}

#[tokio::test]
async fn draining_lets_answers_end_and_takes_nothing_new() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let (mut program, idle) = (scene.program().await, scene.program().await);
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    let listens = scene.at;
    let (running, _) = scene.stop();
    while tokio::net::TcpStream::connect(listens).await.is_ok() {
        tokio::task::yield_now().await;
    }
    at.send(ok("late")).await;
    assert_eq!(text(program.answer().await.1), "late");
    assert_eq!(program.rest().await, b"", "it is closed then");
    let summary = soon(running).await.unwrap();
    assert_eq!((summary.requests, summary.cut), (1, 0));
    drop(idle);
}

#[tokio::test]
async fn connections_that_take_too_long_to_drain_are_reset() {
    let config = thalweg_proxy::ProxyConfig {
        drain: std::time::Duration::from_millis(100),
        ..thalweg_proxy::ProxyConfig::new("127.0.0.1:0".parse().unwrap())
    };
    let chooser =
        thalweg_paths::history_chooser::HistoryChooser::new(Box::new(|_| Vec::new()), None);
    let scene = Scene::with(config, std::sync::Arc::new(chooser)).await;
    let origin = Origin::new().await;
    let mut program = scene.program().await;
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at)).await;
    let mut at = origin.accept().await;
    program.head().await;
    let (summary, _) = scene.end().await;
    assert_eq!(summary.cut, 1);
    assert_eq!((program.rest().await, at.rest().await), (Vec::new(), Vec::new()));
}
