//! Casts that receivers refuse, and objects that sources cannot send.

use crate::scene::{Scene, name};
use std::fs;
use thalweg_cast::source::{CastError, Event, Outcome};
use thalweg_units::ByteSize;

fn reasons(scene: &Scene) -> Vec<String> {
    let why = |event: &Event| match event {
        Event::Refused { why, again: false, .. } => Some(why.clone()),
        _ => None,
    };
    scene.events.all().iter().filter_map(why).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_by_policy_size_space_and_name() {
    let scene = Scene::with(4, |n, settings| match n {
        1 => settings.inbox[0].from = vec!["n3".parse().unwrap()],
        2 => settings.inbox[0].max_bytes = Some(ByteSize::from_bytes(1000)),
        3 => settings.keep_free = ByteSize::from_bytes(u64::MAX),
        _ => {}
    })
    .await;
    scene.file("image", 1001);
    fs::write(scene.nodes[3].inbox("image"), "something else").unwrap();
    for (n, reason) in [
        (1, "accepts nothing from you"),
        (2, "at most 1 kB per cast"),
        (4, "another file or directory named"),
    ] {
        let mut request = scene.request("image");
        request.to = vec![name(n)];
        let totals = scene.cast(request).await.unwrap();
        assert_eq!(totals.outcome, Outcome::Failed);
        let said = reasons(&scene);
        assert!(said.last().unwrap().contains(reason), "{said:?}");
    }
    let mut request = scene.request("image");
    request.to = vec![name(3)];
    request.patience = std::time::Duration::ZERO;
    assert_eq!(scene.cast(request).await.unwrap().outcome, Outcome::Failed);
    let said = reasons(&scene);
    assert!(said.last().unwrap().contains("has room for 0 B"), "{said:?}");
    assert_eq!(fs::read_to_string(scene.nodes[3].inbox("image")).unwrap(), "something else");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_cast_is_refused_at_once() {
    let scene = Scene::new(1).await;
    let missing = scene.cast(scene.request("missing")).await.unwrap_err();
    assert!(matches!(missing, CastError::Survey(_)), "{missing}");
    scene.file("image", 10);
    let mut request = scene.request("image");
    request.to = vec!["nobody".parse().unwrap()];
    assert!(matches!(scene.cast(request).await.unwrap_err(), CastError::Member(_)));
    let mut request = scene.request("image");
    request.name = Some(b"../up".to_vec());
    assert!(matches!(scene.cast(request).await.unwrap_err(), CastError::Name(_)));
    let mut request = scene.request("image");
    request.shape = (Some(3000), None);
    assert!(matches!(scene.cast(request).await.unwrap_err(), CastError::Shape(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_file_that_changes_ends_the_cast_and_nothing_gets_a_name() {
    let scene = Scene::new(1).await;
    let content = scene.file("image", 3_000_000);
    let request = scene.request("image");
    // The object is described once, so that the next cast need not read it; no receiver is there yet.
    let mut absent = request.clone();
    absent.patience = std::time::Duration::ZERO;
    assert_eq!(scene.cast(absent).await.unwrap().outcome, Outcome::Complete);
    fs::remove_file(scene.nodes[0].inbox("image")).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let path = scene.path("image");
    let changed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let casting = {
        // The file changes after it was described and before it is sent: the plan is reported in between.
        let changed = changed.clone();
        let change = move |event: &Event| {
            if matches!(event, Event::Planned { .. }) {
                let mut other = content.clone();
                other.push(7);
                fs::write(&path, other).unwrap();
                changed.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        };
        scene.cast_telling(request, stop, change)
    };
    let totals = casting.await.unwrap();
    assert!(changed.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(totals.outcome, Outcome::Failed);
    assert!(totals.why.is_some());
    let is_told = |event: &Event| matches!(event, Event::Broken { why } if why.contains("changed"));
    assert!(scene.events.all().iter().any(is_told), "{:?}", scene.events.all());
    assert!(!scene.nodes[0].inbox("image").exists());
}
