//! Deliveries that are altered afterwards, and names that exist already.

use crate::{
    parents::{LENGTH, first_to_n1, request, ways},
    scene::{Scene, name},
};
use std::{fs, path::Path};
use thalweg_cast::source::{Event, Outcome};
use thalweg_units::ByteSize;
use tokio_util::sync::CancellationToken;

fn reasons(scene: &Scene) -> Vec<String> {
    let why = |event: &Event| match event {
        Event::Refused { why, .. } => Some(why.clone()),
        _ => None,
    };
    scene.events.all().iter().filter_map(why).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_delivery_does_not_count_as_the_object() {
    let scene = Scene::new(1).await;
    let content = scene.file("image", 3_000_000);
    assert_eq!(scene.cast(scene.request("image")).await.unwrap().outcome, Outcome::Complete);
    let mut altered = content;
    altered[1_500_000] ^= 1;
    fs::write(scene.nodes[0].inbox("image"), &altered).unwrap();
    let totals = scene.cast(scene.request("image")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Failed);
    let said = reasons(&scene);
    assert!(said.iter().any(|why| why.contains("another file or directory named")), "{said:?}");
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == altered, "nothing is overwritten");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identical_copy_in_the_inbox_is_not_sent_again() {
    let scene = Scene::new(2).await;
    fs::create_dir(scene.path("set")).unwrap();
    let content = scene.file("set/a", 3_000_000);
    scene.file("set/b", 17);
    for node in &scene.nodes {
        fs::create_dir(node.inbox("set")).unwrap();
        fs::write(node.inbox("set/a"), &content).unwrap();
        fs::copy(scene.path("set/b"), node.inbox("set/b")).unwrap();
    }
    fs::write(scene.nodes[1].inbox("set/b"), "another seventeen").unwrap();
    let totals = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Partial, "{:?}", scene.events.all());
    assert_eq!(scene.events.received(), [(name(1), 0, 0)]);
    assert_eq!(totals.served_bytes, 0);
    assert_eq!(fs::read(scene.nodes[1].inbox("set/b")).unwrap(), b"another seventeen");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_bytes_count_against_the_limit() {
    let scene = Scene::with(2, |n, settings| {
        let most = if n == 1 { 1_000_000 } else { 2_000_000 };
        settings.inbox[0].max_bytes = Some(ByteSize::from_bytes(most));
    })
    .await;
    for n in 0..300 {
        fs::create_dir_all(scene.path(&format!("set/d{n}"))).unwrap();
    }
    let totals = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!((totals.outcome, totals.complete), (Outcome::Partial, 1));
    let said = reasons(&scene);
    assert!(said[0].contains("at most 1 MB per cast") && said[0].contains("1.229 MB"), "{said:?}");
    let homes = fs::read_dir(scene.nodes[0].inbox("")).unwrap();
    for home in homes {
        assert_eq!(fs::read_dir(home.unwrap().path().join("made")).unwrap().count(), 0);
    }
    assert_eq!(fs::read_dir(scene.nodes[1].inbox("set")).unwrap().count(), 300);
}

/// Files that this process holds open and that no longer have a name in this directory.
fn held_without_a_name(path: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let gone = format!("{} (deleted)", path.display());
    all.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == gone.as_str()))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_taken_out_of_the_inbox_hold_no_space() {
    let scene = Scene::new(1).await;
    for path in ["image", "other"] {
        scene.file(path, 3_000_000);
    }
    assert_eq!(scene.cast(scene.request("image")).await.unwrap().outcome, Outcome::Complete);
    let delivered = scene.nodes[0].inbox("image");
    fs::remove_file(&delivered).unwrap();
    assert!(held_without_a_name(&delivered) > 0);
    assert_eq!(scene.cast(scene.request("other")).await.unwrap().outcome, Outcome::Complete);
    assert_eq!(held_without_a_name(&delivered), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_for_the_same_receiver_do_not_disturb_each_other() {
    let scene = Scene::new(3).await;
    let content = scene.file("image", LENGTH);
    let _ways = ways(&scene, &[(0, 1, 4_000_000), (0, 2, 4_000_000), (0, 3, 4_000_000)]).await;
    let to = |who: [u8; 2]| {
        let to = who.map(name).to_vec();
        thalweg_cast::source::Request { to, ..request(&scene) }
    };
    let first = tokio::spawn(scene.cast_until(to([1, 2]), CancellationToken::new()));
    scene.nodes[1].holds(0).await;
    let second = scene.cast(to([2, 3])).await.unwrap();
    assert_eq!(second.outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert_eq!(first.await.unwrap().unwrap().outcome, Outcome::Complete);
    for node in &scene.nodes {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
    }
    assert_eq!(reasons(&scene), ["another `thalweg cast` of yours is already sending this to it"]);
    let is_lost = |event: &Event| matches!(event, Event::Unreached { .. });
    assert!(!scene.events.all().iter().any(is_lost), "{:?}", scene.events.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cast_that_the_settings_no_longer_allow_is_not_completed() {
    let mut scene = Scene::new(2).await;
    scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let ways = ways(&scene, &[(2, 1, 300_000), (0, 2, 300_000)]).await;
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(request(&scene), stop.clone()));
    scene.nodes[1].holds(100_000).await;
    stop.cancel();
    casting.await.unwrap().unwrap();
    scene.nodes[1].kill().await;
    scene.nodes[1].set(|settings| settings.inbox[0].from = vec!["n1".parse().unwrap()]);
    scene.nodes[1].start().await;
    ways.values().for_each(|way| way.set(100_000_000));
    let totals = scene.cast(request(&scene)).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Partial);
    let said = reasons(&scene);
    assert!(said.last().unwrap().contains("accepts nothing from you"), "{said:?}");
    assert_eq!(fs::read_dir(scene.nodes[1].inbox("")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_refused_a_cast_need_not_be_told_that_it_is_forgotten() {
    let scene = Scene::with(2, |n, settings| {
        if n == 2 {
            settings.inbox[0].max_bytes = Some(ByteSize::from_bytes(1000));
        }
    })
    .await;
    scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let totals = scene.cast(request(&scene)).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Partial);
    let forgotten = scene.forget("image").await.unwrap();
    let notices = forgotten.notices.iter();
    let notices: Vec<_> = notices.map(|notice| (&notice.receiver, &notice.why)).collect();
    assert_eq!(notices, [(&name(2), &None)]);
}
