//! A table of the metadata that `send` keeps by its options, and tests of options that a node declines.

use crate::{
    access_list::{LIST, list},
    delivering::Pair,
    scene::Node,
};
use rustix::fs::{AtFlags, CWD, Gid, Uid, XattrFlags, chownat, getxattr, setxattr};
use std::{
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, symlink},
    },
    path::Path,
};
use thalweg_gather::{Outcome, landing::Fidelity, send::SendRequest};
use thalweg_wire::object::{FilePath, Link, Links, Rules, TransferHash};

const LARGE: u64 = (1 << 20) + 50_000;

/// Name, setup of the tree, options, and a check of the result.
type Case = (&'static str, fn(&Path), Fidelity, fn(&Path) -> bool);

fn fidelity_with(change: fn(&mut Fidelity)) -> Fidelity {
    let mut fidelity = Fidelity::default();
    change(&mut fidelity);
    fidelity
}

fn write(path: &Path, length: u64) {
    fs::write(path, vec![7; length as usize]).unwrap();
}

/// Creates a sparse file of this length with one byte of data at the end.
fn create_sparse(path: &Path, length: u64) {
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"x", length - 1).unwrap();
}

fn is_sparse(path: &Path, length: u64) -> bool {
    let found = fs::metadata(path).unwrap();
    let mut last = [0];
    File::open(path).unwrap().read_exact_at(&mut last, length - 1).unwrap();
    found.len() == length && found.blocks() * 512 <= 64 << 10 && last == *b"x"
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).unwrap().ino();
    of(one) == of(other)
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn has_xattr(path: &Path, name: &str, wanted: &[u8]) -> bool {
    let mut value = [0; 256];
    getxattr(path, name, &mut value[..]).is_ok_and(|length| value[..length] == *wanted)
}

fn chown(path: &Path, user: u32, group: u32) {
    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn cases() -> Vec<Case> {
    [hard_links(), attributes(), holes_and_owners()].into_iter().flatten().collect()
}

fn hard_links() -> Vec<Case> {
    let links = fidelity_with(|f| f.hard_links = true);
    vec![
        (
            "hard links",
            |set| {
                write(&set.join("a"), 3000);
                fs::hard_link(set.join("a"), set.join("d/b")).unwrap();
                fs::hard_link(set.join("a"), set.join("c")).unwrap();
            },
            links,
            |set| {
                is_same_file(&set.join("a"), &set.join("d/b"))
                    && is_same_file(&set.join("a"), &set.join("c"))
            },
        ),
        (
            "hard links to a large file",
            |set| {
                write(&set.join("a"), LARGE);
                fs::hard_link(set.join("a"), set.join("d/b")).unwrap();
            },
            links,
            |set| is_same_file(&set.join("a"), &set.join("d/b")),
        ),
        (
            "hard links without the option",
            |set| {
                write(&set.join("a"), 3000);
                fs::hard_link(set.join("a"), set.join("b")).unwrap();
            },
            Fidelity::default(),
            |set| !is_same_file(&set.join("a"), &set.join("b")),
        ),
    ]
}

fn attributes() -> Vec<Case> {
    let xattrs = fidelity_with(|f| f.xattrs = true);
    let acls = fidelity_with(|f| f.acls = true);
    vec![
        (
            "attributes",
            |set| {
                for (name, length) in [("a", 3), ("large", LARGE)] {
                    write(&set.join(name), length);
                    set_xattr(&set.join(name), "user.a", b"kept");
                }
                set_xattr(&set.join("d"), "user.d", b"kept");
            },
            xattrs,
            |set| {
                ["a", "large"].iter().all(|name| has_xattr(&set.join(name), "user.a", b"kept"))
                    && has_xattr(&set.join("d"), "user.d", b"kept")
            },
        ),
        (
            "attributes without the option",
            |set| {
                write(&set.join("a"), 3);
                set_xattr(&set.join("a"), "user.a", b"kept");
            },
            acls,
            |set| !has_xattr(&set.join("a"), "user.a", b"kept"),
        ),
        (
            "access control lists",
            |set| {
                write(&set.join("a"), 3);
                set_xattr(&set.join("a"), LIST, &list(4711));
                set_xattr(&set.join("d"), "system.posix_acl_default", &list(4711));
            },
            acls,
            |set| {
                has_xattr(&set.join("a"), LIST, &list(4711))
                    && has_xattr(&set.join("d"), "system.posix_acl_default", &list(4711))
            },
        ),
    ]
}

fn holes_and_owners() -> Vec<Case> {
    let owners = fidelity_with(|f| (f.owner, f.group, f.numeric_ids) = (true, true, true));
    vec![
        (
            "holes of small and large files",
            |set| {
                create_sparse(&set.join("a"), 200_000);
                create_sparse(&set.join("large"), 30 << 20);
            },
            Fidelity::default(),
            |set| is_sparse(&set.join("a"), 200_000) && is_sparse(&set.join("large"), 30 << 20),
        ),
        (
            "a file that consists of one hole",
            |set| File::create(set.join("a")).unwrap().set_len(10 << 20).unwrap(),
            Fidelity::default(),
            |set| {
                let found = fs::metadata(set.join("a")).unwrap();
                found.len() == 10 << 20 && found.blocks() < 100
            },
        ),
        (
            "owners, as root",
            |set| {
                for (name, length) in [("a", 3), ("large", LARGE)] {
                    write(&set.join(name), length);
                    chown(&set.join(name), 4711, 4712);
                }
                symlink("a", set.join("link")).unwrap();
                chown(&set.join("link"), 4711, 4712);
                chown(&set.join("d"), 4711, 4712);
            },
            owners,
            |set| ["a", "large", "link", "d"].iter().all(|n| owner(&set.join(n)) == (4711, 4712)),
        ),
        (
            "groups only, as root",
            |set| {
                write(&set.join("a"), 3);
                chown(&set.join("a"), 4711, 4712);
            },
            fidelity_with(|f| (f.group, f.numeric_ids) = (true, true)),
            |set| owner(&set.join("a")) == (0, 4712),
        ),
    ]
}

/// Whether the file system and the rights of this process allow a case.
fn is_able(pair: &Pair, case: &str) -> bool {
    let probe = pair.put("probe", "");
    let has_xattrs = setxattr(&probe, "user.a", b"1", XattrFlags::empty()).is_ok();
    let has_lists = setxattr(&probe, LIST, &list(7), XattrFlags::empty()).is_ok();
    (has_xattrs || !case.contains("attributes"))
        && (has_lists || !case.contains("lists"))
        && (rustix::process::geteuid().is_root() || !case.contains("root"))
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_and_a_second_call_has_nothing_to_do() {
    for (what, make, fidelity, is_right) in cases() {
        let pair = Pair::of(Node::trusting(1).await).await;
        if !is_able(&pair, what) {
            eprintln!("SKIPPED: {what}");
            continue;
        }
        fs::create_dir_all(pair.path("set/d")).unwrap();
        make(&pair.path("set"));
        let there = pair.to.inbox.join("set");
        let request = || SendRequest { fidelity, ..pair.request(&["set"], "") };
        let dry = pair.send(SendRequest { dry_run: true, ..request() }).await;
        assert_eq!(dry.outcome, Outcome::Planned, "{what}: {}", pair.said());
        let first = pair.send(request()).await;
        assert_eq!(first.outcome, Outcome::Complete, "{what}: {}", pair.said());
        assert!(is_right(&there), "{what}");
        let again = pair.send(request()).await;
        assert_eq!((again.outcome, again.files, again.bytes), (Outcome::Complete, 0, 0), "{what}");
        assert!(is_right(&there), "{what}, again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_options_are_reported() {
    let pair = Pair::new().await;
    pair.put("a", "content");
    let fidelity = fidelity_with(|f| f.owner = true);
    let sent = pair.send(SendRequest { fidelity, ..pair.request(&["a"], "/") }).await;
    assert_eq!(sent.outcome, Outcome::Complete, "{}", pair.said());
    let said = pair.said();
    let says = if rustix::process::geteuid().is_root() { "owners = true" } else { "as root" };
    assert!(said.contains("owners of files are not kept") && said.contains(says), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_link_replaces_an_existing_file_only_with_replace() {
    let pair = Pair::of(Node::lenient(1).await).await;
    pair.put("set/a", "content");
    fs::hard_link(pair.path("set/a"), pair.path("set/b")).unwrap();
    fs::create_dir(pair.to.inbox.join("set")).unwrap();
    fs::write(pair.to.inbox.join("set/b"), "another").unwrap();
    let request = || SendRequest {
        fidelity: fidelity_with(|f| f.hard_links = true),
        ..pair.request(&["set"], "")
    };
    for dry_run in [true, false] {
        let sent = pair.send(SendRequest { dry_run, ..request() }).await;
        let said = pair.said();
        assert_eq!((sent.outcome, sent.failed_files), (Outcome::Partial, 1), "{said}");
        assert!(said.contains("set/b") && said.contains("--replace"), "{said}");
        assert_eq!(fs::read(pair.to.inbox.join("set/b")).unwrap(), b"another");
    }
    let sent = pair.send(SendRequest { replace: true, ..request() }).await;
    assert_eq!(sent.outcome, Outcome::Complete, "{}", pair.said());
    assert!(is_same_file(&pair.to.inbox.join("set/a"), &pair.to.inbox.join("set/b")));
}

#[tokio::test]
async fn a_hard_link_requires_the_hash_of_the_file() {
    let pair = Pair::new().await;
    fs::write(pair.to.inbox.join("secret"), "another member's").unwrap();
    let mut remote = pair.from.open(&pair.to, &[]).await;
    let path = |name: &str| FilePath::new(name.into()).unwrap();
    let link = |size| Links {
        into: pair.to.inbox.as_os_str().as_bytes().to_vec(),
        rules: Rules::default(),
        links: vec![Link {
            first: path("secret"),
            size,
            check: TransferHash([7; 32]),
            name: path("mine"),
        }],
        make: true,
    };
    for size in [16, 17, u64::MAX] {
        let (present, undone) = remote.link(link(size)).await.unwrap();
        assert_eq!((present, undone.failures().count()), (0, 1), "{size}");
        assert!(!pair.to.inbox.join("mine").exists());
    }
    let elsewhere = Links { into: pair.to.data.as_os_str().as_bytes().to_vec(), ..link(16) };
    let why = remote.link(elsewhere).await.unwrap_err().to_string();
    assert!(why.contains("does not offer"), "{why}");
}
