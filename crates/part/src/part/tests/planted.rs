//! Tests of files that somebody planted under a part's names, and of the mode of published files.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const PART: &str = ".a.thalweg-part";
const JOURNAL: &str = ".a.thalweg-journal";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Downloads into `dir`, which contains planted files, with a checkpoint in between.
fn publishes(dir: &Path) {
    let mut part = open(dir);
    assert_eq!(part.resumed(), 0, "what was planted is not used");
    fill(&mut part, 0..30_000);
    part.checkpoint().unwrap();
    fill(&mut part, 30_000..LENGTH);
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.join("a")).unwrap(), content(0..LENGTH));
}

#[test]
fn planted_links_are_replaced_and_their_targets_stay() {
    for name in [PART, JOURNAL, ".a.thalweg-journal.new"] {
        for hard in [false, true] {
            let dir = TempDir::new().unwrap();
            let victim = dir.path().join("victim");
            fs::write(&victim, "precious").unwrap();
            let planted = dir.path().join(name);
            if hard { fs::hard_link(&victim, planted) } else { symlink(&victim, planted) }.unwrap();
            publishes(dir.path());
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{name}, hard: {hard}");
            assert_eq!(names(dir.path()), ["a", "victim"]);
        }
    }
}

#[test]
fn a_pipe_and_a_link_to_nowhere_are_replaced() {
    for name in [PART, JOURNAL] {
        let dir = TempDir::new().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join(name), 0o600.into()).unwrap();
        publishes(dir.path());
        let dir = TempDir::new().unwrap();
        symlink(dir.path().join("new"), dir.path().join(name)).unwrap();
        publishes(dir.path());
        assert_eq!(names(dir.path()), ["a"]);
    }
}

#[test]
fn a_part_with_a_second_name_is_not_written_to() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..20_000);
    part.close().unwrap();
    let kept = dir.path().join("kept");
    fs::hard_link(dir.path().join(PART), &kept).unwrap();
    let before = fs::read(&kept).unwrap();
    publishes(dir.path());
    assert_eq!(fs::read(&kept).unwrap(), before);
}

#[test]
fn a_part_in_use_with_a_second_name_is_busy() {
    let dir = TempDir::new().unwrap();
    let _part = open(dir.path());
    fs::hard_link(dir.path().join(PART), dir.path().join("kept")).unwrap();
    let refused = open_key(dir.path(), key()).err().unwrap();
    assert!(matches!(refused, PartError::Busy(_)), "{refused}");
}

#[test]
fn another_users_files_are_replaced() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give files away");
    }
    for name in [PART, JOURNAL] {
        let dir = TempDir::new().unwrap();
        let mut part = open(dir.path());
        fill(&mut part, 0..20_000);
        part.close().unwrap();
        let planted = fs::File::open(dir.path().join(name)).unwrap();
        std::os::unix::fs::fchown(&planted, Some(1), Some(1)).unwrap();
        publishes(dir.path());
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().uid(), 0);
        assert_eq!(planted.metadata().unwrap().nlink(), 0, "{name}");
    }
}

#[test]
fn only_the_owner_can_read_an_unpublished_part() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..100);
    part.checkpoint().unwrap();
    assert_eq!([PART, JOURNAL].map(|n| mode(&dir.path().join(n))), [0o600, 0o600]);
}

#[test]
fn a_published_file_has_the_mode_of_a_new_file_or_of_the_replaced_one() {
    let dir = TempDir::new().unwrap();
    let (other, target) = (dir.path().join("other"), dir.path().join("a"));
    fs::write(&other, "").unwrap();
    publishes(dir.path());
    assert_eq!(mode(&target), mode(&other));
    for (old, new) in [(0o600, 0o600), (0o755, 0o755), (0o4750, 0o750)] {
        set_mode(&target, old);
        publishes(dir.path());
        assert_eq!(mode(&target), new);
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&target, Some(1), Some(2)).unwrap();
        set_mode(&target, 0o640);
        publishes(dir.path());
        let found = fs::metadata(&target).unwrap();
        assert_eq!((found.uid(), found.gid(), mode(&target)), (1, 2, 0o640));
    }
}
