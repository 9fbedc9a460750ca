//! All of the data arrives, whole.

use crate::scene::{Scene, bytes, collect};
use std::time::Duration;
use thalweg_gather::{Event, fluid::FluidOutcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_many_small_files_arrive_directly_and_through_the_relay() {
    let scene = Scene::new().await;
    scene.node(0).put("large", &bytes(20_000_003, 1));
    for n in 0..1_500 {
        scene.node(1).put(&format!("small/{n}"), &bytes(n % 700 + 1, n as u64));
    }
    let inventory = scene.inventory().await;
    let land = Scene::land(&inventory, u64::MAX);
    let outcome = collect(&scene.context(inventory.clone(), land.clone())).await;
    assert_eq!(outcome.failed, []);
    scene.check(&[0, 1], &inventory, &land);
    assert_eq!(land.given_up(), []);
    let by_relay = |event: &Event| matches!(event, Event::WayOpened { via, .. } if via.len() == 1);
    let directly = |event: &Event| matches!(event, Event::WayOpened { via, .. } if via.is_empty());
    assert!(scene.events.has(by_relay) && scene.events.has(directly));
    // A copy at the very end may arrive twice, but no more.
    let all: u64 = inventory.amounts(4).iter().sum();
    assert!(land.came() >= all && land.came() <= all + (8 << 20), "{} of {all}", land.came());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_fetch_is_done_at_once() {
    let scene = Scene::new().await;
    let inventory = scene.inventory().await;
    let land = Scene::land(&inventory, u64::MAX);
    assert_eq!(collect(&scene.context(inventory, land)).await, FluidOutcome::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_given_up_and_the_others_arrive() {
    let scene = Scene::new().await;
    for path in ["a", "b", "c"] {
        scene.node(0).put(path, &bytes(300_000, 7));
    }
    let mut inventory = scene.inventory().await;
    scene.node(0).put("b", &bytes(300_001, 8));
    let land = Scene::land(&inventory, u64::MAX);
    let outcome = collect(&scene.context(inventory.clone(), land.clone())).await;
    assert_eq!(outcome.failed, []);
    let given_up = land.given_up();
    assert_eq!(given_up.len(), 1, "{given_up:?}");
    assert!(given_up[0].1.contains("changed"), "{given_up:?}");
    let changed = given_up[0].0.0 as usize;
    assert_eq!(inventory.files[changed].file.path.as_bytes(), b"b");
    inventory.files.truncate(changed);
    scene.check(&[0], &inventory, &land);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_stop_is_noticed_while_nothing_moves() {
    let scene = Scene::new().await;
    scene.node(0).put("large", &bytes(20_000_000, 1));
    let inventory = scene.inventory().await;
    let land = Scene::land(&inventory, 1);
    let context = scene.context(inventory, land.clone());
    let stop = context.stop.clone();
    let running = tokio::spawn(async move { collect(&context).await });
    land.reached().await;
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    assert_eq!(ended.unwrap().unwrap().failed, []);
}
