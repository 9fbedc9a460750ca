//! What `send --delete` keeps: excluded paths, directories that the settings name, and unfinished files.

use crate::{delivering::Pair, scene::Node};
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};
use tempfile::TempDir;
use thalweg_files::AcceptingDirectory;
use thalweg_gather::{Outcome, send::SendRequest};
use thalweg_wire::object::{FilePath, SurplusRemoval};

fn put(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

/// All paths below a directory.
fn paths(root: &Path) -> Vec<String> {
    fn walk(root: &Path, path: &Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            all.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if path.symlink_metadata().unwrap().is_dir() {
                walk(root, &path, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(root, root, &mut all);
    all.sort();
    all
}

/// What rsync leaves of `to`; `None` if it is not installed.
fn by_rsync(from: &Path, to: &Path, patterns: &[&str]) -> Option<Vec<String>> {
    let mut rsync = Command::new("rsync");
    let rsync =
        rsync.args(["-a", "--delete"]).args(patterns.iter().map(|p| format!("--exclude={p}")));
    let ended = rsync.arg(from).arg(to).output().ok()?;
    assert!(ended.status.success(), "{ended:?}");
    Some(paths(to))
}

#[tokio::test]
async fn excluded_paths_stay_at_every_depth_as_with_rsync() {
    for patterns in [
        &["*.log"][..],
        &["/p/logs/x.log"],
        &["logs/"],
        &["logs/***"],
        &["p/**/deep.log"],
        &["+ server.log", "*.log"],
        &["logs/x.log", "old"],
        &[],
    ] {
        let pair = Pair::of(Node::lenient(1).await).await;
        let reference = TempDir::new().unwrap();
        put(&pair.path("p/in/kept"));
        for root in [&pair.to.inbox, reference.path()] {
            for path in ["server.log", "logs/x.log", "logs/x.txt", "old/a/b/deep.log", "old/gone"] {
                put(&root.join("p").join(path));
            }
            put(&root.join("beside"));
            symlink("../beside", root.join("p/logs/link.log")).unwrap();
        }
        let request = || SendRequest {
            delete: true,
            exclude: patterns.iter().map(|p| p.as_bytes().to_vec()).collect(),
            ..pair.request(&["p"], "")
        };
        let before = paths(&pair.to.inbox);
        pair.send(SendRequest { dry_run: true, ..request() }).await;
        assert_eq!(paths(&pair.to.inbox), before, "{patterns:?}: a dry run changes nothing");
        let totals = pair.send(request()).await;
        assert_eq!(totals.outcome, Outcome::Complete, "{patterns:?}: {}", pair.said());
        let left = paths(&pair.to.inbox);
        let by_rsync = by_rsync(&pair.path("p"), reference.path(), patterns);
        assert!(by_rsync.is_none_or(|by_rsync| by_rsync == left), "{patterns:?}: {left:?}");
        assert!(left.contains(&"p/in/kept".to_owned()), "{patterns:?}: {left:?}");
    }
}

#[tokio::test]
async fn a_dry_run_reports_what_is_then_removed() {
    let pair = Pair::of(Node::lenient(1).await).await;
    for path in ["p/all/a", "p/all/b", "p/some/a", "p/some/in/b", "p/some/c.log"] {
        put(&pair.to.inbox.join(path));
    }
    let mut remote = pair.from.open(&pair.to, &[]).await;
    let surplus = |remove| SurplusRemoval {
        into: pair.to.inbox.as_os_str().as_bytes().to_vec(),
        directory: FilePath::new("p".into()).unwrap(),
        after: Vec::new(),
        to: Vec::new(),
        keep: Vec::new(),
        remove,
        exclude: vec![b"*.log".to_vec()],
    };
    let mut would = remote.clear(surplus(false)).await.unwrap();
    let mut removed = remote.clear(surplus(true)).await.unwrap();
    for told in [&mut would, &mut removed] {
        told.names.sort();
    }
    let names = ["all", "some/a", "some/in"].map(|name| name.as_bytes().to_vec());
    assert_eq!((removed.count, &removed.names[..]), (3, &names[..]));
    assert_eq!(would, removed);
    let many = SurplusRemoval { exclude: vec![vec![b'a'; 1000]; 100], ..surplus(true) };
    assert!(remote.clear(many).await.unwrap_err().to_string().contains("KiB of them"));
    let elsewhere =
        SurplusRemoval { into: pair.to.data.as_os_str().as_bytes().to_vec(), ..surplus(true) };
    let why = remote.clear(elsewhere).await.unwrap_err().to_string();
    assert!(why.contains("does not offer"), "{why}");
}

#[tokio::test]
async fn configured_directories_and_unfinished_files_stay() {
    let pair = Pair::of(Node::nested(1).await).await;
    let inbox = &pair.to.inbox;
    let kept = ["narrow/file", "old/.thalweg-cast-1", "old/in/.a.thalweg-part"];
    for path in kept.iter().chain(&["old/gone", "old/in/gone", "whole/gone"]) {
        put(&inbox.join(path));
    }
    fs::create_dir(pair.path("e")).unwrap();
    let request = |paths: &[&str], into| SendRequest {
        delete: true,
        replace: true,
        ..pair.request(paths, into)
    };
    let dry = SendRequest { dry_run: true, ..request(&["e/"], "") };
    pair.send(dry).await;
    assert!(pair.said().contains("settings of its node"), "{}", pair.said());
    pair.send(request(&["e/"], "")).await;
    let said = pair.said();
    for (what, why) in [
        ("narrow", "settings of its node"),
        ("old/.thalweg-cast-1", "Thalweg's own"),
        ("old/in/.a.thalweg-part", "Thalweg's own"),
    ] {
        assert!(said.lines().any(|l| l.contains(what) && l.contains(why)), "{what}: {said}");
    }
    let left = ["narrow", kept[0], "old", kept[1], "old/in", kept[2]];
    assert_eq!(paths(inbox), left);
    // They do not give way to a file either, and nothing else in their directory is removed then.
    put(&inbox.join("old/a"));
    for name in ["old", "narrow"] {
        put(&pair.path(name));
        let before = paths(inbox);
        assert_eq!(pair.send(request(&[name], "")).await.outcome, Outcome::Partial, "{name}");
        assert_eq!(paths(inbox), before, "{name}: {}", pair.said());
    }
}

#[tokio::test]
async fn inboxes_of_casts_stay_with_their_contents() {
    let node = Node::lenient_with(1, |inbox, settings| {
        let [casts, own] = ["a/casts", "own"].map(|below| inbox.join(below));
        for path in [&casts, &own] {
            fs::create_dir_all(path).unwrap();
        }
        // The settings of this very directory apply to it.
        let whole = settings.accept[0].clone();
        settings.accept.push(AcceptingDirectory { path: own.clone(), ..whole });
        settings.protected = vec![casts, own];
    });
    let pair = Pair::of(node.await).await;
    for path in ["a/casts/image", "a/casts/set/file", "a/gone", "own/gone"] {
        put(&pair.to.inbox.join(path));
    }
    fs::create_dir(pair.path("e")).unwrap();
    put(&pair.path("casts"));
    put(&pair.path("set"));
    for (paths, into, why) in [
        (["e/"], "", "settings of its node"),
        (["e/"], "/a/casts", "in an inbox of casts"),
        (["e/"], "/a/casts/set", "in an inbox of casts"),
        (["casts"], "/a", "settings of its node"),
        (["set"], "/a/casts", "in an inbox of casts"),
    ] {
        let request = || SendRequest { delete: true, replace: true, ..pair.request(&paths, into) };
        for dry_run in [true, false] {
            pair.send(SendRequest { dry_run, ..request() }).await;
            let said = pair.said();
            assert!(said.contains(why), "{paths:?} to {into}, dry_run {dry_run}: {said}");
        }
        for path in ["a/casts/image", "a/casts/set/file"] {
            assert!(pair.to.inbox.join(path).exists(), "{paths:?} to {into}: {path}");
        }
    }
    assert!(!pair.to.inbox.join("a/gone").exists());
    let inside = SendRequest { delete: true, ..pair.request(&["e/"], "/own") };
    assert_eq!(pair.send(inside).await.outcome, Outcome::Complete, "{}", pair.said());
    assert!(!pair.to.inbox.join("own/gone").exists());
}

#[tokio::test]
async fn nothing_in_an_inbox_of_casts_is_replaced() {
    let node = Node::lenient_with(1, |inbox, settings| {
        settings.protected = ["a/casts", "a/empty"].map(|below| inbox.join(below)).to_vec();
        settings.protected.iter().for_each(|path| fs::create_dir_all(path).unwrap());
    });
    let pair = Pair::of(node.await).await;
    let there = |path: &str| pair.to.inbox.join(path);
    put(&there("a/casts/set/file"));
    for path in ["small", "large", "link", "a/casts/small", "a/casts/large", "a/casts/link"] {
        put(&there(path));
    }
    put(&pair.path("small"));
    fs::write(pair.path("small"), "other").unwrap();
    fs::write(pair.path("large"), vec![b'x'; 9 << 20]).unwrap();
    symlink("small", pair.path("link")).unwrap();
    put(&pair.path("empty"));
    put(&pair.path("set/new"));
    fs::create_dir(pair.path("casts")).unwrap();
    for (path, mode) in [
        (pair.path("set"), 0o700),
        (pair.path("casts"), 0o700),
        (there("a/casts"), 0o755),
        (there("a/casts/set"), 0o755),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let request = |path, into| SendRequest { replace: true, ..pair.request(&[path], into) };
    for (path, into, why) in [
        ("small", "/a/casts", "in an inbox of casts"),
        ("large", "/a/casts", "in an inbox of casts"),
        ("link", "/a/casts", "in an inbox of casts"),
        ("empty", "/a", "settings of its node"),
    ] {
        for dry_run in [true, false] {
            let totals = pair.send(SendRequest { dry_run, ..request(path, into) }).await;
            let said = pair.said();
            assert!(said.contains(why), "{path}, dry_run {dry_run}: {said}");
            assert_eq!(totals.failed_files, 1, "{path}, dry_run {dry_run}: {said}");
        }
    }
    for path in ["a/casts/small", "a/casts/large", "a/casts/link"] {
        assert_eq!(fs::read(there(path)).unwrap(), b"x", "{path}");
    }
    assert!(there("a/empty").is_dir());
    // New files are accepted, and existing directories keep their modes.
    for (path, into) in [("set", "/a/casts"), ("casts", "/a")] {
        let totals = pair.send(request(path, into)).await;
        assert_eq!(totals.outcome, Outcome::Complete, "{path}: {}", pair.said());
        let kept = fs::metadata(there(into.trim_start_matches('/')).join(path)).unwrap().mode();
        assert_eq!(kept & 0o777, 0o755, "{path}");
    }
    assert!(there("a/casts/set/new").exists());
    // Outside of it replacements are allowed.
    for path in ["small", "large", "link"] {
        assert_eq!(pair.send(request(path, "")).await.outcome, Outcome::Complete, "{path}");
        assert_ne!(fs::read(there(path)).unwrap(), b"x", "{path}");
    }
}

#[tokio::test]
async fn a_read_only_directory_keeps_its_mode() {
    let pair = Pair::of(Node::lenient(1).await).await;
    let there = pair.to.inbox.join("d");
    put(&there.join("gone"));
    fs::set_permissions(&there, fs::Permissions::from_mode(0o555)).unwrap();
    put(&pair.path("file"));
    fs::create_dir(pair.path("d")).unwrap();
    let adding = pair.send(pair.request(&["file"], "/d")).await;
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o555, "{}", pair.said());
    let denied = "may not write in this directory";
    // Root may write anywhere.
    if rustix::process::geteuid().is_root() {
        assert_eq!(adding.outcome, Outcome::Complete);
        return;
    }
    assert!(pair.said().contains(denied), "{}", pair.said());
    fs::set_permissions(pair.path("d"), fs::Permissions::from_mode(0o555)).unwrap();
    pair.send(SendRequest { delete: true, ..pair.request(&["d"], "") }).await;
    assert!(pair.said().contains(denied), "{}", pair.said());
    assert!(there.join("gone").exists());
}

/// `nobody`, by convention.
const NOBODY: u32 = 65534;

#[tokio::test]
async fn a_second_call_writes_into_read_only_directories_that_are_sent() {
    // Root may write anywhere.
    if rustix::process::geteuid().is_root() {
        let mut again = Command::new("/proc/self/exe");
        let this = "removing::a_second_call_writes_into_read_only_directories_that_are_sent";
        again.args(["--exact", this, "--nocapture"]);
        let ended = again.uid(NOBODY).gid(NOBODY).status().unwrap();
        return assert!(ended.success(), "as user {NOBODY}: {ended}");
    }
    let chmod =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    // The second one is not sent whole.
    for length in [3, 3 << 20] {
        for (source, into) in [("d/", "/t"), ("d", "/t")] {
            let pair = Pair::of(Node::lenient(1).await).await;
            let there = pair.to.inbox.join(if source == "d/" { "t" } else { "t/d" });
            put(&pair.path("d/in/first"));
            for round in ["one", "two"] {
                for directory in ["d", "d/in"] {
                    fs::write(pair.path(directory).join(round), vec![b'x'; length]).unwrap();
                    chmod(&pair.path(directory), 0o555);
                }
                for dry_run in [true, false] {
                    let request = pair.request(&[source], into);
                    let totals = pair.send(SendRequest { dry_run, ..request }).await;
                    let outcome = if dry_run { Outcome::Planned } else { Outcome::Complete };
                    assert_eq!(
                        (totals.outcome, totals.failed_files),
                        (outcome, 0),
                        "{source} {length} {round}: {}",
                        pair.said()
                    );
                }
                assert!(there.join(round).exists() && there.join("in").join(round).exists());
                assert_eq!([mode(&there), mode(&there.join("in"))], [0o555; 2], "{source} {round}");
                for directory in ["d", "d/in"] {
                    chmod(&pair.path(directory), 0o755);
                }
            }
            for directory in [&there, &there.join("in")] {
                chmod(directory, 0o755);
            }
        }
    }
}
