//! Which altered copies count as received, and which nodes serve from them.

use crate::{
    parents::{LENGTH, request},
    scene::{Scene, name},
};
use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::Path,
    time::{Duration, SystemTime},
};
use thalweg_cast::source::{Event, Outcome};

/// What becomes of a copy in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It counts as the object, and nothing is sent.
    AsItIs,
    /// It counts as another object, and stays as it is.
    ForAnother,
    /// It counts as missing: the whole object is sent.
    Anew,
}
use Taken::{Anew, AsItIs, ForAnother};

/// Changes a file and restores its time of modification, as a faulty disk would.
fn quietly(file: &Path, change: impl FnOnce(&Path)) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    change(file);
    let opened = File::options().append(true).open(file).unwrap();
    opened.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

fn put(file: &Path, bytes: &[u8], at: u64) {
    File::options().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
}

fn cut(file: &Path, by: u64) {
    let opened = File::options().write(true).open(file).unwrap();
    opened.set_len(opened.metadata().unwrap().len() - by).unwrap();
}

fn flip(file: &Path, at: u64) {
    let mut byte = [0];
    File::open(file).unwrap().read_exact_at(&mut byte, at).unwrap();
    put(file, &[byte[0] ^ 0x10], at);
}

fn remove(path: &Path) {
    match path.symlink_metadata().unwrap().is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

/// A description, the change, and its result.
type Touched = (&'static str, fn(&Path), Taken);

/// What happens to a delivered tree `set` with `a` (1.5 MB) and `d/b`, and the result.
const TOUCHED: [Touched; 15] = [
    ("nothing", |_| {}, AsItIs),
    ("a byte, old time", |set| quietly(&set.join("a"), |a| flip(a, 1_400_000)), ForAnother),
    ("the first byte, old time", |set| quietly(&set.join("a"), |a| flip(a, 0)), ForAnother),
    ("a byte, new time", |set| flip(&set.join("a"), 700_000), ForAnother),
    ("a byte below, old time", |set| quietly(&set.join("d/b"), |b| flip(b, 3)), ForAnother),
    ("longer, old time", |set| quietly(&set.join("a"), |a| put(a, b"x", 1_500_000)), ForAnother),
    ("shorter, old time", |set| quietly(&set.join("a"), |a| cut(a, 1)), ForAnother),
    ("empty", |set| cut(&set.join("a"), 1_500_000), ForAnother),
    (
        "zeros of the same length, old time",
        |set| quietly(&set.join("a"), |a| fs::write(a, vec![0; 1_500_000]).unwrap()),
        ForAnother,
    ),
    (
        "a link to the same content",
        |set| {
            fs::rename(set.join("a"), set.with_extension("elsewhere")).unwrap();
            symlink(set.with_extension("elsewhere"), set.join("a")).unwrap();
        },
        ForAnother,
    ),
    (
        "a directory for a file",
        |set| {
            remove(&set.join("a"));
            fs::create_dir(set.join("a")).unwrap();
        },
        ForAnother,
    ),
    (
        "a copy in its place",
        |set| {
            fs::copy(set.join("a"), set.join("c")).unwrap();
            fs::rename(set.join("c"), set.join("a")).unwrap();
        },
        AsItIs,
    ),
    (
        "another time alone",
        |set| {
            let opened = File::options().append(true).open(set.join("a")).unwrap();
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
            opened.set_times(FileTimes::new().set_modified(then)).unwrap();
        },
        AsItIs,
    ),
    (
        "another mode alone",
        |set| fs::set_permissions(set.join("a"), fs::Permissions::from_mode(0o600)).unwrap(),
        AsItIs,
    ),
    ("gone", remove, Anew),
];

async fn touched(restarted: bool) {
    let mut scene = Scene::new(1).await;
    fs::create_dir_all(scene.path("set/d")).unwrap();
    let content = scene.file("set/a", 1_500_000);
    scene.file("set/d/b", 17);
    let set = scene.nodes[0].inbox("set");
    for (what, touch, wanted) in TOUCHED {
        let totals = scene.cast(scene.request("set")).await.unwrap();
        assert_eq!(totals.outcome, Outcome::Complete, "before {what}: {:?}", scene.events.all());
        touch(&set);
        let before = fs::read(set.join("a")).ok();
        if restarted {
            scene.nodes[0].kill().await;
            scene.nodes[0].start().await;
        }
        let said = scene.events.all().len();
        let totals = scene.cast(scene.request("set")).await.unwrap();
        let events = scene.events.all()[said..].to_vec();
        let is_already = |event: &Event| matches!(event, Event::Received { already: true, .. });
        let seen = match (totals.outcome, totals.already) {
            (Outcome::Complete, 1) => AsItIs,
            (Outcome::Complete, _) => Anew,
            _ => ForAnother,
        };
        assert_eq!(seen, wanted, "{what}, restarted: {restarted}: {events:?}");
        assert_eq!(events.iter().any(is_already), wanted == AsItIs, "{what}: {events:?}");
        match wanted {
            ForAnother => {
                assert_eq!(fs::read(set.join("a")).ok(), before, "{what}: nothing is overwritten");
                remove(&set);
            }
            _ => {
                assert!(fs::read(set.join("a")).unwrap() == content, "{what}");
                let mode = fs::metadata(set.join("a")).unwrap().permissions().mode();
                let its = fs::metadata(scene.path("set/a")).unwrap().permissions().mode();
                assert_eq!(mode, its, "{what}");
            }
        }
        _ = fs::remove_file(set.with_extension("elsewhere"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_counts_as_received_only_if_it_is_whole() {
    touched(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_after_a_restart_of_the_node() {
    touched(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_there_before_serves_its_children() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    fs::write(scene.nodes[0].inbox("image"), &content).unwrap();
    let mut first = request(&scene);
    first.to = vec![name(1)];
    let totals = scene.cast(first).await.unwrap();
    assert_eq!((totals.outcome, totals.already, totals.served_bytes), (Outcome::Complete, 1, 0));
    let totals = scene.cast(request(&scene)).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert_eq!(totals.served_bytes, 0, "{}", scene.nodes[1].report());
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_copy_is_not_sent_to_children() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    let mut first = request(&scene);
    first.to = vec![name(1)];
    scene.cast(first).await.unwrap();
    quietly(&scene.nodes[0].inbox("image"), |image| flip(image, LENGTH as u64 / 2));
    let totals = scene.cast(request(&scene)).await.unwrap();
    assert_eq!((totals.outcome, totals.complete), (Outcome::Partial, 1));
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
}
