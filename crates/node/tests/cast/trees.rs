//! Receivers that serve each other, and how bad ones are treated.

use crate::{
    parents::ways,
    scene::{Scene, name},
};
use std::{fs, os::unix::fs::FileExt as _};
use thalweg_cast::source::{Event, Outcome};
use thalweg_paths::estimates::Estimates;
use thalweg_wire::cast::Fault;

/// n0 → n1 → n2, and n2 knows of the source as well.
const LINE: &str = "from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\nn0,n2,10 Mbit/s\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_parent_is_replaced() {
    let mut scene = Scene::new(2).await;
    let content = scene.file("image", 3_000_000);
    scene.nodes[0].kill().await;
    let mut request = scene.request("image");
    request.to = vec![name(2), name(1)];
    request.estimates = Estimates::parse(LINE).unwrap();
    request.parents = 1;
    request.patience = std::time::Duration::from_secs(2);
    let totals = scene.cast(request).await.unwrap();
    assert_eq!(
        (totals.outcome, totals.complete),
        (Outcome::Partial, 1),
        "{:?}",
        scene.events.all()
    );
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lying_parent_is_named_and_dropped_and_does_no_harm() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", 3_000_000);
    let mut first = scene.request("image");
    first.to = vec![name(1)];
    assert_eq!(scene.cast(first).await.unwrap().outcome, Outcome::Complete);

    // Once n1 has reported that it has the object, its copy is altered without a visible trace.
    let path = scene.nodes[0].inbox("image");
    let alter = move || {
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&vec![0xaa; 3_000_000], 0).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(before)).unwrap();
    };
    // By then n2 has not got all of it from n1.
    let _ways = ways(&scene, &[(2, 1, 300_000), (0, 2, 3_000_000)]).await;

    let mut second = scene.request("image");
    second.estimates = Estimates::parse(LINE).unwrap();
    second.parents = 1;
    let told = move |event: &Event| {
        if matches!(event, Event::Received { receiver, already: true, .. } if *receiver == name(1))
        {
            alter();
        }
    };
    let casting = scene.cast_telling(second, tokio_util::sync::CancellationToken::new(), told);
    let totals = casting.await.unwrap();
    let all = scene.events.all();
    assert_eq!(totals.outcome, Outcome::Complete, "{all:?}");
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
    let lies = all.iter().filter(|event| {
        matches!(event, Event::ParentLeft { receiver, parent, fault: Fault::Corrupt, .. }
            if *receiver == name(2) && *parent == name(1))
    });
    assert_eq!(lies.count(), 1, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_simultaneous_casts_share_the_links_and_do_not_mix() {
    let scene = Scene::new(2).await;
    let _ways = ways(&scene, &[(0, 1, 2_000_000), (0, 2, 2_000_000)]).await;
    let contents = ["one", "two"].map(|path| (path, scene.file(path, 4_000_000)));
    let stop = tokio_util::sync::CancellationToken::new;
    let first = scene.cast_until(scene.request("one"), stop());
    let second = scene.cast_until(scene.request("two"), stop());
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert_eq!(second.unwrap().outcome, Outcome::Complete, "{:?}", scene.events.all());
    // Neither waited for the other's end.
    let all = scene.events.all();
    let before = all.iter().take_while(|event| !matches!(event, Event::Received { .. }));
    let accepted = before.filter(|event| matches!(event, Event::Accepted { .. })).count();
    assert_eq!(accepted, 4, "{all:?}");
    for (node, (path, content)) in
        scene.nodes.iter().flat_map(|n| contents.iter().map(move |c| (n, c)))
    {
        assert!(fs::read(node.inbox(path)).unwrap() == *content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_receiver_is_served_by_one_that_has_the_object() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", 3_000_000);
    let mut first = scene.request("image");
    first.to = vec![name(1)];
    assert_eq!(scene.cast(first).await.unwrap().outcome, Outcome::Complete);
    let mut second = scene.request("image");
    second.estimates =
        Estimates::parse("from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\n").unwrap();
    second.parents = 1;
    let totals = scene.cast(second).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
    assert_eq!(totals.served_bytes, 0, "{:?}", scene.events.all());
}
