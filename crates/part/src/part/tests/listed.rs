//! Tests of parts of files that another node listed: parked and reopened, with their own mode and time.

use super::*;
use crate::Owner;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use thalweg_wire::object::{FileTime, Snapshot};

const THEN: i64 = 1_500_000_000_000_000_007;

fn listed(changed_ns: i64) -> PartKey {
    let snapshot = Snapshot { device: 1, inode: 2, size: LENGTH, modified_ns: THEN, changed_ns };
    PartKey::Listed { node: "fra".into(), snapshot }
}

fn exactly(target: &Path) -> Part {
    let job = Job::begin(Kind::Gather, "fra:/data/a".into(), "a".into());
    let attributes = Some(Attributes {
        mode: 0o604,
        owner: Owner::default(),
        modified: FileTime::from_nanos(THEN),
    });
    Part::open_exactly(target, listed(0), job, never(), attributes).unwrap()
}

#[test]
fn only_the_data_of_a_sparse_file_must_arrive() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    let job = || Job::begin(Kind::Gather, "fra:/data/a".into(), "a".into());
    let open = || {
        let holes = Some(vec![(0, LENGTH / 2)]);
        Part::open_sparse(&target, listed(0), job(), never(), None, holes).unwrap()
    };
    let mut part = open();
    assert_eq!(part.missing(), [LENGTH / 2..LENGTH]);
    part.write(LENGTH / 2, &vec![7; 10_000]).unwrap();
    part.close().unwrap();
    let part = open();
    assert_eq!(part.resumed(), 10_000, "what is a hole was not kept, and need not come");
    let mut part = part.park().unwrap().open(&target).unwrap();
    assert_eq!(part.missing(), [LENGTH / 2 + 10_000..LENGTH]);
    let rest = vec![0; (LENGTH / 2 - 10_000) as usize];
    part.write(LENGTH / 2 + 10_000, &rest).unwrap();
    show(part);
    let content = fs::read(&target).unwrap();
    let (zeros, data) = content.split_at((LENGTH / 2) as usize);
    assert!(content.len() as u64 == LENGTH && zeros.iter().all(|byte| *byte == 0));
    assert!(data.iter().take(10_000).all(|byte| *byte == 7), "and data where it is");
}

fn show(part: Part) {
    let mut complete = part.complete(LENGTH).unwrap();
    complete.sync().unwrap();
    complete.give_final_name().unwrap().remove_journal().unwrap();
}

#[test]
fn a_parked_part_continues_where_it_stopped() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    let mut part = exactly(&target);
    fill(&mut part, 0..10_000);
    let parked = part.park().unwrap();
    assert_eq!(parked.durable(), 10_000);
    let mut part = parked.open(&target).unwrap();
    assert_eq!(part.missing(), [10_000..LENGTH]);
    fill(&mut part, 10_000..20_000);
    let mut part = part.park().unwrap().open(&target).unwrap();
    fill(&mut part, 20_000..30_000);
    part.close().unwrap();
    // The journal that was continued is whole.
    let mut part = exactly(&target);
    assert_eq!(part.missing(), [30_000..LENGTH]);
    fill(&mut part, 30_000..LENGTH);
    show(part);
    assert_eq!(fs::read(&target).unwrap(), content(0..LENGTH));
    assert_eq!(names(dir.path()), ["a"]);
}

#[test]
fn a_parked_part_that_was_changed_is_verified_anew() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    let mut part = exactly(&target);
    fill(&mut part, 0..10_000);
    part.checkpoint().unwrap();
    fill(&mut part, 10_000..20_000);
    let parked = part.park().unwrap();
    let file = fs::File::options().write(true).open(dir.path().join(".a.thalweg-part")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 15_000).unwrap();
    let part = parked.open(&target).unwrap();
    assert_eq!(part.missing(), [10_000..LENGTH]);
    assert_true(dir.path(), &part);
}

#[test]
fn a_link_is_replaced_by_a_file_with_mode_and_time() {
    let dir = TempDir::new().unwrap();
    let (target, elsewhere) = (dir.path().join("a"), dir.path().join("elsewhere"));
    fs::write(&elsewhere, "not ours").unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o644)).unwrap();
    symlink(&elsewhere, &target).unwrap();
    let mut part = exactly(&target);
    fill(&mut part, 0..LENGTH);
    show(part);
    let found = fs::symlink_metadata(&target).unwrap();
    assert!(found.is_file());
    assert_eq!(found.mode() & 0o7777, 0o604);
    assert_eq!(found.mtime() * 1_000_000_000 + found.mtime_nsec(), THEN);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"not ours");
}

#[test]
fn kept_bytes_are_reported_without_a_lock_and_only_for_the_same_content() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    assert_eq!(Part::journaled_ranges(&target, &listed(0)).unwrap(), None);
    let mut part = exactly(&target);
    fill(&mut part, 5_000..10_000);
    part.checkpoint().unwrap();
    let kept = Part::journaled_ranges(&target, &listed(0)).unwrap().unwrap();
    assert_eq!(kept.missing(LENGTH), part.missing());
    assert!(Part::journaled_ranges(&target, &listed(1)).unwrap().unwrap().is_empty());
    part.close().unwrap();
}

#[test]
fn a_journal_without_its_part_is_removed() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    let mut part = exactly(&target);
    fill(&mut part, 0..LENGTH);
    part.checkpoint().unwrap();
    assert!(matches!(Part::remove_leftovers(&target), Err(PartError::Busy(_))));
    // The session ends before the last step.
    drop(part.complete(LENGTH).unwrap().give_final_name().unwrap());
    assert_eq!(names(dir.path()), [".a.thalweg-journal", "a"]);
    Part::remove_leftovers(&target).unwrap();
    assert_eq!(names(dir.path()), ["a"]);
    Part::remove_leftovers(&target).unwrap();
}

#[test]
fn an_unfinished_journal_is_removed() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    let new = dir.path().join(".a.thalweg-journal.new");
    let mut part = exactly(&target);
    fill(&mut part, 0..10);
    drop(part);
    for journaled in [false, true] {
        fs::write(&new, "half").unwrap();
        let mut part = exactly(&target);
        assert!(!new.exists(), "{journaled}");
        fill(&mut part, 0..10_000);
        part.close().unwrap();
    }
    fs::remove_file(dir.path().join(".a.thalweg-part")).unwrap();
    fs::remove_file(dir.path().join(".a.thalweg-journal")).unwrap();
    fs::write(&new, "half").unwrap();
    Part::remove_leftovers(&target).unwrap();
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_name_of_maximum_length_has_a_part_too() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("n".repeat(255));
    let mut part = exactly(&target);
    fill(&mut part, 0..LENGTH / 2);
    part.close().unwrap();
    let mut part = exactly(&target);
    assert_eq!(part.resumed(), LENGTH / 2);
    fill(&mut part, LENGTH / 2..LENGTH);
    show(part);
    assert_eq!(fs::read(&target).unwrap(), content(0..LENGTH));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
