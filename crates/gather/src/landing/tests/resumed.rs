//! Sessions that are cut off at any time and then resumed.

use super::*;
use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};
use thalweg_files::inventory::Piece;
use thalweg_part::Batch;

const LARGE: u64 = (3 << 20) + 17;

fn tree() -> Vec<Entry> {
    let small = (0..300).map(|i| file(&format!("d{}/f{i}", i % 7), 1 + i * 13 % 4000));
    let large = (0..4).map(|i| file(&format!("large{i}"), LARGE + i));
    let directories = (0..7).map(|i| directory(&format!("d{i}")));
    directories.chain(small).chain(large).collect()
}

/// Options with a checkpoint at every piece.
fn at_once() -> Options {
    Options { checkpoint: Batch { bytes: 1, time: Duration::ZERO }, ..options() }
}

fn assert_tree(arena: &Arena) {
    tree().iter().for_each(|entry| match entry.kind {
        Kind::File { .. } => arena.assert_file(entry),
        _ => arena.assert_attributes(entry),
    });
    assert_eq!(arena.names().len(), tree().len(), "nothing else: {:?}", arena.names());
}

#[test]
fn an_interrupted_session_resumes_without_resending() {
    let arena = Arena::new();
    let (landing, inventory) = arena.open(tree()).unwrap();
    let job = landing.job().id;
    let all = inventory.amounts(1)[0];
    let mut work = crate::Work::new(&inventory);
    let report = wait(async {
        for piece in work.take(0, all / 2) {
            // A small file that arrived in part starts over.
            if piece.bytes() > 4000 || piece.range.start == 0 {
                send(&landing, &inventory, piece).await;
            }
        }
        landing.finish().await
    });
    assert!(report.unfinished > 0 && !report.is_complete());
    drop(landing);
    let (landing, inventory) = arena.open(tree()).unwrap();
    assert_eq!(landing.job().id, job, "the same job");
    assert_eq!(inventory.amounts(1)[0], all - report.bytes);
    assert_eq!(landing.required_work().resumed_bytes, report.kept_bytes);
    let report = wait(async {
        send_all(&landing, &inventory).await;
        landing.finish().await
    });
    assert!(report.is_complete(), "{report:?}");
    assert_tree(&arena);
    drop(landing);
    let (landing, _) = arena.open(tree()).unwrap();
    assert_ne!(landing.job().id, job, "that one is over");
}

#[test]
fn a_dropped_session_leaves_no_half_file() {
    let arena = Arena::new();
    let (landing, inventory) = arena.open_with(tree(), at_once()).unwrap();
    wait(async {
        let mut work = crate::Work::new(&inventory);
        for piece in work.take(0, inventory.amounts(1)[0] * 2 / 3) {
            send(&landing, &inventory, piece).await;
        }
    });
    drop(landing);
    let report = arena.land(tree());
    assert!(report.is_complete(), "{report:?}");
    assert_tree(&arena);
}

#[test]
fn a_large_file_cut_off_before_its_name_is_not_sent_again() {
    let arena = Arena::new();
    let entry = file("large", LARGE);
    let (landing, inventory) = arena.open_with(vec![entry.clone()], at_once()).unwrap();
    // First all bytes but one, then the last one: the second session completes the file and is cut off, too.
    wait(async {
        send(&landing, &inventory, Piece { file: FileNo(0), range: 0..LARGE - 1 }).await;
        assert_eq!(landing.finish().await.kept_bytes, LARGE - 1);
    });
    drop(landing);
    let (landing, inventory) = arena.open_with(vec![entry.clone()], at_once()).unwrap();
    assert_eq!(inventory.amounts(1), [1]);
    let last = inventory.files[0].missing[0].clone();
    wait(async { send(&landing, &inventory, Piece { file: FileNo(0), range: last }).await });
    drop(landing);
    let (sent, report) = arena.land_with(vec![entry.clone()], options());
    assert!(sent <= 1, "{sent}");
    assert!(report.is_complete(), "{report:?}");
    arena.assert_file(&entry);
}

const CHILD: &str = "THALWEG_LANDING_CHILD";

/// The child process: sends everything, slowly enough to be killed at any point.
fn be_killed(directory: OsString) {
    let into = PathBuf::from(directory).join("into");
    let entries = vec![listed(0, "a", &["/data/"], tree())];
    let (landing, inventory) = Landing::open(&into, entries, at_once()).unwrap();
    wait(async {
        let mut work = crate::Work::new(&inventory);
        let all = inventory.amounts(1)[0];
        loop {
            // Data sent before is written, and all but the last piece synced.
            while landing.progress()[0].bytes < all - work.remaining(0) {
                tokio::task::yield_now().await;
            }
            let pieces = work.take(0, 100_000);
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                work.done(&piece);
                send(&landing, &inventory, piece).await;
            }
            println!("sent");
        }
        println!("all {:?}", landing.finish().await.is_complete());
    });
}

#[test]
fn a_killed_process_is_gone_on_with() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return be_killed(directory);
    }
    for lines in [1, 20, 70, 135] {
        let arena = Arena::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "landing::tests::resumed::a_killed_process_is_gone_on_with"])
            .arg("--nocapture")
            .env(CHILD, arena.directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let sent = said.map(Result::unwrap).filter(|line| line.ends_with("sent")).take(lines);
        let sent = sent.count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sent > 0, "it was at work");
        let (landing, inventory) = arena.open(tree()).unwrap();
        let all: u64 = tree()
            .iter()
            .map(|e| match &e.kind {
                Kind::File { snapshot } => snapshot.size,
                _ => 0,
            })
            .sum();
        let missing = inventory.amounts(1)[0];
        assert!(missing < all || sent < 20, "after {sent} parts {missing} of {all} are missing");
        let report = wait(async {
            send_all(&landing, &inventory).await;
            landing.finish().await
        });
        assert!(report.is_complete(), "{report:?}");
        assert_tree(&arena);
    }
}

#[test]
fn parts_of_changed_or_removed_files_are_deleted() {
    let arena = Arena::new();
    let begin = || {
        let entries = vec![file("gone", LARGE), file("shrunk", LARGE), file("same", LARGE)];
        let (landing, inventory) = arena.open_with(entries, at_once()).unwrap();
        wait(async {
            for name in ["gone", "shrunk", "same"] {
                let file = number(&inventory, name);
                send(&landing, &inventory, Piece { file, range: 0..1 << 20 }).await;
            }
            landing.finish().await
        })
    };
    assert_eq!(begin().kept_bytes, 3 << 20);
    let kept = |names: &[String], of: &str| names.iter().any(|n| n.starts_with(&format!(".{of}.")));
    // Parts of another command do not concern this one.
    let other = Options::new(Job::begin(JobKind::Gather, "a:/data/x".into(), "here".into()));
    drop(arena.open_with(vec![file("x", 10)], other).unwrap());
    assert!(kept(&arena.names(), "gone"), "{:?}", arena.names());
    // A source with an incomplete listing may still have the file.
    let mut unsure = listed(0, "a", &["/data/"], vec![file("x", 10)]);
    unsure.failed.push((b"/data/d".to_vec(), thalweg_wire::object::Failure::System("no".into())));
    drop(Landing::open(&arena.path(""), vec![unsure], options()).unwrap());
    assert!(kept(&arena.names(), "gone"), "{:?}", arena.names());

    drop(arena.open(vec![file("shrunk", 10), file("same", LARGE)]).unwrap());
    let names = arena.names();
    let left = ["gone", "shrunk", "same"].map(|name| kept(&names, name));
    assert_eq!(left, [false, false, true], "{names:?}");
}
