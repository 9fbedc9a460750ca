//! A failing node costs only its own data, and a lying one is caught.

use crate::{
    fake::{Fake, Vice},
    methods::{bytes, planned, scene},
    scene::{JOB, Scene, Sort},
};
use thalweg_files::remote::Remote;
use thalweg_gather::slotted::{ScheduleOutcome, Scheme};
use thalweg_plan::collection::Rule;
use thalweg_wire::{
    Signer as _,
    object::{Reply, Request, SpoolId},
};

async fn by(sort: Sort) -> (Scene, ScheduleOutcome) {
    let scene = scene(&[Sort::open(), Sort::open(), sort]).await;
    let timetable = planned(&scene).await;
    let ended = scene.gather(Scheme::Paths(timetable, Rule::Sync(0.95))).await;
    scene.check(&ended);
    let outcome = ended.outcome.unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    (scene, outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intermediate_that_sends_wrong_bytes_is_named_and_none_of_them_is_kept() {
    for vice in [Vice::Sends, Vice::Tells] {
        let (scene, outcome) = by(Sort::Fake(Box::new(Fake::new(vice)))).await;
        assert_eq!(outcome.liars, [2], "{vice:?}");
        assert!(outcome.left_over > 0);
        let said = format!("{:?}", scene.events);
        assert!(
            said.contains("node n2 forwarded other bytes than n0 reports to have sent"),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intermediate_that_says_that_files_changed_is_not_believed() {
    let (_, outcome) = by(Sort::Fake(Box::new(Fake::new(Vice::Denies)))).await;
    assert!(outcome.left_over > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_of_a_dead_intermediate_takes_another_path() {
    let (scene, outcome) = by(Sort::Fake(Box::new(Fake::new(Vice::Dies)))).await;
    assert!(outcome.left_over > 0 && outcome.storage.is_empty());
    assert!(format!("{:?}", scene.events).contains("node n2 is no longer used"));
    let (scene, outcome) = by(Sort::Absent).await;
    assert!(outcome.left_over > 0 && outcome.transfers.iter().all(|t| t.to == 3));
    assert!(format!("{:?}", scene.events).contains("node n2 is no longer used"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_takes_what_it_can() {
    let spool = 600_000;
    let (scene, outcome) = by(Sort::Honest { to: vec!["*"], spool }).await;
    let full = |why: &String| why.contains("no room");
    let failed = outcome.transfers.iter().filter(|t| t.failed.as_ref().is_some_and(full));
    assert!(failed.count() > 0 && outcome.left_over > 0);
    assert!(outcome.storage.values().all(|most| *most <= spool), "{:?}", outcome.storage);
    assert_eq!(scene.nodes[2].spool.as_ref().unwrap().used(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_source_costs_its_own_data_alone() {
    let scene = scene(&[Sort::open(), Sort::open(), Sort::open()]).await;
    let timetable = planned(&scene).await;
    let inventory = scene.inventory().await;
    let mut scene = scene;
    // Its roster entry still names the port, where nothing listens any more.
    let dead = crate::scene::Node::start(9, Sort::Absent).await;
    drop(std::mem::replace(&mut scene.nodes[1], dead));
    let ended = scene.gather_these(Scheme::Paths(timetable, Rule::Sync(0.95)), inventory).await;
    let outcome = ended.outcome.unwrap();
    let failed: Vec<u32> = outcome.failed.iter().map(|failed| failed.0).collect();
    assert_eq!(failed, [1]);
    for (number, wanted) in ended.inventory.files.iter().enumerate() {
        assert_eq!(ended.land.file(number).is_some(), wanted.source == 0, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changed_is_given_up_and_the_rest_goes_on() {
    let scene = scene(&[Sort::open(), Sort::open(), Sort::open()]).await;
    let timetable = planned(&scene).await;
    let inventory = scene.inventory().await;
    scene.nodes[0].put("large", &bytes(3_000_007, 77));
    scene.nodes[0].put("small7", b"shorter");
    let ended = scene.gather_these(Scheme::Paths(timetable, Rule::Sync(0.95)), inventory).await;
    ended.outcome.unwrap();
    let mut given_up: Vec<u32> = ended.land.given_up().iter().map(|g| g.0.0).collect();
    given_up.sort_unstable();
    given_up.dedup();
    for (number, wanted) in ended.inventory.files.iter().enumerate() {
        let changed = [&b"large"[..], b"small7"].contains(&wanted.file.path.as_bytes());
        assert_eq!(given_up.contains(&(number as u32)), changed, "{}", wanted.file.path);
        assert_eq!(ended.land.file(number).is_none(), changed, "{}", wanted.file.path);
    }
}

/// As after a crash of the destination: the intermediate holds data that nobody requests any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_held_for_an_earlier_session_is_dropped() {
    let scene = scene(&[Sort::open(), Sort::open(), Sort::open()]).await;
    let spool = scene.nodes[2].spool.clone().unwrap();
    let owner = crate::scene::key(103).id();
    let old = SpoolId { job: JOB, number: 5 };
    let mut filling = spool.begin(owner, old, 10, Vec::new()).unwrap();
    let check = thalweg_wire::object::TransferHash(*blake3::hash(b"0123456789").as_bytes());
    filling.push(b"0123456789", Ok(check)).await.unwrap();
    filling.finish().await.unwrap();
    let mut remote = Remote::open(&scene.dialer(), &crate::scene::name(2), &[]).await.unwrap();
    remote.ask(&Request::Spooled(old)).await.unwrap();
    assert_eq!(remote.parts().await.unwrap(), 1, "it is the destination's own");
    drop(remote);
    let timetable = planned(&scene).await;
    let ended = scene.gather(Scheme::Paths(timetable, Rule::Sync(0.95))).await;
    scene.check(&ended);
    let mut remote = Remote::open(&scene.dialer(), &crate::scene::name(2), &[]).await.unwrap();
    let gone = remote.request(&Request::Spooled(old)).await;
    assert!(!matches!(gone, Ok(Reply::Parts(_))) && spool.used() == 0);
}
