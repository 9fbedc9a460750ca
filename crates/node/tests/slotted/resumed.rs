//! The destination is killed and restarted: data that others hold does not leave its source again.

use crate::{
    land::Memory,
    methods::{bytes, honest, planned},
    scene::{JOB, Scene, UNIT, name},
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use thalweg_files::inventory::Inventory;
use thalweg_gather::slotted::{ScheduleOutcome, ScheduledRun, Scheme, run};
use thalweg_plan::collection::{Rule, TimedPath, Timetable};
use thalweg_units::ByteSize;

/// The bytes of requests, listings and hashes of a session.
const MESSAGES: u64 = 30_000;

/// Some data of both sources by way of n2, some of the first source by way of n1; the rest in hours.
fn begun() -> Timetable {
    let path =
        |source, start, via: &[u32], units| TimedPath { source, start, via: via.into(), units };
    let paths = vec![
        path(0, 0, &[2, 3], 20),
        path(0, 0, &[1, 3], 10),
        path(1, 0, &[2, 3], 12),
        path(0, 1_000_000, &[2, 3], 100),
        path(1, 1_000_000, &[2, 3], 100),
    ];
    Timetable { slots: 1_000_002, paths }
}

/// Runs a session until the others hold that data and about `landed` bytes are here, and then kills it.
async fn killed(scene: &Scene, landed: u64) -> (Inventory, Arc<Memory>) {
    let inventory = scene.inventory().await;
    let (context, land) = scene.context(inventory.clone());
    land.stop_at(landed);
    let scheme = Scheme::Paths(begun(), Rule::Delay(Duration::from_millis(50)));
    let session = tokio::spawn(async move { run(&context, course(scheme, false)).await });
    scene.events.transfers(&name(2), 2).await;
    scene.events.transfers(&name(1), 1).await;
    land.has(landed).await;
    session.abort();
    assert!(session.await.unwrap_err().is_cancelled(), "it was over before");
    (inventory, land)
}

fn course(scheme: Scheme, resumed: bool) -> ScheduledRun {
    ScheduledRun { scheme, unit: ByteSize::from_bytes(UNIT), job: JOB, resumed, seed: 1 }
}

/// Runs the next session, which has kept all that was stored before.
async fn again(
    scene: &Scene,
    inventory: Inventory,
    before: &Memory,
) -> (ScheduleOutcome, Arc<Memory>) {
    let scheme = Scheme::Paths(planned(scene).await, Rule::Sync(0.95));
    let mut inventory = inventory;
    for (number, wanted) in inventory.files.iter_mut().enumerate() {
        wanted.missing = before.missing(number);
    }
    let (context, land) = scene.context(inventory);
    let outcome = run(&context, course(scheme, true)).await.unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    for node in &scene.nodes {
        assert_eq!(node.spool.as_ref().unwrap().used(), 0, "n{} still holds something", node.n);
    }
    (outcome, land)
}

/// Checks that both sessions together have everything as it is at the sources.
fn check(scene: &Scene, inventory: &Inventory, sessions: [&Memory; 2]) {
    for (number, wanted) in inventory.files.iter().enumerate() {
        let path = std::str::from_utf8(wanted.file.path.as_bytes()).unwrap();
        let data = scene.nodes[wanted.source as usize].dir.path().join("data");
        let there = std::fs::read(data.join(path)).unwrap();
        assert!(sessions.iter().all(|land| land.is_of(number, &there)), "{path}");
        let missing = sessions[0].missing(number);
        let lacks = sessions[1].missing(number);
        let is_here = |at: u64| !lacks.iter().any(|range| range.contains(&at));
        assert!(missing.into_iter().flatten().all(is_here), "{path} is not whole");
    }
}

fn amounts(inventory: &Inventory) -> [u64; 2] {
    inventory.amounts(2).try_into().unwrap()
}

/// The bytes that a session lacked at its end.
fn missing(land: &Memory, inventory: &Inventory) -> u64 {
    let lacks = (0..inventory.files.len()).flat_map(|number| land.missing(number));
    lacks.map(|range| range.end - range.start).sum()
}

/// The files of the data that a node holds.
fn held(scene: &Scene, node: usize) -> Vec<PathBuf> {
    let spool = scene.nodes[node].dir.path().join("state/spool");
    std::fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_others_hold_leaves_its_source_once() {
    let scene = honest().await;
    let (inventory, before) = killed(&scene, 300_000).await;
    assert!(!held(&scene, 2).is_empty());
    let held_by_n1: u64 = 10 * UNIT;
    let held_by_n2 = scene.nodes[2].spool.as_ref().unwrap().used();
    let (outcome, land) = again(&scene, inventory.clone(), &before).await;
    check(&scene, &inventory, [&before, &land]);
    assert_eq!(land.given_up(), []);
    let [first, second] = amounts(&inventory);
    let sent = [scene.nodes[0].sent(), scene.nodes[1].sent()];
    assert!((first..first + MESSAGES).contains(&sent[0]), "{sent:?} {first}");
    // It forwarded some of the first source's data, perhaps again.
    assert!(sent[1] < second + 2 * held_by_n1 + MESSAGES, "{sent:?} {second}");
    let adopted = outcome.transfers.iter().filter(|t| t.path.is_none());
    let adopted: u64 = adopted.map(|t| t.bytes).sum();
    // All that it held when the first call was killed, except what had been stored by then and the records.
    let landed = amounts(&inventory).iter().sum::<u64>() - missing(&before, &inventory);
    println!("n2 held {held_by_n2}, {adopted} were taken from there, {landed} had landed");
    assert!(adopted > 0 && adopted + landed + MESSAGES >= held_by_n2, "{outcome:?}");
    let said = format!("{:?}", scene.events);
    assert!(said.contains("of an earlier call, which are fetched from there"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_lost_by_an_intermediate_s_disk_comes_from_its_source() {
    let scene = honest().await;
    let (inventory, before) = killed(&scene, 1).await;
    for entry in held(&scene, 2) {
        let mut content = std::fs::read(&entry).unwrap();
        // Some of each part in the first half of its data; its label comes after all of the data.
        let half = content.len() / 2;
        content[..half].iter_mut().step_by(500).for_each(|byte| *byte ^= 1);
        std::fs::write(entry, content).unwrap();
    }
    let (_, land) = again(&scene, inventory.clone(), &before).await;
    check(&scene, &inventory, [&before, &land]);
    let [first, _] = amounts(&inventory);
    assert!(scene.nodes[0].sent() > first + 8 * UNIT, "nothing was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_kept_of_a_file_that_has_changed_since() {
    let scene = honest().await;
    let (_, _) = killed(&scene, 1).await;
    scene.nodes[0].put("large", &bytes(2_000_000, 99));
    // A new inventory, of which nothing was kept.
    let inventory = scene.inventory().await;
    let sizes: Vec<u64> = inventory.files.iter().map(|w| w.file.snapshot.size).collect();
    let before = Memory::new(&sizes);
    let sent = scene.nodes[1].sent();
    let (_, land) = again(&scene, inventory.clone(), &before).await;
    check(&scene, &inventory, [&before, &land]);
    assert_eq!(land.given_up(), []);
    let [_, second] = amounts(&inventory);
    assert!(scene.nodes[1].sent() - sent < second, "what n2 holds of the other source is good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_destination_uses_what_others_hold_when_it_returns() {
    let scene = honest().await;
    let inventory = scene.inventory().await;
    let (context, before) = scene.context(inventory.clone());
    before.stop_at(1);
    let scheme = Scheme::Paths(begun(), Rule::Delay(Duration::from_millis(50)));
    let stop = context.stop.clone();
    let session = tokio::spawn(async move { run(&context, course(scheme, false)).await });
    scene.events.transfers(&name(2), 2).await;
    stop.cancel();
    session.await.unwrap().unwrap();
    let (_, land) = again(&scene, inventory.clone(), &before).await;
    check(&scene, &inventory, [&before, &land]);
    let [first, _] = amounts(&inventory);
    // Data on its way to n1 may not have arrived there.
    assert!(scene.nodes[0].sent() < first + 10 * UNIT + MESSAGES);
}
