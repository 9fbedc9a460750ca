//! Tests of other processes' files under a part's names.

use super::*;

const PART: &str = ".a.thalweg-part";
const JOURNAL: &str = ".a.thalweg-journal";

/// A complete, journaled part whose name was then given to another session, and that session's part, which has
/// journaled a few bytes.
fn taken_over(dir: &Path) -> (Part, Part) {
    let mut first = open(dir);
    fill(&mut first, 0..LENGTH);
    first.checkpoint().unwrap();
    fs::remove_file(dir.join(PART)).unwrap();
    fs::remove_file(dir.join(JOURNAL)).unwrap();
    let mut second = open(dir);
    fill(&mut second, 0..100);
    second.checkpoint().unwrap();
    (first, second)
}

#[test]
fn a_part_whose_name_another_session_took_publishes_its_own_bytes() {
    let dir = TempDir::new().unwrap();
    let (first, mut second) = taken_over(dir.path());
    first.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
    assert_eq!(names(dir.path()), [JOURNAL, PART, "a"], "the second's are left alone");
    fill(&mut second, 100..LENGTH);
    second.publish(LENGTH).unwrap();
    assert_eq!(names(dir.path()), ["a"]);
}

#[tokio::test]
async fn a_part_whose_name_was_taken_publishes_its_own_bytes_in_a_group_too() {
    let dir = TempDir::new().unwrap();
    let (first, _second) = taken_over(dir.path());
    Publisher::default().publish(first, LENGTH).await.unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
    assert_eq!(names(dir.path()), [JOURNAL, PART, "a"]);
}

#[test]
fn a_strangers_file_under_the_parts_name_is_not_published() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..LENGTH);
    fs::write(dir.path().join("evil"), "evil").unwrap();
    fs::rename(dir.path().join("evil"), dir.path().join(PART)).unwrap();
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
    assert_eq!(fs::read(dir.path().join(PART)).unwrap(), b"evil", "left as it is");
}

#[test]
fn a_part_removes_no_files_of_others() {
    let dir = TempDir::new().unwrap();
    let (first, _second) = taken_over(dir.path());
    first.discard().unwrap();
    assert_eq!(names(dir.path()), [JOURNAL, PART]);
    let dir = TempDir::new().unwrap();
    let (first, _second) = taken_over(dir.path());
    first.close().unwrap();
    assert_eq!(names(dir.path()), [JOURNAL, PART]);
}

#[test]
fn a_part_that_was_moved_away_is_still_published() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..LENGTH);
    fs::rename(dir.path().join(PART), dir.path().join("elsewhere")).unwrap();
    part.publish(LENGTH).unwrap();
    assert_eq!(names(dir.path()), ["a", "elsewhere"]);
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
}
