//! Two tables: the metadata that receivers keep, and which existing copies count as the object.

use crate::{
    access_list::{LIST, list},
    scene::{Scene, name},
};
use rustix::fs::{
    AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, getxattr, setxattr,
    utimensat,
};
use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};
use thalweg_cast::{
    Inbox, Settings,
    source::{Event, Fidelity, Outcome, Request, Totals},
};

/// Name, setup of the tree, options, and a check of the result.
type Case = (&'static str, fn(&Path), Fidelity, fn(&Path) -> bool);

fn fidelity_with(change: fn(&mut Fidelity)) -> Fidelity {
    let mut fidelity = Fidelity::default();
    change(&mut fidelity);
    fidelity
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).unwrap().ino();
    of(one) == of(other)
}

fn modified(path: &Path) -> (i64, i64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.mtime(), found.mtime_nsec())
}

/// Times of a file, a link and a directory: before 1970, after 2262, and in 2100.
const DATES: [i64; 3] = [-2_000_000_000, 9_223_372_037, 4_102_444_800];

fn set_time(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn has_xattr(path: &Path, name: &str, wanted: &[u8]) -> bool {
    let mut value = [0; 256];
    getxattr(path, name, &mut value[..]).is_ok_and(|length| value[..length] == *wanted)
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

/// Creates a file whose holes are not aligned to symbols.
fn create_sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(20 << 20).unwrap();
    for at in [0, 5_000_000, 12_345_678] {
        file.write_all_at(b"data", at).unwrap();
    }
}

fn cases() -> Vec<Case> {
    [shapes(), contents(), attributes_and_owners()].into_iter().flatten().collect()
}

fn shapes() -> Vec<Case> {
    vec![
        (
            "empty directories and files",
            |set| {
                fs::create_dir_all(set.join("e/f")).unwrap();
                File::create(set.join("none")).unwrap();
            },
            Fidelity::default(),
            |set| {
                fs::read_dir(set.join("e/f")).unwrap().count() == 0
                    && fs::metadata(set.join("none")).unwrap().len() == 0
            },
        ),
        (
            "modes, without set-id and sticky bits",
            |set| {
                fs::create_dir(set.join("e")).unwrap();
                for (name, mode) in [("a", 0o4755), ("b", 0o400), ("c", 0), ("e", 0o1700)] {
                    if name != "e" {
                        fs::write(set.join(name), name).unwrap();
                    }
                    chmod(&set.join(name), mode);
                }
                // Only root can read a file of mode 0.
                chmod(&set.join("c"), 0o440);
            },
            Fidelity::default(),
            |set| {
                ["a", "b", "c", "e"].map(|name| mode(&set.join(name)))
                    == [0o755, 0o400, 0o440, 0o700]
            },
        ),
        (
            "symbolic links to any target",
            |set| {
                symlink("../nowhere", set.join("out")).unwrap();
                symlink("/etc/hostname", set.join("absolute")).unwrap();
                symlink("d", set.join("in")).unwrap();
            },
            Fidelity::default(),
            |set| {
                let of = |name: &str| fs::read_link(set.join(name)).unwrap();
                of("out") == *"../nowhere" && of("absolute") == *"/etc/hostname" && of("in") == *"d"
            },
        ),
        (
            "times of files, links and directories",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                symlink("a", set.join("l")).unwrap();
                for (name, seconds) in ["a", "l", "d"].into_iter().zip(DATES) {
                    set_time(&set.join(name), seconds);
                }
            },
            Fidelity::default(),
            |set| {
                let dates = ["a", "l", "d"].map(|name| modified(&set.join(name)));
                dates == DATES.map(|seconds| (seconds, 999_999_999))
            },
        ),
    ]
}

fn contents() -> Vec<Case> {
    vec![
        (
            "names that are not UTF-8, or of 255 bytes",
            |set| {
                use std::os::unix::ffi::OsStrExt as _;
                fs::write(set.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "a").unwrap();
                fs::write(set.join("n".repeat(255)), "b").unwrap();
            },
            Fidelity::default(),
            |set| {
                fs::read(set.join("n".repeat(255))).unwrap() == b"b"
                    && fs::read_dir(set).unwrap().count() == 3
            },
        ),
        (
            "holes",
            |set| {
                fs::write(set.join("a"), vec![1; 777]).unwrap();
                create_sparse(&set.join("b"));
            },
            Fidelity::default(),
            |set| {
                let found = fs::metadata(set.join("b")).unwrap();
                found.len() == 20 << 20 && found.blocks() * 512 < 100_000
            },
        ),
        (
            "hard links",
            |set| {
                fs::write(set.join("a"), vec![7; 300_000]).unwrap();
                fs::hard_link(set.join("a"), set.join("d/b")).unwrap();
            },
            fidelity_with(|f| f.hard_links = true),
            |set| {
                is_same_file(&set.join("a"), &set.join("d/b"))
                    && fs::read(set.join("d/b")).unwrap() == vec![7; 300_000]
            },
        ),
    ]
}

fn attributes_and_owners() -> Vec<Case> {
    vec![
        (
            "attributes",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                set_xattr(&set.join("a"), "user.a", b"kept");
                set_xattr(&set.join("d"), "user.d", b"kept");
            },
            fidelity_with(|f| f.xattrs = true),
            |set| {
                has_xattr(&set.join("a"), "user.a", b"kept")
                    && has_xattr(&set.join("d"), "user.d", b"kept")
            },
        ),
        (
            "access control lists",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                set_xattr(&set.join("a"), LIST, &list(4711));
                set_xattr(&set.join("d"), "system.posix_acl_default", &list(4711));
            },
            fidelity_with(|f| f.acls = true),
            |set| {
                has_xattr(&set.join("a"), LIST, &list(4711))
                    && has_xattr(&set.join("d"), "system.posix_acl_default", &list(4711))
            },
        ),
        (
            "owners, as root",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                symlink("a", set.join("l")).unwrap();
                let (user, group) = (Some(Uid::from_raw(4711)), Some(Gid::from_raw(4712)));
                for name in ["a", "l", "d"] {
                    chownat(CWD, set.join(name), user, group, AtFlags::SYMLINK_NOFOLLOW).unwrap();
                }
            },
            fidelity_with(|f| (f.owner, f.group) = (true, true)),
            |set| ["a", "l", "d"].iter().all(|name| owner(&set.join(name)) == (4711, 4712)),
        ),
        (
            "owners without the option, as root",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                let user = Some(Uid::from_raw(4711));
                chownat(CWD, set.join("a"), user, None, AtFlags::empty()).unwrap();
            },
            Fidelity::default(),
            |set| owner(&set.join("a")).0 == rustix::process::geteuid().as_raw(),
        ),
    ]
}

/// Whether the file system and the rights of this process allow a case.
fn is_able(scene: &Scene, case: &str) -> bool {
    let probe = scene.path("probe");
    fs::write(&probe, "").unwrap();
    let has_xattrs = setxattr(&probe, "user.a", b"1", XattrFlags::empty()).is_ok();
    let has_lists = setxattr(&probe, LIST, &list(4711), XattrFlags::empty()).is_ok();
    (has_xattrs || !case.contains("attributes"))
        && (has_lists || !case.contains("lists"))
        && (rustix::process::geteuid().is_root() || !case.contains("root"))
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_and_a_second_cast_has_nothing_to_do() {
    for (what, make, fidelity, is_right) in cases() {
        let allow = |inbox: &mut Inbox| (inbox.owners, inbox.links) = (true, true);
        let scene = Scene::with(1, |_, settings| allow(&mut settings.inbox[0])).await;
        if !is_able(&scene, what) {
            eprintln!("SKIPPED: {what}");
            continue;
        }
        fs::create_dir_all(scene.path("set/d")).unwrap();
        make(&scene.path("set"));
        let request = || Request { fidelity, ..scene.request("set") };
        let first = scene.cast(request()).await.unwrap();
        assert_eq!(first.outcome, Outcome::Complete, "{what}: {:?}", scene.events.all());
        let there = scene.nodes[0].inbox("set");
        assert!(is_right(&there), "{what}");
        let again = scene.cast(request()).await.unwrap();
        assert_eq!((again.outcome, again.already), (Outcome::Complete, 1), "{what}");
        assert!(is_right(&there), "{what}, again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_not_set_unless_the_receivers_settings_allow_it() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can change owners");
    }
    let scene = Scene::new(1).await;
    scene.file("image", 1000);
    let user = Some(Uid::from_raw(4711));
    chownat(CWD, scene.path("image"), user, None, AtFlags::empty()).unwrap();
    let fidelity = fidelity_with(|f| (f.owner, f.group) = (true, true));
    let cast = scene.cast(Request { fidelity, ..scene.request("image") }).await.unwrap();
    assert_eq!(cast.outcome, Outcome::Complete);
    assert_eq!(owner(&scene.nodes[0].inbox("image")).0, 0);
    let ignored = |scene: &Scene| {
        let events = scene.events.all();
        let counts = events.iter().filter_map(|event| match event {
            Event::OwnersIgnored { count, .. } => Some(*count),
            _ => None,
        });
        counts.collect::<Vec<_>>()
    };
    assert_eq!(ignored(&scene), [1], "the source is told");
    let dry = Request { fidelity, dry_run: true, ..scene.request("image") };
    assert_eq!(scene.cast(dry).await.unwrap().outcome, Outcome::Complete);
    assert_eq!(ignored(&scene), [1, 1], "also by a dry run");
    let cast = scene.cast(Request { fidelity, ..scene.request("image") }).await.unwrap();
    assert_eq!((cast.outcome, cast.already), (Outcome::Complete, 1));
    assert!(ignored(&scene).ends_with(&[1]), "also of a copy that was there");
    let without = scene.cast(scene.request("image")).await.unwrap();
    assert_eq!(without.outcome, Outcome::Complete);
    assert_eq!(ignored(&scene).len(), 3, "of owners that nobody asked for nothing is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_out_of_the_inbox_are_left_out_unless_the_receivers_settings_allow_them() {
    for allowed in [false, true] {
        let change = |_: u8, settings: &mut Settings| settings.inbox[0].links = allowed;
        let scene = Scene::with(2, change).await;
        fs::create_dir_all(scene.path("set/d")).unwrap();
        fs::write(scene.path("set/d/a"), "a").unwrap();
        let inbox = scene.nodes[0].inbox("");
        let inside = inbox.join("set/d");
        for (link, target) in [
            ("d/up", Path::new("../..")),
            ("d/out", Path::new("../../..")),
            ("etc", Path::new("/etc")),
            ("absolute", &inside),
            ("in", Path::new("d/a")),
            ("winding", Path::new("d/../d/a")),
        ] {
            symlink(target, scene.path("set").join(link)).unwrap();
        }
        let told = || {
            scene.events.all().into_iter().rev().find_map(|event| match event {
                Event::LinksRefused { count, first, .. } => Some((count, first)),
                _ => None,
            })
        };
        for already in [0, 1] {
            let request = Request { to: vec![name(1)], ..scene.request("set") };
            let dry = scene.cast(Request { dry_run: true, ..request.clone() }).await.unwrap();
            let dry_told = told();
            let cast = scene.cast(request).await.unwrap();
            let refused = if allowed { 0 } else { 3 };
            let outcome = if allowed { Outcome::Complete } else { Outcome::Partial };
            assert_eq!((cast.outcome, cast.complete, cast.already), (outcome, 1, already));
            assert_eq!(cast.refused_links, refused);
            let kept = |totals: &Totals| (totals.outcome, totals.complete, totals.refused_links);
            assert_eq!(kept(&dry), kept(&cast), "a dry run ends like the cast");
            let is_there = |link: &&str| inbox.join("set").join(link).is_symlink();
            let links = ["d/up", "absolute", "in", "d/out", "etc", "winding"];
            let there: Vec<&str> = links.iter().copied().filter(is_there).collect();
            assert_eq!(there, links[..if allowed { 6 } else { 3 }]);
            assert_eq!(fs::read(inbox.join("set/d/a")).unwrap(), b"a");
            let told = told();
            assert_eq!(dry_told, told, "a dry run names the same link");
            assert_eq!(told.as_ref().map(|(count, _)| *count), (!allowed).then_some(3));
            assert!(
                told.is_none_or(|(_, first)| first.contains("set/d/out: a link that leads out"))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bits_that_no_receiver_keeps_are_counted() {
    let scene = Scene::new(1).await;
    fs::create_dir_all(scene.path("set/d")).unwrap();
    for (name, mode) in [("a", 0o4755), ("b", 0o2755), ("c", 0o644)] {
        fs::write(scene.path("set").join(name), name).unwrap();
        chmod(&scene.path("set").join(name), mode);
    }
    chmod(&scene.path("set/d"), 0o1777);
    scene.cast(scene.request("set")).await.unwrap();
    let events = scene.events.all();
    let counts = events.iter().filter(|event| matches!(event, Event::SpecialBits { count: 3 }));
    assert_eq!(counts.count(), 1, "{events:?}");
}

/// All files, links and directories below a directory, with inodes and the content of files.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if found.is_dir() {
                rest.push(path.clone());
            }
            all.insert(path, (found.ino(), content));
        }
    }
    all
}

/// The result for a copy in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    /// It is the object.
    Counts,
    /// It gets the missing parts.
    Completed,
    /// It is another object, and the cast is refused.
    Refused,
}

/// How a copy in the inbox was changed, and the result.
type Copy = (&'static str, fn(&Path), Copied);

const COPIED: [Copy; 17] = [
    ("nothing", |_| {}, Copied::Counts),
    ("times", |set| set_time(&set.join("a"), 5), Copied::Counts),
    ("modes", |set| chmod(&set.join("a"), 0o600), Copied::Counts),
    ("a mode of a directory", |set| chmod(&set.join("d"), 0o700), Copied::Counts),
    ("an additional file", |set| fs::write(set.join("d/more"), "x").unwrap(), Copied::Counts),
    (
        "a byte",
        |set| {
            let file = File::options().write(true).open(set.join("a")).unwrap();
            file.write_all_at(&[0xee; 3], 700_000).unwrap();
        },
        Copied::Refused,
    ),
    (
        "two files swapped",
        |set| {
            fs::rename(set.join("a"), set.join("x")).unwrap();
            fs::rename(set.join("b"), set.join("a")).unwrap();
            fs::rename(set.join("x"), set.join("b")).unwrap();
        },
        Copied::Refused,
    ),
    ("a file is missing", |set| fs::remove_file(set.join("b")).unwrap(), Copied::Completed),
    (
        "a file is missing, and there is an additional one",
        |set| fs::rename(set.join("a"), set.join("d/more")).unwrap(),
        Copied::Completed,
    ),
    (
        "all but a directory is missing",
        |set| ["a", "b", "l"].iter().for_each(|name| fs::remove_file(set.join(name)).unwrap()),
        Copied::Completed,
    ),
    (
        "all is missing",
        |set| {
            fs::remove_dir_all(set).unwrap();
            fs::create_dir(set).unwrap();
        },
        Copied::Completed,
    ),
    (
        "a directory of other files",
        |set| {
            fs::remove_dir_all(set).unwrap();
            fs::create_dir(set).unwrap();
            fs::write(set.join("other"), "x").unwrap();
        },
        Copied::Refused,
    ),
    (
        "a file is missing, and a byte of another is wrong",
        |set| {
            fs::remove_file(set.join("b")).unwrap();
            let file = File::options().write(true).open(set.join("a")).unwrap();
            // In the symbol that holds the end of this file and the beginning of the next one.
            file.write_all_at(&[0xee; 3], 999_990).unwrap();
        },
        Copied::Refused,
    ),
    (
        "a file is missing, and another is longer",
        |set| {
            fs::remove_file(set.join("b")).unwrap();
            let file = File::options().write(true).open(set.join("a")).unwrap();
            file.write_all_at(&[0xee; 3], 1_000_000).unwrap();
        },
        Copied::Refused,
    ),
    (
        "a link points elsewhere",
        |set| {
            fs::remove_file(set.join("l")).unwrap();
            symlink("b", set.join("l")).unwrap();
        },
        Copied::Refused,
    ),
    (
        "a file in place of a link",
        |set| {
            fs::remove_file(set.join("l")).unwrap();
            fs::copy(set.join("a"), set.join("l")).unwrap();
        },
        Copied::Refused,
    ),
    (
        "a pipe in place of a file",
        |set| {
            fs::remove_file(set.join("b")).unwrap();
            let made = std::process::Command::new("mkfifo").arg(set.join("b")).status().unwrap();
            assert!(made.success());
        },
        Copied::Refused,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_copy_counts_if_its_content_is_the_same() {
    for (what, touch, becomes) in COPIED {
        let scene = Scene::new(2).await;
        fs::create_dir_all(scene.path("set/d")).unwrap();
        scene.file("set/a", 1_000_000);
        scene.file("set/b", 1_000_000);
        symlink("a", scene.path("set/l")).unwrap();
        let inbox = scene.nodes[0].inbox("set");
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([scene.path("set"), inbox.clone()])
            .status();
        assert!(copied.unwrap().success());
        touch(&inbox);
        let before = tree(&inbox);
        let dry = scene.cast(Request { dry_run: true, ..scene.request("set") }).await.unwrap();
        assert_eq!(dry.complete, 2, "{what}");
        let is_unsure = |event: &Event| matches!(event, Event::WouldTake { uncompared: true, .. });
        assert_eq!(scene.events.all().iter().filter(|e| is_unsure(e)).count(), 1, "{what}");
        let cast = scene.cast(scene.request("set")).await.unwrap();
        let complete = if becomes == Copied::Refused { 1 } else { 2 };
        assert_eq!(cast.complete, complete, "{what}: {:?}", scene.events.all());
        assert_eq!(cast.already, usize::from(becomes == Copied::Counts), "{what}");
        // The other receiver has no copy and gets the object in any case.
        let sets = [scene.nodes[1].inbox("set"), inbox.clone()];
        for set in &sets[..complete] {
            for name in ["a", "b", "l"] {
                let read = |set: &Path| fs::read(set.join(name)).unwrap();
                assert!(read(&scene.path("set")) == read(set), "{what}: {name}");
            }
        }
        let left = tree(&inbox);
        match becomes {
            Copied::Refused => assert_eq!(left, before, "{what}"),
            Copied::Counts | Copied::Completed => {
                let is_kept = |path: &&PathBuf| left.contains_key(*path);
                assert_eq!(before.keys().filter(is_kept).count(), before.len(), "{what}");
            }
        }
    }
}
