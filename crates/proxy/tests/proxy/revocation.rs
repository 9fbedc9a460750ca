//! Relays that are revoked while they carry something.

use crate::{
    races::{FixedChooser, direct, relay, way},
    scene::{Origin, Peer, Scene, ok, status, text},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use thalweg_proxy::ProxyEvent;
use tokio::task::JoinSet;

const NEVER: u64 = 600_000;

/// A proxy whose first way is by a relay, and the chooser, which can mark the relay as revoked.
async fn stage(tasks: &mut JoinSet<()>) -> (Arc<FixedChooser>, Scene) {
    let ways = vec![way("fra", relay(tasks).await, 0), direct(NEVER)];
    let chooser = Arc::new(FixedChooser { ways, ..FixedChooser::default() });
    (chooser.clone(), Scene::choosing(chooser).await)
}

async fn tunnel(scene: &Scene, origin: &Origin) -> (Peer, Peer) {
    let mut program = scene.program().await;
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at)).await;
    assert_eq!(status(&program.head().await), 200);
    (program, origin.accept().await)
}

#[tokio::test]
async fn tunnels_by_a_revoked_relay_are_cut_and_others_go_on() {
    let mut tasks = JoinSet::new();
    let (chooser, scene) = stage(&mut tasks).await;
    let origin = Origin::new().await;
    let (mut by_relay, mut far) = tunnel(&scene, &origin).await;
    scene.reviewer.review();
    by_relay.send("ping").await;
    assert_eq!(text(far.take(4).await), "ping", "a look alone cuts nothing");

    let other = Scene::new().await;
    let (mut directly, mut end) = tunnel(&other, &origin).await;
    chooser.revoked.store(true, Relaxed);
    scene.reviewer.review();
    other.reviewer.review();
    // A reset, so that nobody takes the bytes for complete.
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut by_relay.tcp, &mut byte);
    assert!(crate::scene::soon(read).await.is_err());
    far.rest().await;
    directly.send("on").await;
    assert_eq!(text(end.take(2).await), "on");
    let (_, events) = scene.end().await;
    let [ProxyEvent::Tunnel { path, broken: Some(why), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(path == "fra" && why.contains("no longer a member"), "{events:?}");
}

#[tokio::test]
async fn answers_by_a_revoked_relay_break_off_and_its_idle_links_are_closed() {
    let mut tasks = JoinSet::new();
    let (chooser, scene) = stage(&mut tasks).await;
    let origin = Origin::new().await;
    let (mut idles, mut waits) = (scene.program().await, scene.program().await);
    waits.send(origin.get("/2", "")).await;
    let mut at_2 = origin.accept().await;
    at_2.head().await;
    idles.send(origin.get("/1", "")).await;
    let mut at_1 = origin.accept().await;
    at_1.head().await;
    at_1.send(ok("1")).await;
    idles.answer().await;
    at_2.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    waits.head().await;

    chooser.revoked.store(true, Relaxed);
    scene.reviewer.review();
    assert!(waits.rest().await.len() < 10, "it looks whole");
    assert_eq!(at_1.rest().await, b"", "the idle link is closed");
    // New requests go by the remaining ways.
    chooser.only_directly.store(true, Relaxed);
    idles.send(origin.get("/3", "")).await;
    let mut at_3 = origin.accept().await;
    assert!(at_3.head().await.starts_with("GET /3 "));
    at_3.send(ok("3")).await;
    assert_eq!(text(idles.answer().await.1), "3");
    let (_, events) = scene.end().await;
    let direct = |e: &ProxyEvent| matches!(e, ProxyEvent::Request { path, .. } if path == "direct");
    assert!(events.iter().any(direct), "{events:?}");
}
