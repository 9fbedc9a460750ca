//! What a listing shows: all that `rsync -a` would keep, and what cannot be read.

use crate::scene::{list, names, three};
use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    time::Duration,
};
use thalweg_wire::object::{Failure, Kind, ListRequest};

#[tokio::test]
async fn entries_say_what_rsync_would_keep() {
    let [one, _two, three] = three().await;
    one.put("set/file", b"content");
    let file = one.data.join("set/file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let modified = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let times = std::fs::FileTimes::new().set_modified(modified);
    std::fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
    symlink("no/where", one.data.join("set/link")).unwrap();
    let fifo = one.data.join("set/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let mut remote = three.open(&one, &[]).await;
    let root = one.root("/set");
    let (entries, failures) = list(&mut remote, &[&root], &[]).await;
    assert_eq!(
        (names(&entries), failures.len()),
        (["", "fifo", "file", "link"].map(String::from).to_vec(), 0)
    );
    let [directory, special, listed, link] = <[_; 4]>::try_from(entries).unwrap();
    let found = std::fs::metadata(&file).unwrap();
    assert_eq!((directory.kind, special.kind), (Kind::Directory, Kind::Special));
    assert_eq!(link.kind, Kind::Symlink { target: b"no/where".to_vec() });
    assert_eq!((listed.mode, listed.owner, listed.group), (0o4751, found.uid(), found.gid()));
    assert_eq!(listed.modified.as_nanos(), 1_000_000_000_123_456_789);
    let Kind::File { snapshot } = listed.kind else { panic!("{listed:?}") };
    assert_eq!((snapshot.size, snapshot.inode), (7, found.ino()));
    // The link itself, and not its target, which a final `/` would request.
    let (entries, failures) = list(&mut remote, &[&one.root("/set/link")], &[]).await;
    assert!(matches!(entries[0].kind, Kind::Symlink { .. }) && failures.is_empty());
}

#[tokio::test]
async fn roots_may_be_directories_their_contents_files_and_patterns() {
    let [one, _two, three] = three().await;
    for path in ["a/x.log", "a/y.txt", "a/.hidden", "b/deep/er/z.log", "b/w.log", "c.log"] {
        one.put(path, path.as_bytes());
    }
    let mut remote = three.open(&one, &[]).await;
    for (root, exclude, found) in [
        ("/a", &[][..], &["", ".hidden", "x.log", "y.txt"][..]),
        ("/a/", &[], &["", ".hidden", "x.log", "y.txt"]),
        ("/c.log", &[], &[""]),
        ("/*.log", &[], &["c.log"]),
        ("/a/*.log", &[], &["x.log"]),
        ("/*/*.log", &[], &["a", "a/x.log", "b", "b/w.log"]),
        (
            "/**/*.log",
            &[],
            &["a", "a/x.log", "b", "b/deep", "b/deep/er", "b/deep/er/z.log", "b/w.log", "c.log"],
        ),
        ("/b*", &[], &["b", "b/deep", "b/deep/er", "b/deep/er/z.log", "b/w.log"]),
        (
            "/[ab]/[!x]*",
            &[],
            &["a", "a/y.txt", "b", "b/deep", "b/deep/er", "b/deep/er/z.log", "b/w.log"],
        ),
        ("/b", &["*.log"], &["", "deep", "deep/er"]),
        ("/b", &["deep/"], &["", "w.log"]),
        ("/b", &["/b/w.log", "er"], &["", "deep"]),
        ("/b/", &["/w.log", "deep/er"], &["", "deep"]),
        ("/a", &["a"], &[]),
        ("/*", &["[ab]/"], &["c.log"]),
    ] {
        let (entries, failures) = list(&mut remote, &[&one.root(root)], exclude).await;
        assert_eq!(names(&entries), found, "{root} without {exclude:?}");
        assert_eq!(failures, [], "{root}");
    }
    // Several roots at once are told apart by their numbers.
    let roots = [one.root("/a/x.log"), one.root("/none"), one.root("/c.log"), one.root("/x*")];
    let roots: Vec<&[u8]> = roots.iter().map(Vec::as_slice).collect();
    let (entries, failures) = list(&mut remote, &roots, &[]).await;
    assert_eq!(entries.iter().map(|e| e.root).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(
        failures.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(),
        [roots[1], roots[3]]
    );
    assert!(
        failures[0].1.contains("No such file") && failures[1].1.contains("matches"),
        "{failures:?}"
    );
}

#[tokio::test]
async fn an_invalid_pattern_refuses_the_request() {
    let [one, _two, three] = three().await;
    let mut remote = three.open(&one, &[]).await;
    let request = ListRequest { roots: vec![one.root("")], exclude: vec![b"- ".to_vec()] };
    let refused = remote.list(request, |_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("pattern `"), "{refused}");
    let (_, failures) = list(&mut remote, &[&one.root("/[a")], &[]).await;
    assert!(failures[0].1.contains("matches"), "{failures:?}");
}

#[tokio::test]
async fn unreadable_entries_are_named_and_the_rest_is_listed() {
    let [one, _two, three] = three().await;
    one.put("set/closed/file", b"1");
    one.put("set/open/file", b"2");
    let closed = one.data.join("set/closed");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o0)).unwrap();
    let blind = std::fs::read_dir(&closed).is_err();
    let mut remote = three.open(&one, &[]).await;
    let (entries, failures) = list(&mut remote, &[&one.root("/set")], &[]).await;
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    if !blind {
        println!("skipped: this user reads whatever its mode");
        return;
    }
    assert_eq!(names(&entries), ["", "closed", "open", "open/file"]);
    assert_eq!(failures[0].0, one.root("/set/closed"));
    assert!(failures[0].1.contains("denied"), "{failures:?}");
}

#[tokio::test]
async fn many_files_are_listed_in_parts() {
    let [one, _two, three] = three().await;
    for i in 0..3000 {
        one.put(&format!("d{}/f{i}", i % 3), b"");
    }
    let mut remote = three.open(&one, &[]).await;
    let (mut parts, mut entries) = (0, 0);
    let request = ListRequest { roots: vec![one.root("/")], exclude: Vec::new() };
    let failures = remote.list(request, |part| {
        parts += 1;
        entries += part.len();
    });
    assert_eq!(failures.await.unwrap(), Vec::<(Vec<u8>, Failure)>::new());
    assert_eq!(entries, 3004);
    assert!(parts > 10, "{parts}");
}

/// With 1,500 nested directories, one match brings all of them: 2 MB of paths.
#[tokio::test]
async fn deep_trees_and_many_failures_come_in_replies_that_can_be_sent() {
    let [one, _two, three] = three().await;
    let data = std::fs::File::open(&one.data).unwrap();
    let (mut at, mode) = (rustix::fd::OwnedFd::from(data), rustix::fs::Mode::from_raw_mode(0o755));
    for _ in 0..1500 {
        rustix::fs::mkdirat(&at, "d", mode).unwrap();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    rustix::fs::mkdirat(&at, "leaf", mode).unwrap();
    let mut remote = three.open(&one, &[]).await;
    let (entries, failures) = list(&mut remote, &[&one.root("/d/**/leaf")], &[]).await;
    assert_eq!(failures, []);
    // Below the first of them, which is the pattern's base.
    assert_eq!(entries.len(), 1500);
    assert_eq!(entries.last().unwrap().path.as_bytes().len(), 1499 * 2 + "leaf".len());
    // Each failure repeats the request, once as it is and once escaped.
    let bad: Vec<Vec<u8>> = (0..150).map(|_| [b"/".to_vec(), vec![1; 5000]].concat()).collect();
    let bad: Vec<&[u8]> = bad.iter().map(Vec::as_slice).collect();
    let (_, failures) = list(&mut remote, &bad, &[]).await;
    assert!(failures.len() > 10, "{}", failures.len());
    let (_, more) = failures.last().unwrap();
    assert!(more.contains("more like these"), "{more}");
    let (_, failures) = list(&mut remote, &[&vec![1; 900_000]], &[]).await;
    assert!(failures[0].1.len() < 2000);
}
