//! Casts over real sockets on loopback: a source, and nodes with inboxes.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "../fixtures/access_list.rs"]
mod access_list;
mod altered;
mod dry;
mod fidelity;
mod inboxes;
#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod members;
mod modes;
mod over;
mod parents;
mod partitions;
mod pull_liars;
mod refusals;
mod resumed;
mod ring_liars;
mod ring_shares;
mod rings;
mod scene;
mod trees;
mod ways;

use scene::{Scene, name};
use std::{fs, os::unix::fs::PermissionsExt as _, time::SystemTime};
use thalweg_cast::source::{Event, Outcome};
use thalweg_paths::estimates::Estimates;

#[tokio::test(flavor = "multi_thread")]
async fn each_receiver_gets_a_file_once() {
    let scene = Scene::new(3).await;
    let content = scene.file("image", 9_000_001);
    let totals = scene.cast(scene.request("image")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    for node in &scene.nodes {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
    }
    let received = scene.events.received();
    assert_eq!(received.len(), 3);
    for (name, bytes, beyond) in received {
        assert_eq!(bytes - beyond, 9_000_001, "{name}");
        assert!(beyond <= 300_000, "{name}: {beyond} of no use");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cast_works_over_open_legs_as_well() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", 3_000_000);
    let mut request = scene.request("image");
    request.open = true;
    assert_eq!(scene.cast(request).await.unwrap().outcome, Outcome::Complete);
    for node in &scene.nodes {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_of_a_chain_sends_a_file_once() {
    let scene = Scene::new(3).await;
    let content = scene.file("image", 5_000_000);
    let rates = "from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\nn2,n3,70 Mbit/s\n";
    // On a busy machine, a node whose parent is late takes a block from the source.
    let mut served = Vec::new();
    for turn in 0..5 {
        let mut request = scene.request("image");
        request.name = Some(format!("image-{turn}").into_bytes());
        request.estimates = Estimates::parse(rates).unwrap();
        request.parents = 1;
        let totals = scene.cast(request).await.unwrap();
        assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
        for node in &scene.nodes {
            assert!(fs::read(node.inbox(&format!("image-{turn}"))).unwrap() == content);
        }
        served.push(totals.served_bytes);
        if totals.served_bytes == 5_000_000 {
            break;
        }
    }
    let all = scene.events.all();
    assert_eq!(served.last(), Some(&5_000_000), "{served:?} {all:?}");
    let planned = all.iter().find_map(|event| match event {
        Event::Planned { receivers } => Some(receivers.clone()),
        _ => None,
    });
    let parent = |n: usize| planned.as_ref().unwrap()[n].parents[0].clone();
    assert_eq!([0, 1, 2].map(parent), [name(0), name(1), name(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_length_are_delivered() {
    let scene = Scene::new(2).await;
    for length in [0, 1, 1023, 1024, 1025, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 8 << 20] {
        let path = format!("f{length}");
        let content = scene.file(&path, length);
        let totals = scene.cast(scene.request(&path)).await.unwrap();
        assert_eq!(totals.outcome, Outcome::Complete, "{length}: {:?}", scene.events.all());
        for node in &scene.nodes {
            assert!(fs::read(node.inbox(&path)).unwrap() == content, "{length}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_delivered_with_its_metadata() {
    let scene = Scene::new(2).await;
    fs::create_dir_all(scene.path("set/a/deep")).unwrap();
    fs::create_dir_all(scene.path("set/none")).unwrap();
    let many: Vec<String> = (0..100).map(|n| format!("set/a/f{n}")).collect();
    for (n, path) in many.iter().enumerate() {
        scene.file(path, n * 977);
    }
    scene.file("set/a/deep/large", 3_000_000);
    scene.file("set/a-b", 10);
    std::os::unix::fs::symlink("../../etc", scene.path("set/a/link")).unwrap();
    fs::set_permissions(scene.path("set/a-b"), fs::Permissions::from_mode(0o4751)).unwrap();
    let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123_456_789);
    let file = fs::File::open(scene.path("set/a/f7")).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(old)).unwrap();

    let totals = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    for node in &scene.nodes {
        for path in many.iter().map(String::as_str).chain(["set/a/deep/large", "set/a-b"]) {
            assert!(fs::read(node.inbox(path)).unwrap() == fs::read(scene.path(path)).unwrap());
        }
        assert!(fs::read_dir(node.inbox("set/none")).unwrap().next().is_none());
        assert_eq!(fs::read_link(node.inbox("set/a/link")).unwrap().to_str(), Some("../../etc"));
        let mode = fs::metadata(node.inbox("set/a-b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o751, "no set-user-ID bit");
        assert_eq!(fs::metadata(node.inbox("set/a/f7")).unwrap().modified().unwrap(), old);
    }
}
