//! Sources and receivers that are killed, and continue.

use crate::{
    parents::{LENGTH as PART, ways},
    scene::{PATIENCE, Scene, name},
};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use thalweg_cast::source::Outcome;
use tokio_util::sync::CancellationToken;

const LENGTH: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_receiver_continues_with_what_it_has() {
    let mut scene = Scene::new(1).await;
    let content = scene.file("image", PART);
    // The journal is written once a second, so the transfer has to take a while.
    let _ways = ways(&scene, &[(0, 1, 3_000_000)]).await;
    let casting = tokio::spawn(scene.cast_until(scene.request("image"), CancellationToken::new()));
    // Waits until something is in the journal.
    let began = Instant::now();
    let journal = loop {
        let found = fs::read_dir(scene.nodes[0].inbox("")).unwrap().flatten().next();
        let journal = found.map(|home| home.path().join("have")).filter(|file| file.exists());
        if let Some(journal) = journal {
            break journal;
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", scene.events.all());
        tokio::task::yield_now().await;
    };
    let held = scene.nodes[0].report()["held_bytes"].as_u64().unwrap();
    scene.nodes[0].kill().await;
    let kept = fs::read(journal).unwrap();
    assert!(kept.len() > 8 + 32, "nothing was journaled");
    scene.nodes[0].start().await;
    let totals = casting.await.unwrap().unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == content);
    let received = scene.events.received();
    let most = PART as u64 - held + PART as u64 / 50;
    assert!(received[0].1 <= most, "{held} were there: {received:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_source_continues_with_the_same_command() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(scene.request("image"), stop.clone()));
    scene.nodes[0].holds(LENGTH as u64 / 8).await;
    stop.cancel();
    casting.await.unwrap().unwrap();
    let before: u64 = scene.nodes.iter().map(|n| n.report()["held_bytes"].as_u64().unwrap()).sum();
    let totals = scene.cast(scene.request("image")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    for node in &scene.nodes {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
        let report = node.report();
        let came = report["received_bytes"].as_u64().unwrap();
        assert!(came < LENGTH as u64 * 102 / 100, "n{}: {report}", node.n);
    }
    // Nobody sends again what the receivers had.
    assert!(totals.served_bytes <= 2 * LENGTH as u64 * 102 / 100 - before, "{before}, {totals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_that_the_source_lost_in_a_power_failure_are_computed_again() {
    let scene = Scene::new(1).await;
    let content = scene.file("image", 5_000_000);
    assert_eq!(scene.cast(scene.request("image")).await.unwrap().outcome, Outcome::Complete);
    fs::remove_file(scene.nodes[0].inbox("image")).unwrap();
    let kept = fs::read_dir(scene.path("kept")).unwrap().map(|entry| entry.unwrap().path());
    let is_pages = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pages");
    let pages: Vec<PathBuf> = kept.filter(is_pages).collect();
    assert_eq!(pages.len(), 1, "{pages:?}");
    // The file has its length, but its last half never reached the disk.
    let mut bytes = fs::read(&pages[0]).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    fs::write(&pages[0], bytes).unwrap();
    let mut request = scene.request("image");
    request.patience = Duration::from_secs(5);
    assert_eq!(scene.cast(request).await.unwrap().outcome, Outcome::Complete);
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_continue_without_the_source() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", 5_000_000);
    let mut first = scene.request("image");
    first.to = vec![name(1)];
    assert_eq!(scene.cast(first).await.unwrap().outcome, Outcome::Complete);
    // The second receiver is told of the cast, and the source stops.
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(scene.request("image"), stop.clone()));
    let began = Instant::now();
    while scene.nodes[1].report()["state"].as_str().is_none_or(|state| state == "new") {
        assert!(began.elapsed() < PATIENCE, "{:?}", scene.events.all());
        tokio::task::yield_now().await;
    }
    stop.cancel();
    casting.await.unwrap().unwrap();
    while !scene.nodes[1].inbox("image").exists() {
        assert!(began.elapsed() < PATIENCE, "{}", scene.nodes[1].report());
        tokio::task::yield_now().await;
    }
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
}
