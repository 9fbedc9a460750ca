//! Trees that not even their owner may write, at nodes without root's privileges.
//!
//! Root may write everywhere, so each test runs itself again as another user if it runs as root.

use crate::{
    parents::{LENGTH, ways},
    scene::{Node, Scene},
    ways::Way,
};
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};
use thalweg_cast::source::{Event, Fidelity, Outcome, Request};
use tokio_util::sync::CancellationToken;

/// `nobody`, by convention.
const NOBODY: u32 = 65534;

/// Runs a test of this file as another user. Returns whether it did so, i.e. whether this user is root.
fn ran_as_another(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let mut again = Command::new("/proc/self/exe");
    again.args(["--exact", &format!("modes::{test}"), "--nocapture"]);
    let ended = again.uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(ended.success(), "as user {NOBODY}: {ended}");
    true
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// `set`, `set/in`: 0555; `set/in/f`: 0444.
fn read_only_set(scene: &Scene, length: usize) -> Vec<u8> {
    fs::create_dir_all(scene.path("set/in")).unwrap();
    let content = scene.file("set/in/f", length);
    lock(&scene.path("set"));
    content
}

fn lock(set: &Path) {
    for (path, mode) in [("in/f", 0o444), ("in", 0o555), ("", 0o555)] {
        set_mode(&set.join(path), mode);
    }
}

/// Makes the directories of the test removable.
fn unlock(set: &Path) {
    for path in ["", "in"] {
        _ = fs::set_permissions(set.join(path), Permissions::from_mode(0o755));
    }
}

fn check_set(set: &Path, content: &[u8]) {
    assert_eq!(["", "in", "in/f"].map(|path| mode(&set.join(path))), [0o555, 0o555, 0o444]);
    assert!(fs::read(set.join("in/f")).unwrap() == content);
}

/// The directory in n1's inbox of its only cast.
fn home(node: &Node) -> PathBuf {
    let mut all = fs::read_dir(node.inbox("")).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.to_string_lossy().contains(".thalweg-cast-")).unwrap()
}

/// Kills n1 when it has a part of the object.
async fn killed_midway(scene: &mut Scene, request: Request) -> BTreeMap<(u8, u8), Way> {
    let ways = ways(scene, &[(0, 1, 300_000)]).await;
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(request, stop.clone()));
    scene.nodes[0].holds(100_000).await;
    stop.cancel();
    casting.await.unwrap().unwrap();
    scene.nodes[0].kill().await;
    ways[&(0, 1)].set(100_000_000);
    ways
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_nobody_may_write_is_delivered() {
    if ran_as_another("a_tree_that_nobody_may_write_is_delivered") {
        return;
    }
    let scene = Scene::new(1).await;
    let content = read_only_set(&scene, 3_000_000);
    let modified = |set: &Path| fs::metadata(set.join("in")).unwrap().modified().unwrap();
    let totals = scene.cast(scene.request("set")).await.unwrap();
    let set = scene.nodes[0].inbox("set");
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    check_set(&set, &content);
    assert_eq!(modified(&set), modified(&scene.path("set")));
    unlock(&set);
    unlock(&scene.path("set"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_its_modes_but_without_its_name_is_resumed() {
    if ran_as_another("an_object_with_its_modes_but_without_its_name_is_resumed") {
        return;
    }
    let mut scene = Scene::new(1).await;
    let content = read_only_set(&scene, LENGTH);
    let request = scene.request("set");
    let _ways = killed_midway(&mut scene, request).await;
    lock(&home(&scene.nodes[0]).join("made/set"));
    scene.nodes[0].start().await;
    let totals = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    check_set(&scene.nodes[0].inbox("set"), &content);
    unlock(&scene.nodes[0].inbox("set"));
    unlock(&scene.path("set"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_its_name_but_without_its_modes_gets_them() {
    if ran_as_another("an_object_with_its_name_but_without_its_modes_gets_them") {
        return;
    }
    let mut scene = Scene::new(1).await;
    let content = read_only_set(&scene, 3_000_000);
    let totals = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    scene.nodes[0].kill().await;
    // The state after a kill right after the object has got its name.
    let set = scene.nodes[0].inbox("set");
    unlock(&set);
    let home = home(&scene.nodes[0]);
    fs::remove_file(home.join("done")).unwrap();
    scene.nodes[0].start().await;
    assert_eq!(scene.cast(scene.request("set")).await.unwrap().outcome, Outcome::Complete);
    check_set(&set, &content);
    assert!(home.join("done").exists());
    unlock(&set);
    unlock(&scene.path("set"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_object_can_be_removed() {
    if ran_as_another("a_read_only_object_can_be_removed") {
        return;
    }
    let mut scene = Scene::new(1).await;
    read_only_set(&scene, LENGTH);
    let request = scene.request("set");
    let _ways = killed_midway(&mut scene, request).await;
    let home = home(&scene.nodes[0]);
    lock(&home.join("made/set"));
    // Otherwise the worker would open it again.
    fs::remove_file(home.join("layout")).unwrap();
    scene.nodes[0].start().await;
    let notices = scene.forget("set").await.unwrap().notices;
    assert!(notices.len() == 1 && notices[0].why.is_none(), "{notices:?}");
    assert!(!home.exists());
    unlock(&scene.path("set"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_removed_is_reported_as_kept() {
    if ran_as_another("an_object_that_cannot_be_removed_is_reported_as_kept") {
        return;
    }
    let mut scene = Scene::new(1).await;
    scene.file("image", LENGTH);
    let request = scene.request("image");
    let _ways = killed_midway(&mut scene, request).await;
    let home = home(&scene.nodes[0]);
    scene.nodes[0].start().await;
    // Nothing can be removed from the inbox.
    set_mode(&scene.nodes[0].inbox(""), 0o555);
    let notices = scene.forget("image").await.unwrap().notices;
    set_mode(&scene.nodes[0].inbox(""), 0o755);
    let why = notices[0].why.clone().unwrap_or_default();
    assert!(why.contains("permission denied"), "{notices:?}");
    assert!(home.exists());
    // It is still known, and is removed as soon as that is possible.
    let notices = scene.forget("image").await.unwrap().notices;
    assert!(notices[0].why.is_none() && !home.exists(), "{notices:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_entries_are_named_and_left_out() {
    if ran_as_another("unreadable_entries_are_named_and_left_out") {
        return;
    }
    for dry_run in [true, false] {
        let scene = Scene::new(1).await;
        fs::create_dir_all(scene.path("set/shut/below")).unwrap();
        fs::create_dir(scene.path("set/open")).unwrap();
        for file in ["set/a", "set/secret", "set/shut/b", "set/open/c"] {
            fs::write(scene.path(file), file).unwrap();
        }
        set_mode(&scene.path("set/secret"), 0);
        set_mode(&scene.path("set/shut"), 0o000);
        let cast = scene.cast(Request { dry_run, ..scene.request("set") }).await.unwrap();
        assert_eq!((cast.outcome, cast.complete, cast.failed_files), (Outcome::Partial, 1, 2));
        let mut failed: Vec<String> = scene
            .events
            .all()
            .into_iter()
            .filter_map(|event| match event {
                Event::FileFailed { file, why } => Some(format!("{file}: {why}")),
                _ => None,
            })
            .collect();
        failed.sort();
        assert!(failed[0].contains("set/secret: Permission denied"), "{failed:?}");
        assert!(failed[1].contains("set/shut: Permission denied"), "{failed:?}");
        let there = |path: &str| scene.nodes[0].inbox(path).exists();
        assert_eq!(["set/a", "set/open/c"].map(there), [!dry_run; 2]);
        assert!(!there("set/secret"));
        for path in ["set/shut", "set/secret"] {
            set_mode(&scene.path(path), 0o755);
        }
        // A file that was added there in the meantime stays.
        if !dry_run {
            fs::write(scene.nodes[0].inbox("set/open/notes"), "notes").unwrap();
        }
        let again = scene.cast(scene.request("set")).await.unwrap();
        let events = scene.events.all();
        assert_eq!((again.outcome, again.complete), (Outcome::Complete, 1), "{events:?}");
        let files = ["set/a", "set/secret", "set/shut/b", "set/open/c"];
        assert!(
            files
                .into_iter()
                .all(|file| { fs::read(scene.nodes[0].inbox(file)).unwrap() == file.as_bytes() })
        );
        assert_eq!(there("set/open/notes"), !dry_run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_not_completed_keeps_its_modes() {
    if ran_as_another("a_copy_that_is_not_completed_keeps_its_modes") {
        return;
    }
    let scene = Scene::new(1).await;
    fs::create_dir_all(scene.path("set/d")).unwrap();
    for file in ["set/a", "set/d/b"] {
        fs::write(scene.path(file), "here").unwrap();
    }
    let inbox = |path: &str| scene.nodes[0].inbox(path);
    fs::create_dir_all(inbox("set/d")).unwrap();
    fs::write(inbox("set/d/b"), "there").unwrap();
    set_mode(&inbox("set/d"), 0o300);
    let cast = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!((cast.outcome, cast.complete), (Outcome::Failed, 0));
    assert_eq!(mode(&inbox("set/d")), 0o300);
    set_mode(&inbox("set/d"), 0o000);
    let cast = scene.cast(scene.request("set")).await.unwrap();
    assert_eq!((cast.outcome, cast.complete), (Outcome::Failed, 0), "it is found in the end");
    assert_eq!(mode(&inbox("set/d")), 0o000);
    set_mode(&inbox("set/d"), 0o700);
    assert_eq!(fs::read(inbox("set/d/b")).unwrap(), b"there");
    assert!(!inbox("set/a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_vanish_while_they_are_read_are_named_and_left_out() {
    for dry_run in [true, false] {
        let scene = Scene::new(1).await;
        fs::create_dir_all(scene.path("set/d")).unwrap();
        for file in ["set/a", "set/b", "set/c", "set/d/e", "set/z"] {
            fs::write(scene.path(file), file).unwrap();
        }
        fs::hard_link(scene.path("set/b"), scene.path("set/x")).unwrap();
        fs::hard_link(scene.path("set/z"), scene.path("set/zz")).unwrap();
        // The event about special bits comes after the survey of all files and before they are read.
        set_mode(&scene.path("set/a"), 0o4755);
        let fidelity = Fidelity { hard_links: true, ..Fidelity::default() };
        let request = Request { dry_run, fidelity, ..scene.request("set") };
        let set = scene.path("set");
        let sink = move |event: &Event| {
            if matches!(event, Event::SpecialBits { .. }) {
                fs::remove_file(set.join("b")).unwrap();
                fs::write(set.join("d/e"), "longer than before").unwrap();
            }
        };
        let cast = scene.cast_telling(request, CancellationToken::new(), sink).await.unwrap();
        // `b` with its second name, and `d/e`.
        assert_eq!((cast.outcome, cast.complete, cast.failed_files), (Outcome::Partial, 1, 3));
        let failed = scene.events.all().into_iter().filter_map(|event| match event {
            Event::FileFailed { file, why } => Some(format!("{file}: {why}")),
            _ => None,
        });
        let mut failed: Vec<String> = failed.collect();
        failed.sort();
        let ends =
            ["set/b: No such file or directory (os error 2)", "set/d/e: the file has changed"];
        assert!(failed[0].ends_with(ends[0]) && failed[1].ends_with(ends[1]), "{failed:?}");
        assert!(failed[2].ends_with("set/x: No such file or directory (os error 2)"), "{failed:?}");
        let read = |path: &str| fs::read(scene.nodes[0].inbox(path)).ok();
        if !dry_run {
            for (path, content) in
                [("set/a", "set/a"), ("set/c", "set/c"), ("set/z", "set/z"), ("set/zz", "set/z")]
            {
                assert_eq!(read(path).as_deref(), Some(content.as_bytes()), "{path}");
            }
        }
        assert!(["set/b", "set/x", "set/d/e"].into_iter().all(|path| read(path).is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_itself_ends_the_cast() {
    if ran_as_another("an_object_that_cannot_be_read_itself_ends_the_cast") {
        return;
    }
    let scene = Scene::new(1).await;
    fs::create_dir(scene.path("shut")).unwrap();
    fs::write(scene.path("secret"), "secret").unwrap();
    for what in ["shut", "secret"] {
        set_mode(&scene.path(what), 0);
        let why = scene.cast(scene.request(what)).await.unwrap_err().to_string();
        assert!(why.contains(&format!("{what}: Permission denied")), "{why}");
    }
    set_mode(&scene.path("shut"), 0o755);
}
