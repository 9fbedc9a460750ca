//! Hosts that are cut off for a while.

use crate::{
    parents::{LENGTH, check, request, ways},
    scene::{PATIENCE, Scene, name},
    ways::Way,
};
use std::{fs, time::Instant};
use thalweg_cast::source::{Event, Forwarding};
use tokio_util::sync::CancellationToken;

/// Cuts n2 off from the source and from n1 when it has a quarter of the object; meanwhile n1 gets all of it.
async fn heals(by_rings: bool) {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    let ways = ways(&scene, &[(0, 2, 3_000_000), (2, 1, 3_000_000)]).await;
    let mut request = request(&scene);
    request.forwarding = Forwarding { by_rings, ..Forwarding::default() };
    let casting = tokio::spawn(scene.cast_until(request, CancellationToken::new()));
    scene.nodes[1].holds(LENGTH as u64 / 4).await;
    ways.values().for_each(Way::cut);
    let is_apart =
        |event: &Event| matches!(event, Event::Unreached { receiver, .. } if *receiver == name(2));
    let is_there =
        |event: &Event| matches!(event, Event::Received { receiver, .. } if *receiver == name(1));
    let began = Instant::now();
    loop {
        let all = scene.events.all();
        if all.iter().any(is_apart) && all.iter().any(is_there) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{all:?}");
        tokio::task::yield_now().await;
    }
    let report = scene.nodes[1].report();
    let held = report["held_bytes"].as_u64().unwrap();
    assert!(held < LENGTH as u64, "it has all of it already: {report}");
    ways.values().for_each(Way::heal);
    let totals = casting.await.unwrap().unwrap();
    check(&scene, &totals, &content);
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_heals_costs_hardly_a_byte_twice() {
    heals(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_rings_that_heals_costs_hardly_a_byte_twice() {
    heals(true).await;
}
