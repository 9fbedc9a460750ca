//! Sent trees land completely.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt};

const LARGE: u64 = (1 << 20) + 4321;

fn tree() -> Vec<Entry> {
    let mut closed = directory("d/closed");
    closed.mode = 0o555;
    let mut secret = file("d/closed/secret", 5);
    secret.mode = 0o400;
    let mut wide = file("wide", 9);
    wide.mode = 0o666;
    vec![
        directory(""),
        directory("d"),
        closed,
        secret,
        wide,
        file("d/a", 3000),
        file("d/edge", 1 << 20),
        file("large", LARGE),
        file("empty", 0),
        link("d/link", "../a"),
        link("astray", "/nowhere/at/all"),
        directory("hollow"),
    ]
}

fn assert_tree(arena: &Arena) {
    for entry in tree() {
        match &entry.kind {
            Kind::File { .. } => arena.assert_file(&entry),
            Kind::Symlink { target } => {
                let path = arena.path(std::str::from_utf8(entry.path.as_bytes()).unwrap());
                let to = fs::read_link(path).unwrap();
                assert_eq!(to.to_str().unwrap().as_bytes(), target);
                arena.assert_attributes(&entry);
            }
            _ => arena.assert_attributes(&entry),
        }
    }
    let expected = tree().iter().filter(|e| !e.path.as_bytes().is_empty()).count();
    assert_eq!(arena.names().len(), expected, "nothing else: {:?}", arena.names());
}

#[test]
fn a_tree_lands_unchanged_and_is_not_sent_again() {
    let arena = Arena::new();
    let report = arena.land(tree());
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.files, report.links, report.directories), (6, 2, 4));
    assert_eq!(report.bytes, 5 + 9 + 3000 + (1 << 20) + LARGE);
    assert_tree(&arena);
    let (sent, report) = arena.land_with(tree(), options());
    assert_eq!((sent, report.files, report.skipped, report.links), (0, 0, 6, 2));
    assert!(report.is_complete(), "{report:?}");
    assert_tree(&arena);
}

#[test]
fn wrong_modes_and_times_are_fixed_without_sending_data() {
    let arena = Arena::new();
    arena.land(tree());
    fs::set_permissions(arena.path("d/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(arena.path("hollow"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(arena.path("d/beside"), "").unwrap();
    let (sent, report) = arena.land_with(tree(), options());
    assert_eq!((sent, report.skipped), (0, 6));
    fs::remove_file(arena.path("d/beside")).unwrap();
    arena.land(tree());
    assert_tree(&arena);
}

#[test]
fn differing_items_are_replaced_and_symlinks_are_not_followed() {
    let arena = Arena::new();
    let elsewhere = arena.directory.path().join("elsewhere");
    fs::create_dir_all(arena.path("d")).unwrap();
    fs::write(&elsewhere, "not ours").unwrap();
    fs::write(arena.path("d/a"), "other").unwrap();
    fs::write(arena.path("astray"), "a file").unwrap();
    fs::write(arena.path("empty"), "not empty").unwrap();
    std::os::unix::fs::symlink(&elsewhere, arena.path("large")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, arena.path("wide")).unwrap();
    std::os::unix::fs::symlink("elsewhere", arena.path("d/link")).unwrap();
    let report = arena.land(tree());
    assert!(report.is_complete(), "{report:?}");
    assert_tree(&arena);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"not ours");
}

#[test]
fn many_large_files_at_once_need_few_descriptors() {
    let arena = Arena::new();
    let files: Vec<Entry> = (0..150).map(|i| file(&format!("f{i}"), LARGE)).collect();
    let (landing, inventory) = arena.open(files.clone()).unwrap();
    let report = wait(async {
        for from in [0, 500_000, 1_000_000] {
            for number in 0..150 {
                let range = from..(from + 500_000).min(LARGE);
                send(
                    &landing,
                    &inventory,
                    thalweg_files::inventory::Piece { file: FileNo(number), range },
                )
                .await;
            }
        }
        landing.finish().await
    });
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.files, 150);
    files.iter().for_each(|entry| arena.assert_file(entry));
    assert_eq!(arena.names().len(), 150);
}

#[test]
fn pieces_may_arrive_out_of_order_and_twice() {
    let arena = Arena::new();
    let files = [file("small", 10_000), file("large", LARGE)];
    let (landing, inventory) = arena.open(files.to_vec()).unwrap();
    let report = wait(async {
        for name in ["small", "large"] {
            let file = number(&inventory, name);
            let size = inventory.files[file.0 as usize].file.snapshot.size;
            for from in [7000, 3000, 6000, 0] {
                let range = from..(from + 5000).min(size);
                send(&landing, &inventory, thalweg_files::inventory::Piece { file, range }).await;
            }
            send(
                &landing,
                &inventory,
                thalweg_files::inventory::Piece { file, range: 9_000..size },
            )
            .await;
        }
        landing.finish().await
    });
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.bytes, 10_000 + LARGE, "each byte counts once");
    assert_eq!(landing.progress()[0].files, 2);
    files.iter().for_each(|entry| arena.assert_file(entry));
}

#[test]
fn a_dry_run_changes_nothing() {
    let arena = Arena::new();
    let looking = || Options { dry_run: true, ..options() };
    let (landing, inventory) = arena.open_with(tree(), looking()).unwrap();
    assert_eq!(inventory.files.len(), 5);
    assert_eq!(landing.required_work().files, 6);
    assert_eq!(landing.required_work().bytes, inventory.amounts(1)[0]);
    assert!(!arena.path("").exists());
    arena.land(tree());
    let (landing, inventory) = arena.open_with(tree(), looking()).unwrap();
    assert!(inventory.files.is_empty());
    assert_eq!(landing.required_work().present_files, 6);
    assert_tree(&arena);
}

#[derive(Debug)]
struct Hashes;

impl ChecksumSource for Hashes {
    fn sums(
        &self,
        _: u32,
        files: &[thalweg_wire::object::FileRef],
    ) -> Vec<Result<thalweg_wire::object::TransferHash, thalweg_wire::object::Failure>> {
        let of = |file: &thalweg_wire::object::FileRef| {
            let bytes: Vec<u8> =
                (0..file.snapshot.size).map(|i| byte(file.snapshot.inode, i)).collect();
            Ok(thalweg_wire::object::TransferHash(blake3::hash(&bytes).into()))
        };
        files.iter().map(of).collect()
    }
}

#[test]
fn with_checksums_only_content_counts() {
    let arena = Arena::new();
    arena.land(tree());
    let touched = fs::File::open(arena.path("large")).unwrap();
    touched.set_modified(std::time::SystemTime::now()).unwrap();
    let bytes = fs::read(arena.path("d/a")).unwrap().iter().map(|b| b ^ 1).collect::<Vec<u8>>();
    fs::write(arena.path("d/a"), bytes).unwrap();
    let forged = fs::File::open(arena.path("d/a")).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(THEN as u64);
    forged.set_modified(then).unwrap();
    assert_eq!(arena.open(tree()).unwrap().1.amounts(1), [LARGE], "times say so");
    let sums: Option<Arc<dyn ChecksumSource>> = Some(Arc::new(Hashes));
    let (sent, report) = arena.land_with(tree(), Options { sums, ..options() });
    assert_eq!(sent, 3000, "content says so");
    assert!(report.is_complete(), "{report:?}");
    assert_tree(&arena);
}

#[test]
fn each_node_has_its_own_directory() {
    let arena = Arena::new();
    let both = vec![
        listed(0, "a", &["/data"], vec![directory(""), file("x", 5)]),
        listed(1, "b", &["/data"], vec![directory(""), file("x", 6)]),
    ];
    let (landing, inventory) = Landing::open(&arena.path(""), both, options()).unwrap();
    let report = wait(async {
        send_all(&landing, &inventory).await;
        landing.finish().await
    });
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(arena.names(), ["a", "a/data", "a/data/x", "b", "b/data", "b/data/x"]);
    let progress = landing.progress();
    assert_eq!((progress[0].bytes, progress[1].bytes, progress[1].of_bytes), (5, 6, 6));
}
