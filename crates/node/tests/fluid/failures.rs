//! A failing node costs only its own data.

use crate::scene::{Scene, bytes, collect};
use thalweg_gather::Event;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_killed_in_the_middle_costs_nothing() {
    let mut scene = Scene::new().await;
    scene.node(0).put("large", &bytes(24_000_000, 1));
    scene.node(1).put("other", &bytes(6_000_000, 2));
    let inventory = scene.inventory().await;
    let land = Scene::land(&inventory, 4_000_000);
    let context = scene.context(inventory.clone(), land.clone());
    let running = tokio::spawn(async move { collect(&context).await });
    land.reached().await;
    let opened = |event: &Event| matches!(event, Event::WayOpened { via, .. } if via.len() == 1);
    while !scene.events.has(opened) {
        tokio::task::yield_now().await;
    }
    scene.kill(2);
    land.open();
    let outcome = running.await.unwrap();
    assert_eq!(outcome.failed, []);
    scene.check(&[0, 1], &inventory, &land);
    let broke = |event: &Event| matches!(event, Event::WayClosed { via, failed: true, .. } if via.len() == 1);
    assert!(scene.events.has(broke), "{:?}", scene.events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_killed_in_the_middle_costs_its_own_data_alone() {
    let mut scene = Scene::new().await;
    scene.node(0).put("large", &bytes(24_000_000, 1));
    scene.node(1).put("other", &bytes(24_000_000, 2));
    let inventory = scene.inventory().await;
    let land = Scene::land(&inventory, 4_000_000);
    let context = scene.context(inventory.clone(), land.clone());
    let running = tokio::spawn(async move { collect(&context).await });
    land.reached().await;
    scene.kill(1);
    land.open();
    let outcome = running.await.unwrap();
    assert_eq!(outcome.failed.iter().map(|failed| failed.0).collect::<Vec<_>>(), [1]);
    scene.check(&[0], &inventory, &land);
    let failed = |event: &Event| matches!(event, Event::SourceFailed { source, .. } if source.as_str() == "n2");
    assert!(scene.events.has(failed), "{:?}", scene.events);
}
