//! Tests of metadata other than modes and links, in a table: each tree lands, and a second call changes nothing.

use super::*;
use std::fs;
use thalweg_part::gives_away;
use thalweg_wire::object::{ExtraMetadata, Xattr};

const LARGE: u64 = (1 << 20) + 50_000;

/// A name, a tree, the metadata to keep, and a check of the result.
type Case = (&'static str, Vec<Entry>, Fidelity, fn(&Arena) -> Result<(), String>);

fn with(mut entry: Entry, change: impl FnOnce(&mut Entry)) -> Entry {
    change(&mut entry);
    entry
}

fn dated(path: &str, seconds: i64) -> Entry {
    with(file(path, 3), |entry| entry.modified = FileTime::new(seconds, 500_000_000).unwrap())
}

fn sparse(path: &str, size: u64, holes: Vec<(u64, u64)>) -> Entry {
    let more = ExtraMetadata { holes: Some(holes), ..ExtraMetadata::default() };
    with(file(path, size), |entry| entry.more = Some(Box::new(more)))
}

fn with_xattr(mut entry: Entry, name: &str) -> Entry {
    let xattr = Xattr { name: name.into(), value: b"value".to_vec() };
    entry.more.get_or_insert_default().xattrs = vec![xattr];
    entry
}

fn same_as(path: &str, first: &Entry) -> Entry {
    with(first.clone(), |entry| entry.path = FilePath::new(path.into()).unwrap())
}

fn check(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

fn inode(arena: &Arena, path: &str) -> u64 {
    fs::metadata(arena.path(path)).unwrap().ino()
}

fn has_xattr(arena: &Arena, path: &str, name: &str) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(arena.path(path), name, &mut value[..]).is_ok()
}

/// Whether the directory's filesystem supports a case.
fn is_able(arena: &Arena, case: &str) -> bool {
    let probe = arena.directory.path().join("probe");
    fs::write(&probe, "").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let has_xattrs = rustix::fs::setxattr(&probe, "user.a", b"1", flags).is_ok();
    has_xattrs || !case.contains("attribute")
}

fn dates() -> [(&'static str, i64); 4] {
    [("old", -1), ("new", 4_102_444_800), ("first", 0), ("last", i64::from(i32::MAX))]
}

fn cases() -> Vec<Case> {
    [links(), attributes(), dates_and_holes()].into_iter().flatten().collect()
}

fn links() -> Vec<Case> {
    let links = Fidelity { hard_links: true, ..Fidelity::default() };
    let first = file("a", 3000);
    let large = file("large", LARGE);
    vec![
        ("names of one file are one", vec![first.clone(), same_as("b", &first)], links, |arena| {
            check(inode(arena, "a") == inode(arena, "b"), "two files")
        }),
        (
            "names of a large file",
            vec![directory("d"), large.clone(), same_as("d/b", &large)],
            links,
            |arena| check(inode(arena, "large") == inode(arena, "d/b"), "two files"),
        ),
        (
            "without being asked they are two",
            vec![first.clone(), same_as("b", &first)],
            Fidelity::default(),
            |arena| check(inode(arena, "a") != inode(arena, "b"), "one file"),
        ),
    ]
}

fn attributes() -> Vec<Case> {
    let xattrs = Fidelity { xattrs: true, ..Fidelity::default() };
    vec![
        ("an attribute", vec![with_xattr(file("a", 3), "user.kept")], xattrs, |arena| {
            check(has_xattr(arena, "a", "user.kept"), "it is not there")
        }),
        (
            "an attribute of a large file",
            vec![with_xattr(file("a", LARGE), "user.kept")],
            xattrs,
            |arena| check(has_xattr(arena, "a", "user.kept"), "it is not there"),
        ),
        (
            "an attribute of a file that nobody may read",
            vec![with(with_xattr(file("a", 3), "user.kept"), |e| e.mode = 0)],
            xattrs,
            |arena| {
                check(fs::metadata(arena.path("a")).unwrap().mode() & 0o7777 == 0, "it has rights")
            },
        ),
        (
            "an attribute of a directory",
            vec![with_xattr(directory("d"), "user.kept")],
            xattrs,
            |arena| check(has_xattr(arena, "d", "user.kept"), "it is not there"),
        ),
        (
            "an attribute that is not asked for",
            vec![with_xattr(file("a", 3), "user.kept")],
            Fidelity::default(),
            |arena| check(!has_xattr(arena, "a", "user.kept"), "it is there"),
        ),
    ]
}

fn dates_and_holes() -> Vec<Case> {
    let mut fifo = file("fifo", 0);
    fifo.kind = Kind::Special;
    vec![
        (
            "dates",
            dates().map(|(name, at)| dated(name, at)).to_vec(),
            Fidelity::default(),
            |arena| {
                let is_right = |(name, at): (&str, i64)| {
                    let found = fs::metadata(arena.path(name)).unwrap();
                    (found.mtime(), found.mtime_nsec()) == (at, 500_000_000)
                };
                check(dates().into_iter().all(is_right), "another date")
            },
        ),
        (
            "a hole of a large file",
            vec![sparse("a", LARGE, vec![(0, 1 << 20)])],
            Fidelity::default(),
            |arena| {
                let content = fs::read(arena.path("a")).unwrap();
                let (hole, data) = content.split_at(1 << 20);
                check(
                    hole.iter().all(|byte| *byte == 0) && data.iter().any(|byte| *byte != 0),
                    "other content",
                )
            },
        ),
        (
            "a file that is one hole",
            vec![sparse("a", LARGE, vec![(0, LARGE)])],
            Fidelity::default(),
            |arena| {
                let found = fs::metadata(arena.path("a")).unwrap();
                check(found.len() == LARGE && found.blocks() * 512 < LARGE / 2, "it takes room")
            },
        ),
        (
            "what is passed over",
            vec![fifo, file(".thalweg-gather", 5), file("a", 3)],
            Fidelity::default(),
            |arena| check(arena.names() == ["a"], "others are there"),
        ),
    ]
}

#[test]
fn kept_metadata_arrives_and_a_second_call_changes_nothing() {
    for (name, entries, fidelity, is_right) in cases() {
        let arena = Arena::new();
        if !is_able(&arena, name) {
            eprintln!("SKIPPED: {name}: the file system of {:?} has none", arena.directory.path());
            continue;
        }
        let options = || Options { fidelity, ..options() };
        let (_, report) = arena.land_with(entries.clone(), options());
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!(is_right(&arena), Ok(()), "{name}");
        let (sent, report) = arena.land_with(entries, options());
        assert!(report.is_complete(), "{name}, again: {report:?}");
        assert_eq!((sent, report.files), (0, 0), "{name}: a second call");
        assert_eq!(is_right(&arena), Ok(()), "{name}, again");
    }
}

#[test]
fn a_hard_link_to_a_missing_file_is_reported() {
    let arena = Arena::new();
    let first = file("a", 3000);
    let fidelity = Fidelity { hard_links: true, ..Fidelity::default() };
    let options = Options { fidelity, ..options() };
    let (landing, inventory) =
        arena.open_with(vec![first.clone(), same_as("b", &first)], options).unwrap();
    landing.give_up(number(&inventory, "a"), "it changed".into());
    let report = wait(landing.finish());
    let failed: Vec<_> = report.failed.iter().map(|f| (f.path.to_str(), f.why.as_str())).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        failed.iter().any(|(path, why)| *path == Some("b") && why.contains("was not received"))
    );
}

#[test]
fn directories_without_owner_rights_are_opened_and_restored() {
    if rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: root may enter all directories");
    }
    for mode in [0o300, 0o500, 0o600, 0] {
        let arena = Arena::new();
        let closed = with(directory("d"), |entry| entry.mode = mode);
        let tree = || vec![closed.clone(), with(file("d/a", 3), |entry| entry.mode = 0)];
        for call in ["first", "second"] {
            let (sent, report) = arena.land_with(tree(), options());
            assert!(report.is_complete(), "{mode:o}, {call}: {report:?}");
            assert_eq!(sent > 0, call == "first", "{mode:o}, {call}");
            arena.assert_attributes(&closed);
        }
        fs::set_permissions(arena.path("d"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
    }
}

/// Only the source chooses these bits, and a program with root's rights is more than a copy of a file.
#[test]
fn set_id_bits_and_capabilities_are_kept_only_on_request() {
    let own = std::fs::metadata("/proc/self").unwrap();
    let of_root =
        |path: &str| Entry { mode: 0o6755, owner: own.uid(), group: own.gid(), ..file(path, 3) };
    for (set_id, kept) in [(false, 0o755), (true, if gives_away() { 0o6755 } else { 0o755 })] {
        let fidelity = Fidelity { owner: true, group: true, set_id, ..Fidelity::default() };
        let arena = Arena::new();
        arena.land_with(vec![of_root("a")], Options { fidelity, ..options() });
        let mode = fs::metadata(arena.path("a")).unwrap().mode() & 0o7777;
        assert_eq!(mode, kept, "{set_id}");
    }
}
