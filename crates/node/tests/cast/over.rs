//! Casts that were forgotten or have expired.

use crate::{
    parents::{LENGTH, check, first_to_n1, request, ways},
    scene::{Node, PATIENCE, Scene, name},
};
use std::{fs, time::Instant};
use tokio_util::sync::CancellationToken;

fn found(node: &Node) -> Vec<String> {
    let all = fs::read_dir(node.inbox("")).unwrap();
    let mut all: Vec<String> =
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// Waits until the inbox contains only these names.
async fn until_only(node: &Node, names: &[&str]) {
    let began = Instant::now();
    while found(node) != names {
        assert!(began.elapsed() < PATIENCE, "{:?}, {}", found(node), node.report());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_cast_is_removed_and_can_be_cast_again() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let ways = ways(&scene, &[(2, 1, 300_000), (0, 2, 300_000)]).await;
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(request(&scene), stop.clone()));
    scene.nodes[1].holds(100_000).await;
    let running = scene.forget("image").await;
    assert!(running.unwrap_err().to_string().contains("running"));
    stop.cancel();
    casting.await.unwrap().unwrap();
    ways[&(0, 2)].set(100_000_000);
    let forgotten = scene.forget("image").await.unwrap();
    assert_eq!(forgotten.complete, [name(1)]);
    let notices = forgotten.notices.iter();
    let notices: Vec<_> = notices.map(|notice| (&notice.receiver, &notice.why)).collect();
    assert_eq!(notices, [(&name(2), &None)]);
    until_only(&scene.nodes[1], &[]).await;
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == content, "who has it keeps it");
    ways[&(2, 1)].set(100_000_000);
    let totals = scene.cast(request(&scene)).await.unwrap();
    check(&scene, &totals, &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn served_data_expires_with_the_offer_and_received_data_a_week_later() {
    let mut scene = Scene::new(2).await;
    scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let _ways = ways(&scene, &[(2, 1, 300_000), (0, 2, 300_000)]).await;
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(request(&scene), stop.clone()));
    scene.nodes[1].holds(100_000).await;
    stop.cancel();
    casting.await.unwrap().unwrap();
    for node in &mut scene.nodes {
        assert!(found(node)[0].starts_with(".thalweg-cast-"));
        node.kill().await;
        // The offer is valid for a day.
        node.start_later(2).await;
    }
    until_only(&scene.nodes[0], &["image"]).await;
    let began = Instant::now();
    while scene.nodes[1].report()["state"] != "failed" {
        assert!(began.elapsed() < PATIENCE, "{}", scene.nodes[1].report());
        tokio::task::yield_now().await;
    }
    assert!(scene.nodes[1].report()["why"].as_str().unwrap().contains("its offer has ended"));
    assert_eq!(found(&scene.nodes[1]).len(), 1);
    scene.nodes[1].kill().await;
    scene.nodes[1].start_later(9).await;
    until_only(&scene.nodes[1], &[]).await;
}
