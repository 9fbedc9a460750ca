//! What receivers keep of a tree, and what of a copy that somebody has put there counts, each in a table.

use crate::scene::Scene;
use rustix::fs::{
    AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, getxattr, setxattr,
    utimensat,
};
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};
use thalweg_cast::source::{Event, Fidelity, Outcome, Request};

/// A tree, what is cast of it, and whether it is there as it should be.
type Case = (&'static str, fn(&Path), Fidelity, fn(&Path) -> bool);

fn kept(change: fn(&mut Fidelity)) -> Fidelity {
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

fn is_one(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).unwrap().ino();
    of(one) == of(other)
}

fn time(path: &Path) -> (i64, i64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.mtime(), found.mtime_nsec())
}

/// Years before 1970 and beyond 2262, of what is no link as well.
const DATES: [i64; 3] = [-2_000_000_000, 9_223_372_037, 4_102_444_800];

fn date(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn has(path: &Path, name: &str, wanted: &[u8]) -> bool {
    let mut value = [0; 256];
    getxattr(path, name, &mut value[..]).is_ok_and(|length| value[..length] == *wanted)
}

/// The owner rw-, a user r--, the group r--, the mask r--, others ---.
fn list() -> Vec<u8> {
    let mut list = vec![2, 0, 0, 0];
    let entries = [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 4711),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ];
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

const LIST: &str = "system.posix_acl_access";

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

/// Holes that begin and end anywhere in the object's symbols.
fn sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(20 << 20).unwrap();
    for at in [0, 5_000_000, 12_345_678] {
        file.write_all_at(b"data", at).unwrap();
    }
}

fn cases() -> Vec<Case> {
    [shapes(), contents(), rights()].into_iter().flatten().collect()
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
            "modes, without those that give somebody's rights",
            |set| {
                fs::create_dir(set.join("e")).unwrap();
                for (name, mode) in [("a", 0o4755), ("b", 0o400), ("c", 0), ("e", 0o1700)] {
                    if name != "e" {
                        fs::write(set.join(name), name).unwrap();
                    }
                    chmod(&set.join(name), mode);
                }
                // As anybody but root could not read it.
                chmod(&set.join("c"), 0o440);
            },
            Fidelity::default(),
            |set| {
                ["a", "b", "c", "e"].map(|name| mode(&set.join(name)))
                    == [0o755, 0o400, 0o440, 0o700]
            },
        ),
        (
            "links wherever they point",
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
            "dates of files, links and directories",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                symlink("a", set.join("l")).unwrap();
                for (name, seconds) in ["a", "l", "d"].into_iter().zip(DATES) {
                    date(&set.join(name), seconds);
                }
            },
            Fidelity::default(),
            |set| {
                let dates = ["a", "l", "d"].map(|name| time(&set.join(name)));
                dates == DATES.map(|seconds| (seconds, 999_999_999))
            },
        ),
    ]
}

fn contents() -> Vec<Case> {
    vec![
        (
            "names that are no text, and of 255 bytes",
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
                sparse(&set.join("b"));
            },
            Fidelity::default(),
            |set| {
                let found = fs::metadata(set.join("b")).unwrap();
                found.len() == 20 << 20 && found.blocks() * 512 < 100_000
            },
        ),
        (
            "names of one file",
            |set| {
                fs::write(set.join("a"), vec![7; 300_000]).unwrap();
                fs::hard_link(set.join("a"), set.join("d/b")).unwrap();
            },
            kept(|f| f.hard_links = true),
            |set| {
                is_one(&set.join("a"), &set.join("d/b"))
                    && fs::read(set.join("d/b")).unwrap() == vec![7; 300_000]
            },
        ),
    ]
}

fn rights() -> Vec<Case> {
    vec![
        (
            "attributes",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                self::set(&set.join("a"), "user.a", b"kept");
                self::set(&set.join("d"), "user.d", b"kept");
            },
            kept(|f| f.xattrs = true),
            |set| has(&set.join("a"), "user.a", b"kept") && has(&set.join("d"), "user.d", b"kept"),
        ),
        (
            "lists of rights",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                self::set(&set.join("a"), LIST, &list());
                self::set(&set.join("d"), "system.posix_acl_default", &list());
            },
            kept(|f| f.acls = true),
            |set| {
                has(&set.join("a"), LIST, &list())
                    && has(&set.join("d"), "system.posix_acl_default", &list())
            },
        ),
        (
            "owners of root",
            |set| {
                fs::write(set.join("a"), "a").unwrap();
                symlink("a", set.join("l")).unwrap();
                let (user, group) = (Some(Uid::from_raw(4711)), Some(Gid::from_raw(4712)));
                for name in ["a", "l", "d"] {
                    chownat(CWD, set.join(name), user, group, AtFlags::SYMLINK_NOFOLLOW).unwrap();
                }
            },
            kept(|f| (f.owner, f.group) = (true, true)),
            |set| ["a", "l", "d"].iter().all(|name| owner(&set.join(name)) == (4711, 4712)),
        ),
        (
            "owners of root that are not asked for",
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

/// Whether the directory's file system, and this process, have what a case needs.
fn is_able(scene: &Scene, case: &str) -> bool {
    let probe = scene.path("probe");
    fs::write(&probe, "").unwrap();
    let has_xattrs = setxattr(&probe, "user.a", b"1", XattrFlags::empty()).is_ok();
    let has_lists = setxattr(&probe, LIST, &list(), XattrFlags::empty()).is_ok();
    (has_xattrs || !case.contains("attributes"))
        && (has_lists || !case.contains("lists"))
        && (rustix::process::geteuid().is_root() || !case.contains("root"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_there_and_a_second_cast_has_nothing_to_do() {
    for (what, make, fidelity, is_right) in cases() {
        let scene = Scene::with(1, |_, settings| settings.inbox[0].owners = true).await;
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
async fn owners_are_for_the_receivers_settings_to_allow() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: root alone gives files to others");
    }
    let scene = Scene::new(1).await;
    scene.file("image", 1000);
    let user = Some(Uid::from_raw(4711));
    chownat(CWD, scene.path("image"), user, None, AtFlags::empty()).unwrap();
    let fidelity = kept(|f| (f.owner, f.group) = (true, true));
    let cast = scene.cast(Request { fidelity, ..scene.request("image") }).await.unwrap();
    assert_eq!(cast.outcome, Outcome::Complete);
    assert_eq!(owner(&scene.nodes[0].inbox("image")).0, 0);
}

/// A copy of the tree that somebody has put into the inbox, what was done to it, and whether it is taken for the tree.
type Copied = (&'static str, fn(&Path), bool);

const COPIED: [Copied; 11] = [
    ("nothing", |_| {}, true),
    ("times", |set| date(&set.join("a"), 5), true),
    ("modes", |set| chmod(&set.join("a"), 0o600), true),
    ("a mode of a directory", |set| chmod(&set.join("d"), 0o700), true),
    ("something else beside", |set| fs::write(set.join("d/more"), "x").unwrap(), true),
    (
        "a byte",
        |set| {
            let file = File::options().write(true).open(set.join("a")).unwrap();
            file.write_all_at(&[0xee; 3], 700_000).unwrap();
        },
        false,
    ),
    (
        "two files for each other",
        |set| {
            fs::rename(set.join("a"), set.join("x")).unwrap();
            fs::rename(set.join("b"), set.join("a")).unwrap();
            fs::rename(set.join("x"), set.join("b")).unwrap();
        },
        false,
    ),
    ("a file is missing", |set| fs::remove_file(set.join("b")).unwrap(), false),
    (
        "a link points elsewhere",
        |set| {
            fs::remove_file(set.join("l")).unwrap();
            symlink("b", set.join("l")).unwrap();
        },
        false,
    ),
    (
        "a file for a link",
        |set| {
            fs::remove_file(set.join("l")).unwrap();
            fs::copy(set.join("a"), set.join("l")).unwrap();
        },
        false,
    ),
    (
        "a pipe for a file",
        |set| {
            fs::remove_file(set.join("b")).unwrap();
            let made = std::process::Command::new("mkfifo").arg(set.join("b")).status().unwrap();
            assert!(made.success());
        },
        false,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_somebody_has_put_there_counts_if_all_of_it_is_the_same() {
    for (what, touch, is_taken) in COPIED {
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
        let dry = scene.cast(Request { dry_run: true, ..scene.request("set") }).await.unwrap();
        assert_eq!(dry.complete, 2, "{what}");
        let is_unsure = |event: &Event| matches!(event, Event::WouldTake { uncompared: true, .. });
        assert_eq!(scene.events.all().iter().filter(|e| is_unsure(e)).count(), 1, "{what}");
        let cast = scene.cast(scene.request("set")).await.unwrap();
        let complete = if is_taken { 2 } else { 1 };
        assert_eq!(cast.complete, complete, "{what}: {:?}", scene.events.all());
        assert_eq!(cast.already, usize::from(is_taken), "{what}");
        // The other one has it in any case, and what it has is right.
        for name in ["a", "b"] {
            let (here, there) =
                (scene.path("set").join(name), scene.nodes[1].inbox("set").join(name));
            assert!(fs::read(here).unwrap() == fs::read(there).unwrap(), "{what}");
        }
    }
}
