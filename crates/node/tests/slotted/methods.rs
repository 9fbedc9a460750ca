//! Each method delivers all of the data, in the order that it promises.

use crate::scene::{Scene, Sort, UNIT};
use std::time::Duration;
use thalweg_gather::slotted::{ScheduleOutcome, Scheme, TransferTime};
use thalweg_plan::{
    Graph,
    collection::{BestPath, Direct, Grid, Rule, TimedPath, Timetable},
};
use thalweg_units::{ByteSize, Rate};

/// Bytes without near repetitions.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; length];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut out);
    out
}

/// Two sources with large and small files, and an intermediate.
pub async fn scene(sorts: &[Sort]) -> Scene {
    let scene = Scene::new(sorts).await;
    scene.nodes[0].put("large", &bytes(3_000_007, 1));
    (0..40).for_each(|n| scene.nodes[0].put(&format!("small{n}"), &bytes(1000 + n, n as u64)));
    scene.nodes[1].put("other", &bytes(1_500_000, 2));
    scene.nodes[1].put("one", b"1");
    scene
}

/// A scene of honest nodes.
pub async fn honest() -> Scene {
    scene(&[Sort::open(), Sort::open(), Sort::open()]).await
}

const GRID: Grid = Grid { slot: Duration::from_millis(100), unit: ByteSize::from_bytes(UNIT) };

/// The capacities c′: the first source's direct path is slow, that through the intermediate is not.
fn graph() -> Graph {
    let mut graph = Graph::new(4);
    for (from, to, mbps) in [(0, 3, 16.0), (0, 2, 64.0), (2, 3, 48.0), (1, 3, 32.0), (1, 2, 16.0)] {
        graph.set(from, to, Some(Rate::from_mbps(mbps)));
    }
    graph
}

async fn amounts(scene: &Scene) -> Vec<ByteSize> {
    scene.inventory().await.amounts(4).into_iter().map(ByteSize::from_bytes).collect()
}

pub async fn planned(scene: &Scene) -> Timetable {
    let problem = GRID.collect(&graph(), &amounts(scene).await, 3).unwrap();
    let timetable = problem.timetable().unwrap();
    assert!(timetable.paths.iter().any(|path| path.via.len() > 1), "nothing goes by others");
    timetable
}

fn of_path(outcome: &ScheduleOutcome, path: usize) -> Vec<&TransferTime> {
    outcome.transfers.iter().filter(|t| t.path.is_some_and(|p| p.0 == path)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rule_of_a_timetable_delivers_everything_and_leaves_nothing_behind() {
    let scene = honest().await;
    let timetable = planned(&scene).await;
    let slot = Duration::from_millis(20);
    for rule in [Rule::Sync(1.0), Rule::Sync(0.95), Rule::Delay(slot), Rule::Chain] {
        let ended = scene.gather(Scheme::Paths(timetable.clone(), rule)).await;
        scene.check(&ended);
        let outcome = ended.outcome.unwrap();
        assert_eq!((outcome.left_over, outcome.failed.len()), (0, 0), "{rule:?}");
        assert!(outcome.storage[&2] > 0 && outcome.messages > 0, "{outcome:?}");
        assert_eq!(scene.nodes[2].spool.as_ref().unwrap().used(), 0, "{rule:?}");
        let of_paths: u64 = timetable.paths.iter().map(|path| path.units * UNIT).sum();
        let to_here = outcome.transfers.iter().filter(|t| t.to == 3).map(|t| t.bytes);
        assert!(to_here.sum::<u64>() <= of_paths);
        assert!(outcome.transfers.iter().all(|t| t.failed.is_none()), "{rule:?}");
        for (path, timed) in timetable.paths.iter().enumerate() {
            // A direct best path is one transfer, whatever its parcels were planned to be.
            let most = if rule == Rule::Chain { of_paths } else { timed.units * UNIT };
            assert!(of_path(&outcome, path).iter().all(|t| t.bytes <= most));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_full_synchronisation_each_step_waits_for_the_previous_one() {
    let scene = honest().await;
    let timetable = planned(&scene).await;
    let ended = scene.gather(Scheme::Paths(timetable.clone(), Rule::Sync(1.0))).await;
    let outcome = ended.outcome.unwrap();
    let step = |slot: u32| outcome.transfers.iter().filter(move |t| t.path.unwrap().1 == slot);
    assert!(timetable.slots > 3);
    for slot in 1..timetable.slots {
        let before = step(slot - 1).map(|t| t.began + t.took).max();
        let begins = step(slot).map(|t| t.began).min();
        assert!(begins.is_none() || before <= begins, "step {slot}: {before:?} {begins:?}");
    }
    // And on each path the hops follow one after the other.
    for path in 0..timetable.paths.len() {
        let hops = of_path(&outcome, path);
        assert!(
            hops.windows(2).all(|w| w[0].began + w[0].took <= w[1].began && w[0].to == w[1].from)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_data_leaves_its_source_on_time_and_is_forwarded_at_once() {
    let scene = honest().await;
    let timetable = planned(&scene).await;
    let slot = Duration::from_millis(50);
    let ended = scene.gather(Scheme::Paths(timetable.clone(), Rule::Delay(slot))).await;
    let outcome = ended.outcome.unwrap();
    let first = outcome.transfers.iter().map(|t| t.began).min().unwrap();
    for transfer in outcome.transfers.iter().filter(|t| t.from < 2) {
        let at = slot * transfer.path.unwrap().1;
        assert!(transfer.began >= at, "{transfer:?}");
    }
    assert!(first < slot, "{first:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_best_path_streams_and_another_has_two_parcels_in_flight() {
    let scene = honest().await;
    let amounts: Vec<u64> = scene.inventory().await.amounts(4);
    let units: Vec<u64> =
        amounts[..2].iter().map(|bytes| GRID.units(ByteSize::from_bytes(*bytes))).collect();
    let path = |source, via: &[u32]| BestPath { source, via: via.into(), per_slot: 6 };
    let timetable = Timetable::of_best_paths(&[path(0, &[2, 3]), path(1, &[3])], &units);
    assert!(timetable.paths.len() > 8, "several parcels of each: {timetable:?}");
    let ended = scene.gather(Scheme::Paths(timetable, Rule::Chain)).await;
    scene.check(&ended);
    let outcome = ended.outcome.unwrap();
    assert_eq!((outcome.left_over, outcome.failed.len()), (0, 0));
    let of = |from, to| {
        let on_leg = outcome.transfers.iter().filter(move |t| (t.from, t.to) == (from, to));
        on_leg.collect::<Vec<&TransferTime>>()
    };
    let direct: Vec<u64> = of(1, 3).iter().map(|t| t.bytes).collect();
    assert_eq!(direct, [amounts[1]], "one connection, all of it");
    for leg in [of(0, 2), of(2, 3)] {
        assert!(leg.len() > 4 && leg.iter().map(|t| t.bytes).sum::<u64>() == amounts[0]);
        let under_way = |t: &TransferTime| {
            let at = |other: &&&TransferTime| {
                other.began <= t.began && t.began < other.began + other.took
            };
            leg.iter().filter(at).count()
        };
        assert!(leg.iter().all(|t| under_way(t) <= 2), "{leg:?}");
    }
    let first: Vec<_> = of(0, 2).iter().map(|t| t.began).collect();
    let both = first.iter().filter(|began| **began == first.iter().copied().min().unwrap());
    assert!(both.count() <= 2 && of(0, 2).windows(2).any(|w| w[1].began < w[0].began + w[0].took));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_passes_two_intermediates_of_which_one_may_be_a_source() {
    let scene = honest().await;
    let units = amounts(&scene).await.into_iter().map(|bytes| GRID.units(bytes));
    let units: Vec<u64> = units.collect();
    let path =
        |source, start, via: &[u32], units| TimedPath { source, start, via: via.into(), units };
    let paths = vec![
        path(0, 0, &[2, 1, 3], units[0] / 2),
        path(0, 1, &[1, 3], units[0] - units[0] / 2),
        path(1, 0, &[2, 3], units[1]),
    ];
    let ended = scene.gather(Scheme::Paths(Timetable { slots: 4, paths }, Rule::Sync(1.0))).await;
    scene.check(&ended);
    let outcome = ended.outcome.unwrap();
    assert_eq!((outcome.left_over, of_path(&outcome, 0).len()), (0, 3));
    assert!(outcome.storage[&1] > 1_000_000 && outcome.storage[&2] > 1_000_000);
    for node in [1, 2] {
        assert_eq!(scene.nodes[node].spool.as_ref().unwrap().used(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_direct_method_delivers_everything() {
    let scene = honest().await;
    let slot = Duration::from_millis(30);
    for (method, over) in [
        (Direct::AllAtOnce, 1),
        (Direct::AllAtOnce, 4),
        (Direct::OneByOne, 1),
        (Direct::SpreadInTime { group: 1, slot }, 1),
        (Direct::Concurrent(2), 2),
    ] {
        let ended = scene.gather(Scheme::Direct(method, over)).await;
        scene.check(&ended);
        let outcome = ended.outcome.unwrap();
        assert_eq!(outcome.transfers.len(), 2 * over as usize, "{method:?}");
        assert_eq!((outcome.left_over, outcome.storage.len()), (0, 0));
        let times: Vec<_> = outcome.transfers.iter().map(|t| (t.began, t.took)).collect();
        match method {
            Direct::OneByOne => assert!(times[0].0 + times[0].1 <= times[1].0),
            Direct::SpreadInTime { .. } => {
                let begins = times.iter().map(|t| t.0);
                assert!(begins.clone().max().unwrap() >= begins.min().unwrap() + slot / 2);
            }
            _ => {}
        }
    }
}
