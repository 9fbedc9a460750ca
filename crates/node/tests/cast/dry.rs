//! Dry runs: receivers answer as they would to the cast itself, and nothing is begun.

use crate::scene::{Scene, name};
use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};
use thalweg_cast::{
    Settings,
    source::{Event, Outcome, Request, Totals},
};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;
use tokio_util::sync::CancellationToken;

const LENGTH: usize = 1_500_000;

/// What is wrong with `n2`: its settings, what is done to it, its answer, and the outcome.
struct Case {
    what: &'static str,
    set: fn(&mut Settings),
    make: fn(&mut Scene),
    says: &'static str,
    ends: Outcome,
}

const fn case(
    what: &'static str,
    set: fn(&mut Settings),
    make: fn(&mut Scene),
    says: &'static str,
) -> Case {
    Case { what, set, make, says, ends: Outcome::Partial }
}

const CASES: [Case; 10] = [
    Case { ends: Outcome::Complete, ..case("nothing", |_| {}, |_| {}, "") },
    case("no inbox", |settings| settings.inbox.clear(), |_| {}, "accepts nothing from you"),
    case(
        "an inbox for others",
        |settings| settings.inbox[0].from = vec!["n1".parse().unwrap()],
        |_| {},
        "accepts nothing from you",
    ),
    case(
        "too large",
        |settings| settings.inbox[0].max_bytes = Some(ByteSize::from_bytes(1000)),
        |_| {},
        "at most",
    ),
    case("no room", |settings| settings.keep_free = ByteSize::from_bytes(1 << 60), |_| {}, "room"),
    case(
        "another file of its name",
        |_| {},
        |scene| fs::write(scene.nodes[1].inbox("image"), "another").unwrap(),
        "directory named",
    ),
    case(
        "another file of the same name and length",
        |_| {},
        |scene| fs::write(scene.nodes[1].inbox("image"), vec![1; LENGTH]).unwrap(),
        "directory named",
    ),
    case(
        "a link of its name",
        |_| {},
        |scene| {
            let inbox = scene.nodes[1].inbox("image");
            std::os::unix::fs::symlink("elsewhere", inbox).unwrap();
        },
        "directory named",
    ),
    Case {
        ends: Outcome::Complete,
        ..case(
            "the same is there",
            |_| {},
            |scene| _ = fs::copy(scene.path("image"), scene.nodes[1].inbox("image")).unwrap(),
            "",
        )
    },
    case(
        "no place for one more",
        |settings| settings.max_casts = 0,
        |_| {},
        "maximum number of casts",
    ),
];

fn dry(scene: &Scene) -> Request {
    Request { dry_run: true, patience: Duration::ZERO, ..scene.request("image") }
}

/// The receivers and texts of events after the first `since`.
fn said(scene: &Scene, since: usize) -> Vec<(Name, String)> {
    let said = |event: &Event| match event {
        Event::Refused { receiver, why, .. } | Event::Unreached { receiver, why } => {
            Some((receiver.clone(), why.clone()))
        }
        _ => None,
    };
    scene.events.all()[since..].iter().filter_map(said).collect()
}

/// Everything in the inboxes and in the source's directory.
fn there(scene: &Scene) -> Vec<String> {
    let inboxes = scene.nodes.iter().map(|node| node.inbox(""));
    let all = inboxes.flat_map(|inbox| fs::read_dir(inbox).unwrap());
    let mut all: Vec<String> = all.map(|e| e.unwrap().path().display().to_string()).collect();
    all.sort();
    all
}

fn ends(totals: &Totals) -> (Outcome, usize) {
    (totals.outcome, totals.complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_answer_as_they_would_to_the_cast() {
    for Case { what, set, make, says, ends: wanted } in CASES {
        let mut scene = Scene::with(2, |n, settings| {
            if n == 2 {
                set(settings);
            }
        })
        .await;
        scene.file("image", LENGTH);
        make(&mut scene);
        let before = there(&scene);
        let totals = scene.cast(dry(&scene)).await.unwrap();
        assert!(totals.dry_run, "{what}");
        assert_eq!(there(&scene), before, "{what}: nothing is begun");
        let words = said(&scene, 0);
        let told = scene.events.all().len();
        let request = Request { dry_run: false, ..dry(&scene) };
        let real = scene.cast(request).await.unwrap();
        assert_eq!(ends(&totals), ends(&real), "{what}: {words:?}");
        assert_eq!(totals.outcome, wanted, "{what}: {words:?}");
        let real_words = said(&scene, told);
        for words in [words, real_words] {
            let is_said = words.iter().any(|(who, why)| *who == name(2) && why.contains(says));
            assert!(is_said || says.is_empty(), "{what}: {words:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_receiver_is_named_and_one_that_has_the_object_would_accept_it() {
    let mut scene = Scene::new(2).await;
    scene.file("image", LENGTH);
    let mut first = scene.request("image");
    first.to = vec![name(1)];
    scene.cast(first).await.unwrap();
    scene.nodes[1].kill().await;
    let totals = scene.cast(dry(&scene)).await.unwrap();
    assert_eq!(ends(&totals), (Outcome::Partial, 1));
    assert_eq!(said(&scene, 0)[0].0, name(2));
    let would = |event: &Event| matches!(event, Event::WouldTake { .. });
    assert_eq!(scene.events.all().iter().filter(|event| would(event)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_source_ends_a_dry_run_as_well() {
    let scene = Scene::new(1).await;
    scene.file("image", LENGTH);
    let mut gone = dry(&scene);
    gone.path = scene.path("gone");
    let why = scene.cast(gone).await.unwrap_err().to_string();
    assert!(why.contains("gone"), "{why}");
    if rustix::process::geteuid().is_root() {
        return println!("the rest is skipped: the superuser may read everything");
    }
    fs::set_permissions(scene.path("image"), fs::Permissions::from_mode(0o000)).unwrap();
    let why = scene.cast(dry(&scene)).await.unwrap_err().to_string();
    assert!(why.contains("ermission denied"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_running_command_is_reported() {
    let mut scene = Scene::new(1).await;
    scene.file("image", LENGTH);
    scene.nodes[0].kill().await;
    let stop = CancellationToken::new();
    let (told, mut began) = tokio::sync::mpsc::channel(1);
    let first = scene.cast_telling(scene.request("image"), stop.clone(), move |event| {
        if matches!(event, Event::Unreached { .. }) {
            _ = told.try_send(());
        }
    });
    let first = tokio::spawn(first);
    began.recv().await.unwrap();
    let why = scene.cast(dry(&scene)).await.unwrap_err().to_string();
    assert!(why.contains("running") || why.contains("runs"), "{why}");
    stop.cancel();
    first.await.unwrap().unwrap();
}
