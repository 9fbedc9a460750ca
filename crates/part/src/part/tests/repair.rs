//! Tests of the record of which path delivered which bytes, and of the repair of wrong bytes.

use super::*;

fn by(part: &mut Part, from: &str, range: Range<u64>) {
    part.write_from(from, range.start, &content(range.clone())).unwrap();
}

fn wrong(part: &mut Part, from: &str, range: Range<u64>) {
    let bytes: Vec<u8> = content(range.clone()).iter().map(|b| !b).collect();
    part.write_from(from, range.start, &bytes).unwrap();
}

fn of(part: &Part, from: &str) -> Vec<Range<u64>> {
    part.delivered_by(from).iter().cloned().collect()
}

fn digest() -> Digest {
    format!("blake3:{}", blake3::hash(&content(0..LENGTH))).parse().unwrap()
}

fn open_with_digest(dir: &Path) -> Part {
    open_key(dir, key_of(LENGTH, "\"1\"", vec![digest()])).unwrap()
}

/// The ranges in the journal on the disk, with their paths.
fn claimed(dir: &Path) -> Vec<(Range<u64>, String)> {
    let read = journal::read(&dir.join(".a.thalweg-journal")).unwrap();
    let records = read.map(|c| c.records).unwrap_or_default();
    let mut claimed: Vec<_> = records.into_iter().map(|r| (r.range, r.by)).collect();
    claimed.sort_by_key(|(range, _)| range.start);
    claimed
}

#[test]
fn the_delivering_paths_are_known_even_after_a_crash() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    by(&mut part, "direct", 0..1000);
    by(&mut part, "fra", 20_000..21_000);
    by(&mut part, "direct", 1000..2000);
    // The ranges touch but stay separate.
    by(&mut part, "fra", 2000..3000);
    part.checkpoint().unwrap();
    by(&mut part, "direct", 5000..6000);
    assert_eq!(of(&part, "direct"), [0..2000, 5000..6000]);
    drop(part);
    let part = open(dir.path());
    assert_eq!(of(&part, "direct"), [0..2000]);
    assert_eq!(of(&part, "fra"), [2000..3000, 20_000..21_000]);
    assert_eq!(of(&part, "sin"), []);
    assert_eq!(claimed(dir.path()).len(), 3);
}

#[test]
fn a_journal_without_names_still_reads() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..1000);
    part.close().unwrap();
    let journal = fs::read_to_string(dir.path().join(".a.thalweg-journal")).unwrap();
    assert!(!journal.contains("\"by\":\"\""), "as older versions wrote it: {journal}");
    assert_eq!(open(dir.path()).resumed(), 1000);
}

#[test]
fn bytes_already_present_are_not_overwritten() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    by(&mut part, "direct", 1000..2000);
    wrong(&mut part, "fra", 500..2500);
    assert_eq!(part.read(1000..2000).unwrap(), content(1000..2000));
    assert_eq!(
        (of(&part, "direct"), of(&part, "fra")),
        (vec![1000..2000], vec![500..1000, 2000..2500])
    );
}

#[test]
fn a_wrong_byte_is_found_and_repaired_before_publication() {
    let dir = TempDir::new().unwrap();
    let mut part = open_with_digest(dir.path());
    by(&mut part, "direct", 0..20_000);
    wrong(&mut part, "fra", 20_000..21_000);
    by(&mut part, "fra", 21_000..LENGTH);
    assert!(matches!(part.verify(LENGTH), Err(PartError::Digest { .. })));
    assert_eq!(of(&part, "fra"), [20_000..LENGTH], "all is kept");
    part.replace("direct", 20_000, &content(20_000..21_000)).unwrap();
    part.verify(LENGTH).unwrap();
    assert_eq!(of(&part, "direct"), [0..21_000]);
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
}

#[test]
fn a_verified_file_is_not_read_again_until_it_is_written_to() {
    let dir = TempDir::new().unwrap();
    let mut part = open_with_digest(dir.path());
    by(&mut part, "direct", 0..LENGTH);
    part.verify(LENGTH).unwrap();
    part.replace("fra", 0, &[!content(0..1)[0]]).unwrap();
    assert!(matches!(part.verify(LENGTH), Err(PartError::Digest { .. })));
    part.replace("direct", 0, &content(0..1)).unwrap();
    part.verify(LENGTH).unwrap();
    // The file is changed behind the part's back, which only another read would notice.
    let path = dir.path().join(".a.thalweg-part");
    fs::write(&path, vec![0; LENGTH as usize]).unwrap();
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), vec![0; LENGTH as usize]);
}

#[test]
fn the_journal_forgets_a_wrong_path_before_a_byte_is_replaced() {
    let dir = TempDir::new().unwrap();
    let mut part = open_with_digest(dir.path());
    by(&mut part, "direct", 0..5000);
    wrong(&mut part, "fra", 5000..6000);
    by(&mut part, "sin", 6000..7000);
    part.checkpoint().unwrap();
    by(&mut part, "fra", 10_000..12_000);
    part.checkpoint().unwrap();
    part.replace("direct", 5500, &content(5500..5600)).unwrap();
    let left = [(0..5000, "direct".to_owned()), (6000..7000, "sin".to_owned())];
    assert_eq!(claimed(dir.path()), left, "at the moment of the replacement");
    by(&mut part, "fra", 20_000..21_000);
    part.checkpoint().unwrap();
    drop(part);
    let part = open_with_digest(dir.path());
    assert_eq!(of(&part, "direct"), [0..5000, 5500..5600]);
    assert_eq!(of(&part, "fra"), [], "what it delivered later is not believed either");
    assert_true(dir.path(), &part);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written, replaced and checkpointed: after a crash at any time no byte known to be wrong is left, and
    /// the digest of the whole is right in the end.
    #[test]
    fn a_crash_during_repair_leaves_no_wrong_byte(
        steps in proptest::collection::vec((0u64..40, 1u64..6, 0u8..4), 1..24),
    ) {
        let dir = TempDir::new().unwrap();
        let mut part = open_with_digest(dir.path());
        for (block, blocks, what) in steps {
            let range = block * 1000..(block + blocks).min(40) * 1000;
            match what {
                0 => by(&mut part, "direct", range),
                1 => wrong(&mut part, "fra", range),
                2 => part.checkpoint().unwrap(),
                _ => by(&mut part, "sin", range),
            }
        }
        let suspect = of(&part, "fra");
        for range in &suspect {
            part.replace("direct", range.start, &content(range.clone())).unwrap();
            prop_assert!(claimed(dir.path()).iter().all(|(_, by)| by != "fra"));
        }
        drop(part);
        let mut part = open_with_digest(dir.path());
        if !suspect.is_empty() {
            assert_true(dir.path(), &part);
            for gap in part.missing() {
                by(&mut part, "direct", gap);
            }
            part.verify(LENGTH).unwrap();
        }
    }
}

/// Opens a part with batches so small that a checkpoint is always running.
fn open_busy(dir: &Path) -> Part {
    let job = Job::begin(Kind::Get, String::new(), String::new());
    let batch = Batch { bytes: 1000, time: Duration::MAX };
    Part::open(&dir.join("a"), key_of(LENGTH, "\"1\"", vec![digest()]), job, batch).unwrap()
}

#[test]
fn checkpoints_in_the_background_keep_all_bytes_written_before() {
    let dir = TempDir::new().unwrap();
    let mut part = open_busy(dir.path());
    for start in (0..LENGTH - 1000).step_by(500) {
        by(&mut part, if start % 1000 == 0 { "direct" } else { "fra" }, start..start + 500);
    }
    drop(part);
    let part = open_busy(dir.path());
    assert!(part.resumed() >= LENGTH / 2, "{}", part.resumed());
    assert_true(dir.path(), &part);
}

#[test]
fn a_running_checkpoint_restores_nothing_that_was_removed() {
    let dir = TempDir::new().unwrap();
    let mut part = open_busy(dir.path());
    by(&mut part, "direct", 0..2000);
    part.discard().unwrap();
    assert!(names(dir.path()).is_empty());
    let mut part = open_busy(dir.path());
    wrong(&mut part, "fra", 0..2000);
    part.replace("direct", 500, &content(500..600)).unwrap();
    assert!(claimed(dir.path()).iter().all(|(_, by)| by != "fra"));
    by(&mut part, "direct", 2000..LENGTH);
    assert!(matches!(part.publish(LENGTH), Err(PartError::Digest { .. })));
    assert!(names(dir.path()).is_empty());
}
