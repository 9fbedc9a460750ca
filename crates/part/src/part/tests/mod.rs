#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

mod listed;
mod planted;
mod published;
mod repair;
mod replaced;

use super::*;
use crate::{Digest, Publisher, Validator, Writer, is_published_as};
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;
use thalweg_base::job::Kind;
use thalweg_units::PathId;

const LENGTH: u64 = 40_000;

/// The bytes `range` of the object.
fn content(range: Range<u64>) -> Vec<u8> {
    range.map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn key_of(length: u64, etag: &str, digests: Vec<Digest>) -> PartKey {
    let validator = Some(Validator::Etag(etag.into()));
    PartKey::Url { url: "http://www.example/a".into(), length: Some(length), validator, digests }
}

fn key() -> PartKey {
    key_of(LENGTH, "\"1\"", Vec::new())
}

/// A batch without automatic checkpoints.
fn never() -> Batch {
    Batch { bytes: u64::MAX, time: Duration::MAX }
}

fn open_key(dir: &Path, key: PartKey) -> Result<Part, PartError> {
    let job = Job::begin(Kind::Get, "http://www.example/a".into(), "a".into());
    Part::open(&dir.join("a"), key, job, never())
}

fn open(dir: &Path) -> Part {
    open_key(dir, key()).unwrap()
}

fn fill(part: &mut Part, range: Range<u64>) {
    part.write(range.start, &content(range.clone())).unwrap();
}

/// The names in the directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// Asserts that the bytes that `part` claims are the object's.
fn assert_true(dir: &Path, part: &Part) {
    let file = fs::read(dir.join(".a.thalweg-part")).unwrap();
    for r in part.present.iter() {
        assert_eq!(file[r.start as usize..r.end as usize], content(r.clone()), "{r:?}");
    }
}

#[test]
fn a_part_is_published_complete_and_leaves_nothing_else() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "old").unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..30_000);
    part.checkpoint().unwrap();
    fill(&mut part, 30_000..LENGTH);
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"old");
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
    assert_eq!(names(dir.path()), ["a"]);
}

#[test]
fn an_incomplete_part_is_not_published() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 1..LENGTH);
    assert!(matches!(part.publish(LENGTH), Err(PartError::Incomplete { .. })));
    assert!(!dir.path().join("a").exists());
}

#[test]
fn a_wrong_digest_publishes_nothing_and_keeps_nothing() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "old").unwrap();
    let digest = format!("blake3:{}", "0".repeat(64)).parse().unwrap();
    let mut part = open_key(dir.path(), key_of(LENGTH, "\"1\"", vec![digest])).unwrap();
    fill(&mut part, 0..LENGTH);
    part.checkpoint().unwrap();
    assert!(matches!(part.publish(LENGTH), Err(PartError::Digest { .. })));
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["a"]);
}

#[test]
fn a_right_digest_is_accepted() {
    let dir = TempDir::new().unwrap();
    let hash = blake3::hash(&content(0..LENGTH));
    let digest = format!("blake3:{hash}").parse().unwrap();
    let mut part = open_key(dir.path(), key_of(LENGTH, "\"1\"", vec![digest])).unwrap();
    fill(&mut part, 0..LENGTH);
    part.publish(LENGTH).unwrap();
    assert_eq!(names(dir.path()), ["a"]);
}

#[test]
fn the_job_of_the_first_session_is_kept() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    let id = part.job().id;
    fill(&mut part, 0..100);
    part.close().unwrap();
    assert_eq!(open(dir.path()).job().id, id);
}

#[test]
fn another_version_starts_from_nothing() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..20_000);
    part.close().unwrap();
    let other = open_key(dir.path(), key_of(LENGTH, "\"2\"", Vec::new())).unwrap();
    assert_eq!((other.resumed(), other.missing()), (0, vec![0..LENGTH]));
    assert!(other.discarded());
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    let dir = TempDir::new().unwrap();
    let part = open(dir.path());
    let refused = open_key(dir.path(), key()).err().unwrap();
    assert!(matches!(&refused, PartError::Busy(p) if p.ends_with("a")), "{refused}");
    drop(part);
    open(dir.path()).close().unwrap();
    assert!(names(dir.path()).is_empty(), "a part without bytes is removed");
}

#[test]
fn closing_releases_the_lock_although_a_copy_of_the_descriptor_is_open() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..100);
    // A child process that another thread is just starting has such a copy, too.
    let copy = part.reader().unwrap();
    part.close().unwrap();
    let part = open(dir.path());
    assert_eq!(part.resumed(), 100);
    drop(copy);
}

#[test]
fn targets_that_are_no_files_are_refused_and_links_followed() {
    let dir = TempDir::new().unwrap();
    let job = || Job::begin(Kind::Get, String::new(), String::new());
    for bad in [Path::new("/dev/null"), dir.path(), Path::new("/")] {
        let refused = Part::open(bad, key(), job(), never()).err().unwrap();
        assert!(matches!(refused, PartError::NotAFile { .. }), "{refused}");
    }
    let (real, link) = (dir.path().join("real"), dir.path().join("a"));
    fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..LENGTH);
    part.publish(LENGTH).unwrap();
    assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    assert_eq!(fs::read(real).unwrap(), content(0..LENGTH));
}

#[test]
fn links_to_missing_files_are_followed_and_invalid_links_refused() {
    use std::os::unix::fs::symlink;
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("far/off")).unwrap();
    symlink("off/b", at("far/a")).unwrap();
    symlink("../../real", at("far/off/b")).unwrap();
    for target in ["far/a", "link"] {
        _ = symlink("far/off/../a", at("link"));
        let job = Job::begin(Kind::Get, String::new(), String::new());
        let mut part = Part::open(&at(target), key(), job, never()).unwrap();
        fill(&mut part, 0..LENGTH);
        part.publish(LENGTH).unwrap();
        assert!(fs::symlink_metadata(at(target)).unwrap().is_symlink(), "{target}");
        assert_eq!(fs::read(at("real")).unwrap(), content(0..LENGTH), "{target}");
        fs::remove_file(at("real")).unwrap();
    }
    symlink("round", at("round")).unwrap();
    symlink("no/file", at("lost")).unwrap();
    for bad in ["round", "lost"] {
        let job = Job::begin(Kind::Get, String::new(), String::new());
        let refused = Part::open(&at(bad), key(), job, never()).err().unwrap();
        assert!(matches!(refused, PartError::Io { .. }), "{bad}: {refused}");
    }
}

#[test]
fn bytes_past_the_end_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    assert!(matches!(part.write(LENGTH - 1, &[0, 0]), Err(PartError::PastEnd(_))));
    assert!(matches!(part.write(u64::MAX, &[0, 0]), Err(PartError::PastEnd(_))));
}

#[test]
fn an_altered_file_is_noticed() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    for start in [0, 10_000, 20_000] {
        fill(&mut part, start..start + 10_000);
        part.checkpoint().unwrap();
    }
    drop(part);
    let path = dir.path().join(".a.thalweg-part");
    let mut bytes = fs::read(&path).unwrap();
    bytes[15_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(open(dir.path()).missing(), [10_000..20_000, 30_000..LENGTH]);
    // The record is removed for good, even if the byte is restored.
    assert_eq!(open(dir.path()).missing(), [10_000..20_000, 30_000..LENGTH]);
}

#[test]
fn a_lost_data_file_is_noticed() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..10_000);
    part.close().unwrap();
    fs::remove_file(dir.path().join(".a.thalweg-part")).unwrap();
    assert_eq!(open(dir.path()).missing(), [0..LENGTH]);
}

/// Leaves a part with three records. Returns the journal's bytes.
fn three_records(dir: &Path) -> Vec<u8> {
    let mut part = open(dir);
    for start in [0, 10_000, 20_000] {
        fill(&mut part, start..start + 5_000);
        part.checkpoint().unwrap();
    }
    drop(part);
    fs::read(dir.join(".a.thalweg-journal")).unwrap()
}

#[test]
fn a_torn_journal_loses_only_its_tail() {
    let dir = TempDir::new().unwrap();
    let journal = three_records(dir.path());
    let data = fs::read(dir.path().join(".a.thalweg-part")).unwrap();
    let mut last = 0;
    for cut in 0..=journal.len() {
        fs::write(dir.path().join(".a.thalweg-part"), &data).unwrap();
        fs::write(dir.path().join(".a.thalweg-journal"), &journal[..cut]).unwrap();
        let part = open(dir.path());
        assert_true(dir.path(), &part);
        assert!(part.resumed() >= last, "a longer journal knows no less");
        last = part.resumed();
    }
    assert_eq!(last, 15_000);
}

#[test]
fn writing_continues_after_a_torn_tail() {
    let dir = TempDir::new().unwrap();
    let journal = three_records(dir.path());
    fs::write(dir.path().join(".a.thalweg-journal"), &journal[..journal.len() - 7]).unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 30_000..35_000);
    part.close().unwrap();
    let part = open(dir.path());
    assert_eq!(part.resumed(), 15_000);
    assert_eq!(part.missing(), [5_000..10_000, 15_000..30_000, 35_000..LENGTH]);
}

/// A tmpfs mounted until dropped. `mount` returns `None` and prints why if it is not allowed.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(dir: &Path, size: &str) -> Option<Self> {
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("tmpfs", dir, "tmpfs", flags, data.as_c_str()) {
            Ok(()) => Some(Self(dir.to_owned())),
            Err(e) => {
                eprintln!("SKIPPED: a full disk needs a tmpfs of its own; mount: {e}");
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        if let Err(e) = rustix::mount::unmount(&self.0, flags) {
            eprintln!("{}: still mounted: {e}", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_keeps_the_bytes_written_before() {
    let dir = TempDir::new().unwrap();
    let Some(_mounted) = Tmpfs::mount(dir.path(), "1m") else { return };
    let key = || key_of(600_000, "\"1\"", Vec::new());
    let mut part = open_key(dir.path(), key()).unwrap();
    fill(&mut part, 0..200_000);
    part.checkpoint().unwrap();
    // Another program takes the space.
    let hog = dir.path().join("hog");
    assert!(fs::write(&hog, vec![1; 1 << 20]).is_err());
    let full = (0..10).try_for_each(|i| part.write(200_000 + i * 40_000, &[7; 40_000]));
    let error = full.unwrap_err();
    assert!(matches!(error, PartError::DiskFull { .. }), "{error}");
    _ = part.close();
    fs::remove_file(hog).unwrap();
    let part = open_key(dir.path(), key()).unwrap();
    assert!(part.resumed() >= 200_000);
}

#[test]
fn a_file_that_cannot_fit_is_refused_before_a_byte_is_fetched() {
    let dir = TempDir::new().unwrap();
    let Some(_mounted) = Tmpfs::mount(dir.path(), "1m") else { return };
    let refused = open_key(dir.path(), key_of(2_000_000, "\"1\"", Vec::new())).err().unwrap();
    assert!(matches!(refused, PartError::DiskFull { .. }), "{refused}");
    assert!(names(dir.path()).is_empty());
}

#[tokio::test]
async fn the_writer_returns_the_part_with_all_bytes() {
    let dir = TempDir::new().unwrap();
    let writer = Writer::spawn(open(dir.path()), Vec::new()).unwrap();
    for start in (0..LENGTH).step_by(1000) {
        writer.write(PathId(0), start, content(start..start + 1000).into()).await.unwrap();
    }
    writer.finish().await.0.unwrap().publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
}

#[tokio::test]
async fn the_writer_stops_at_the_first_failure_and_keeps_earlier_bytes() {
    let dir = TempDir::new().unwrap();
    let writer = Writer::spawn(open(dir.path()), Vec::new()).unwrap();
    writer.write(PathId(0), 0, content(0..1000).into()).await.unwrap();
    writer.write(PathId(0), LENGTH, bytes::Bytes::from_static(b"x")).await.unwrap();
    assert!(matches!(writer.finish().await, (Err(PartError::PastEnd(_)), 1000)));
    assert_eq!(open(dir.path()).resumed(), 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After a crash the next session has everything that was checkpointed, and nothing wrong.
    #[test]
    fn a_crash_loses_nothing_that_was_checkpointed(
        writes in proptest::collection::vec((0u64..40, 1u64..5, any::<bool>()), 1..20),
    ) {
        let dir = TempDir::new().unwrap();
        let mut part = open(dir.path());
        for (block, blocks, checkpoint) in writes {
            let end = (block + blocks).min(40) * 1000;
            fill(&mut part, block * 1000..end);
            if checkpoint {
                part.checkpoint().unwrap();
            }
        }
        let durable = part.durable.clone();
        drop(part);
        let part = open(dir.path());
        assert_true(dir.path(), &part);
        prop_assert_eq!(&part.present, &durable);
    }

    /// A journal with an altered byte never makes a wrong byte valid.
    #[test]
    fn an_altered_journal_is_noticed(at in any::<proptest::sample::Index>(), flip in 1u8..) {
        let dir = TempDir::new().unwrap();
        let mut journal = three_records(dir.path());
        let at = at.index(journal.len());
        journal[at] ^= flip;
        fs::write(dir.path().join(".a.thalweg-journal"), &journal).unwrap();
        let part = open(dir.path());
        assert_true(dir.path(), &part);
        prop_assert!(part.resumed() < 15_000);
    }
}
