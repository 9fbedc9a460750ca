//! Bad input: it is reported, nothing leaves the directory, and the other files land.

use super::*;
use std::{fs, os::unix::fs::symlink, path::Path};

const LARGE: u64 = (1 << 20) + 99;

fn why<'a>(report: &'a Report, path: &str) -> &'a str {
    let found = report.failed.iter().find(|f| f.path == Path::new(path));
    &found.unwrap_or_else(|| panic!("{path} is not named: {report:?}")).why
}

#[test]
fn a_symlink_out_of_the_tree_is_replaced_and_not_followed() {
    let arena = Arena::new();
    let outside = arena.directory.path().join("outside");
    fs::create_dir_all(arena.path("")).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, arena.path("d")).unwrap();
    symlink("..", arena.path("up")).unwrap();
    let entries = vec![
        directory("d"),
        file("d/x", 10),
        file("d/large", LARGE),
        directory("d/e"),
        file("up/y", 10),
        file("z", 10),
    ];
    let report = arena.land(entries);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_dir(arena.directory.path()).unwrap().count(), 2);
    assert_eq!((report.files, report.is_complete()), (4, true), "{report:?}");
    let is_directory = |path: &str| arena.path(path).symlink_metadata().unwrap().is_dir();
    assert!(is_directory("d") && is_directory("up"), "as with rsync, directories replace links");
}

#[test]
fn a_symlink_created_meanwhile_is_not_followed() {
    let arena = Arena::new();
    let outside = arena.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    // More directories than are kept open.
    let entries = |i: usize| [directory(&format!("d{i}")), file(&format!("d{i}/x"), 10)];
    let entries: Vec<Entry> = (0..60).flat_map(entries).collect();
    let (landing, inventory) = arena.open(entries).unwrap();
    fs::rename(arena.path("d0"), arena.path("away")).unwrap();
    symlink(&outside, arena.path("d0")).unwrap();
    let report = wait(async {
        send_all(&landing, &inventory).await;
        landing.finish().await
    });
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(report.files, 59);
    assert!(!why(&report, "d0/x").is_empty());
}

/// Creates an item: a file, link, empty directory, directory with a file in it, or pipe.
fn make(path: &Path, kind: char) {
    match kind {
        'f' => fs::write(path, "x").unwrap(),
        'l' => symlink("elsewhere", path).unwrap(),
        'e' => fs::create_dir(path).unwrap(),
        'n' => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("precious"), "x").unwrap();
        }
        _ => {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        }
    }
}

fn kind_of(path: &Path) -> char {
    let kind = path.symlink_metadata().unwrap().file_type();
    match () {
        () if kind.is_dir() && path.join("precious").exists() => 'n',
        () if kind.is_dir() => 'e',
        () if kind.is_symlink() => 'l',
        () if kind.is_file() => 'f',
        () => 'p',
    }
}

/// The result of rsync, and whether it succeeds; `None` if it is not installed.
fn by_rsync(there: char, here: char) -> Option<(char, bool)> {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    for (path, kind) in [(&from, there), (&to, here)] {
        fs::create_dir(path).unwrap();
        make(&path.join("x"), kind);
    }
    let mut rsync = std::process::Command::new("rsync");
    let ended = rsync.arg("-a").arg(from.join("")).arg(&to).output().ok()?;
    Some((kind_of(&to.join("x")), ended.status.success()))
}

#[test]
fn items_of_another_kind_are_replaced_as_by_rsync() {
    for there in ['f', 'L', 'l', 'e', 'n'] {
        for here in ['f', 'l', 'e', 'n', 'p'] {
            let what = format!("{there} there, {here} here");
            let arena = Arena::new();
            fs::create_dir_all(arena.path("")).unwrap();
            make(&arena.path("x"), here);
            let entries = match there {
                'f' => vec![file("x", 1)],
                'L' => vec![file("x", LARGE)],
                'l' => vec![link("x", "another")],
                'e' => vec![directory("x")],
                _ => vec![directory("x"), file("x/precious", 1)],
            };
            let report = arena.land(entries);
            let found = (kind_of(&arena.path("x")), report.is_complete());
            let is_kept = here == 'n' && matches!(there, 'f' | 'L' | 'l');
            let becomes = match (there, here) {
                ('L', _) => 'f',
                ('e', 'n') => 'n',
                _ => there,
            };
            let expected = if is_kept { ('n', false) } else { (becomes, true) };
            assert_eq!(found, expected, "{what}: {report:?}");
            assert!(!is_kept || why(&report, "x").contains("move it away"), "{what}: {report:?}");
            let rsync = by_rsync(if there == 'L' { 'f' } else { there }, here);
            assert!(rsync.is_none_or(|made| made == found), "{what}: rsync made {rsync:?}");
        }
    }
}

#[test]
fn too_long_names_are_reported_and_the_longest_allowed_land() {
    let arena = Arena::new();
    let (long, longer) = ("x".repeat(255), "y".repeat(256));
    let entries = vec![
        file(&long, LARGE),
        file(&longer, 10),
        file(&format!("{longer}z"), LARGE),
        file("a", 3),
    ];
    let report = arena.land(entries);
    assert_eq!((report.files, report.failed.len()), (2, 2), "{report:?}");
    assert!(why(&report, &longer).contains("name too long"), "{report:?}");
    arena.assert_file(&file(&long, LARGE));
    let mut names = arena.names();
    names.sort_by_key(String::len);
    assert_eq!(names, ["a".to_owned(), long], "nothing is left over");
}

#[test]
fn a_second_collection_into_a_directory_is_refused() {
    let arena = Arena::new();
    let (landing, _) = arena.open(vec![file("a", 10)]).unwrap();
    let refused = arena.open(vec![file("b", 10)]).unwrap_err();
    assert!(matches!(refused, OpenError::Locked(_)), "{refused}");
    assert!(refused.to_string().contains("already writing to"), "{refused}");
    drop(landing);
    assert!(arena.land(vec![file("b", 10)]).is_complete());
}

#[test]
fn a_target_that_is_no_directory_or_cannot_be_created_is_reported() {
    let arena = Arena::new();
    let file_there = arena.directory.path().join("into");
    fs::write(&file_there, "").unwrap();
    let refused = arena.open(vec![file("a", 10)]).unwrap_err();
    assert!(matches!(refused, OpenError::NotADirectory(_)), "{refused}");
    let nowhere = std::path::Path::new("/proc/thalweg/into");
    let refused = Landing::open(nowhere, Vec::new(), options()).unwrap_err().to_string();
    assert!(refused.contains("cannot create /proc/thalweg/into"), "{refused}");
}

#[test]
fn files_given_up_stay_hidden_and_large_ones_are_resumed() {
    let arena = Arena::new();
    let entries = || vec![file("small", 1000), file("large", LARGE), file("other", 50)];
    let (landing, inventory) = arena.open(entries()).unwrap();
    let (small, large) = (number(&inventory, "small"), number(&inventory, "large"));
    let report = wait(async {
        let piece = |file, range| thalweg_files::inventory::Piece { file, range };
        send(&landing, &inventory, piece(small, 0..500)).await;
        send(&landing, &inventory, piece(large, 0..700_000)).await;
        landing.give_up(small, "the file changed since it was listed".into());
        landing.give_up(large, "the source is gone".into());
        let refused = landing.write(large, 700_000, Bytes::from_static(b"x")).await.unwrap_err();
        assert!(refused.to_string().contains("the source is gone"), "{refused}");
        send(&landing, &inventory, piece(number(&inventory, "other"), 0..50)).await;
        landing.finish().await
    });
    assert_eq!((report.files, report.unfinished, report.failed.len()), (1, 0, 2), "{report:?}");
    assert_eq!(why(&report, "small"), "the file changed since it was listed");
    assert_eq!(report.kept_bytes, 700_000);
    assert_eq!(arena.names(), [".large.thalweg-journal", ".large.thalweg-part", "other"]);
    drop(landing);
    let (sent, report) = arena.land_with(entries(), options());
    assert_eq!(sent, 1000 + LARGE - 700_000);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(arena.names(), ["large", "other", "small"]);
}

#[test]
fn a_file_changed_at_its_source_starts_over() {
    let arena = Arena::new();
    let (landing, inventory) = arena.open(vec![file("large", LARGE)]).unwrap();
    wait(async {
        let piece = thalweg_files::inventory::Piece { file: FileNo(0), range: 0..700_000 };
        send(&landing, &inventory, piece).await;
        assert_eq!(landing.finish().await.kept_bytes, 700_000);
    });
    drop(landing);
    let mut changed = file("large", LARGE);
    let Kind::File { snapshot } = &mut changed.kind else { unreachable!() };
    (snapshot.changed_ns, snapshot.inode) = (THEN + 1, 12);
    let (sent, report) = arena.land_with(vec![changed.clone()], options());
    assert_eq!((sent, report.is_complete()), (LARGE, true), "{report:?}");
    arena.assert_file(&changed);
}

#[test]
fn bytes_outside_every_file_are_refused() {
    let arena = Arena::new();
    let (landing, inventory) = arena.open(vec![file("a", 10), file("large", LARGE)]).unwrap();
    let report = wait(async {
        assert!(landing.write(FileNo(7), 0, Bytes::from_static(b"x")).await.is_err());
        landing.write(number(&inventory, "a"), 5, Bytes::from_static(b"123456")).await.unwrap();
        let end = LARGE - 1;
        landing.write(number(&inventory, "large"), end, Bytes::from_static(b"12")).await.unwrap();
        let report = landing.finish().await;
        let after = landing.write(FileNo(0), 0, Bytes::from_static(b"x")).await.unwrap_err();
        assert!(!after.to_string().is_empty());
        assert_eq!(landing.finish().await, report, "the same again");
        report
    });
    assert!(why(&report, "a").contains("past its end"), "{report:?}");
    assert!(why(&report, "large").contains("past its end"), "{report:?}");
    assert_eq!(arena.names(), [""; 0]);
}

#[test]
fn unlistable_paths_are_in_the_report() {
    let arena = Arena::new();
    let why_not = thalweg_wire::object::Failure::System("Permission denied".into());
    let mut of = listed(3, "a", &["/data/"], vec![file("a", 1)]);
    of.failed = vec![(b"/data/secret".to_vec(), why_not)];
    let (landing, inventory) = Landing::open(&arena.path(""), vec![of], options()).unwrap();
    let report = wait(async {
        send_all(&landing, &inventory).await;
        landing.finish().await
    });
    assert_eq!(why(&report, "/data/secret"), "Permission denied");
    assert_eq!((report.failed[0].source, report.files), (3, 1));
    assert_eq!(landing.progress().len(), 4, "by index");
}

#[test]
fn the_number_of_unlisted_directories_is_bounded() {
    let arena = Arena::new();
    let deep = |i: usize| format!("{i}/{}", vec!["d"; 249].join("/"));
    // Each file is the only item in its own 250 directories; only the last ones are listed.
    let mut entries: Vec<Entry> = (0..300).map(|i| file(&format!("{}/x", deep(i)), 1)).collect();
    let mut all = deep(400);
    while !all.is_empty() {
        entries.push(directory(&all));
        all.truncate(all.rfind('/').unwrap_or(0));
    }
    entries.push(file(&format!("{}/x", deep(400)), 1));
    let dry = Options { dry_run: true, ..options() };
    let (looking, inventory) = arena.open_with(entries, dry).unwrap();
    let failed = &looking.required_work().failed;
    // 262 * 250 is less than 65,536.
    assert_eq!((inventory.files.len(), failed.len()), (263, 38));
    assert!(failed.iter().all(|f| f.path.ends_with("d/x") && f.why.contains("was not listed")));
    let listed = format!("{}/x", deep(400));
    assert!(inventory.files.iter().any(|f| f.file.path.as_bytes() == listed.as_bytes()));
}

/// Mounts a small filesystem; `None`, with a message, if that is not allowed.
fn small_disk(directory: &std::path::Path) -> Option<Mounted> {
    fs::create_dir_all(directory).unwrap();
    let data = std::ffi::CString::new("size=8m").unwrap();
    let flags = rustix::mount::MountFlags::empty();
    match rustix::mount::mount("tmpfs", directory, "tmpfs", flags, data.as_c_str()) {
        Ok(()) => Some(Mounted(directory.to_owned())),
        Err(e) => {
            eprintln!("SKIPPED: a full disk needs a tmpfs of its own; mount: {e}");
            None
        }
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_reported_and_received_data_is_kept() {
    let arena = Arena::new();
    let Some(_disk) = small_disk(&arena.path("")) else { return };
    let entries = |more| vec![file("a", 1000), file("large", 4 << 20), file("more", more)];
    let refused = arena.open(entries(5 << 20)).unwrap_err().to_string();
    assert!(
        refused.contains("the disk is full") && refused.contains("free some space"),
        "{refused}"
    );
    let at_once = Options {
        checkpoint: thalweg_part::Batch { bytes: 1 << 18, time: std::time::Duration::ZERO },
        ..options()
    };
    let (landing, inventory) = arena.open_with(entries(3 << 20), at_once).unwrap();
    let report = wait(async {
        for (file, wanted) in (0..).zip(&inventory.files) {
            for at in (0..wanted.file.snapshot.size).step_by(1 << 18) {
                let range = at..(at + (1 << 18)).min(wanted.file.snapshot.size);
                _ = landing.write(FileNo(file), at, content(wanted, range)).await;
                if (file, at) == (1, 2 << 20) {
                    while landing.progress()[0].bytes < 2 << 20 {
                        tokio::task::yield_now().await;
                    }
                    _ = fs::write(arena.path("somebody else's"), vec![1; 8 << 20]);
                }
            }
        }
        landing.finish().await
    });
    let Some(LandError::All { why, kind }) = &report.stopped else { panic!("{report:?}") };
    assert_eq!(*kind, io::ErrorKind::StorageFull);
    assert!(why.contains("disk is full") && why.contains("run the same command again"), "{why}");
    assert!(report.kept_bytes >= 1 << 20, "{report:?}");
    drop(landing);
    fs::remove_file(arena.path("somebody else's")).unwrap();
    let (sent, again) = arena.land_with(entries(3 << 20), options());
    assert!(sent <= (7 << 20) - report.kept_bytes, "{sent} {report:?}");
    assert!(again.is_complete(), "{again:?}");
    entries(3 << 20).iter().for_each(|entry| arena.assert_file(entry));
}

#[test]
fn a_file_larger_than_the_disk_is_reported_and_the_others_land() {
    let arena = Arena::new();
    let Some(_disk) = small_disk(&arena.path("")) else { return };
    let entries = vec![file("a", 1000), file("lie", u64::MAX), file("z", 9 << 20)];
    let dry = Options { dry_run: true, ..options() };
    let (looking, inventory) = arena.open_with(entries.clone(), dry).unwrap();
    assert_eq!(
        (inventory.files.len(), looking.required_work().failed.len()),
        (1, 2),
        "told before"
    );
    let report = arena.land(entries);
    assert_eq!((report.files, report.failed.len()), (1, 2), "{report:?}");
    for path in ["lie", "z"] {
        let why = why(&report, path);
        assert!(why.contains("are free") && why.contains("run the same command again"), "{why}");
    }
    arena.assert_file(&file("a", 1000));
    assert_eq!(arena.names(), ["a"]);
}

#[test]
fn a_read_only_disk_is_reported() {
    let arena = Arena::new();
    let Some(disk) = small_disk(&arena.path("")) else { return };
    let (landing, inventory) = arena.open(vec![file("a", 10), file("b", LARGE)]).unwrap();
    let read_only = rustix::mount::MountFlags::RDONLY;
    if rustix::mount::mount_remount(&disk.0, read_only, c"").is_err() {
        // A file open for writing prevents the remount; the next open fails anyway.
        drop((landing, inventory));
        rustix::mount::mount_remount(&disk.0, read_only, c"").unwrap();
    } else {
        let report = wait(async {
            for (file, wanted) in (0..).zip(&inventory.files) {
                _ = landing.write(FileNo(file), 0, content(wanted, 0..10)).await;
            }
            landing.finish().await
        });
        assert!(report.stopped.is_some(), "{report:?}");
        drop(landing);
    }
    let refused = arena.open(vec![file("a", 10)]).unwrap_err().to_string();
    assert!(refused.contains("Read-only file system"), "{refused}");
}

#[test]
fn a_dry_run_reports_unreadable_files_unless_present() {
    let unreadable = |path: &str, size| {
        let mut entry = file(path, size);
        entry.more.get_or_insert_default().is_unreadable = true;
        entry
    };
    let arena = Arena::new();
    let (_, report) = arena.land_with(vec![file("here", 3000)], options());
    assert!(report.is_complete(), "{report:?}");
    let all = || {
        let large = unreadable("large", (1 << 20) + 1);
        vec![
            unreadable("a", 3),
            unreadable("empty", 0),
            unreadable("here", 3000),
            large,
            file("b", 3),
        ]
    };
    for into in [&arena, &Arena::new()] {
        let dry = Options { dry_run: true, ..options() };
        let (landing, inventory) = into.open_with(all(), dry).unwrap();
        let failed = &landing.required_work().failed;
        let mut names: Vec<_> = failed.iter().filter_map(|f| f.path.to_str()).collect();
        names.sort_unstable();
        // Empty files and existing files are not read from the source.
        let is_here = std::ptr::eq(into, &arena);
        let wanted = if is_here { &["a", "large"][..] } else { &["a", "here", "large"] };
        assert_eq!(names, wanted);
        assert!(failed.iter().all(|f| f.why.contains("no permission to read")), "{failed:?}");
        assert_eq!(inventory.files.len(), 1);
    }
    // A real collection requests them: only reading can fail.
    let (_, inventory) = Arena::new().open_with(all(), options()).unwrap();
    assert_eq!(inventory.files.len(), 4);
}
