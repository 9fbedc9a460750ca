//! Tests of publication alone and in groups, parts without names, and taking over other programs' files.

use super::*;
use std::os::unix::fs::MetadataExt;

fn digest_of(length: u64) -> Digest {
    format!("blake3:{}", blake3::hash(&content(0..length))).parse().unwrap()
}

fn open_named(dir: &Path, name: &str) -> Part {
    let job = Job::begin(Kind::Get, "http://www.example/a".into(), name.into());
    Part::open(&dir.join(name), key(), job, never()).unwrap()
}

#[tokio::test]
async fn many_parts_are_published_together_and_each_gets_its_own_result() {
    let dir = TempDir::new().unwrap();
    let publisher = Publisher::default();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..150 {
        let mut part = open_named(dir.path(), &format!("f{i:03}"));
        // Every tenth lacks a byte.
        fill(&mut part, u64::from(i % 10 == 0)..LENGTH);
        part.checkpoint().unwrap();
        let publisher = publisher.clone();
        tasks.spawn(async move { (i, publisher.publish(part, LENGTH).await) });
    }
    while let Some(done) = tasks.join_next().await {
        let (i, published) = done.unwrap();
        if i % 10 == 0 {
            assert!(matches!(published, Err(PartError::Incomplete { .. })), "{i}");
        } else {
            assert_eq!(fs::read(published.unwrap()).unwrap(), content(0..LENGTH), "{i}");
        }
    }
    let published = names(dir.path()).iter().filter(|n| !n.starts_with('.')).count();
    assert_eq!((published, names(dir.path()).len()), (135, 135 + 15 * 2));
}

#[tokio::test]
async fn a_part_that_cannot_be_renamed_fails_alone_and_is_kept() {
    let dir = TempDir::new().unwrap();
    let publisher = Publisher::default();
    let mut parts: Vec<Part> = ["a", "b", "c", "d"].map(|n| open_named(dir.path(), n)).into();
    parts.iter_mut().for_each(|part| fill(part, 0..LENGTH));
    fs::create_dir(dir.path().join("b")).unwrap();
    let done = parts.into_iter().map(|part| {
        let publisher = publisher.clone();
        tokio::spawn(async move { publisher.publish(part, LENGTH).await })
    });
    let done: Vec<_> = done.collect();
    for (task, name) in done.into_iter().zip(["a", "b", "c", "d"]) {
        match task.await.unwrap() {
            Ok(path) => assert_eq!(path, dir.path().join(name)),
            Err(error) => assert_eq!(name, "b", "{error}"),
        }
    }
    fs::remove_dir(dir.path().join("b")).unwrap();
    assert_eq!(open_named(dir.path(), "b").resumed(), LENGTH, "nothing has to come again");
}

#[test]
fn a_part_whose_sync_failed_is_not_published_by_a_later_one() {
    let dir = TempDir::new().unwrap();
    let mut part = open(dir.path());
    fill(&mut part, 0..LENGTH);
    let failed = part.sync(|_| Err(std::io::Error::other("injected"))).unwrap_err();
    assert!(failed.to_string().contains("injected"));
    assert!(matches!(part.checkpoint(), Err(PartError::Unsynced(_))));
    assert!(matches!(part.publish(LENGTH), Err(PartError::Unsynced(_))));
    assert!(!dir.path().join("a").exists());
}

#[tokio::test]
async fn a_part_without_a_name_can_be_read_while_it_arrives_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let job = Job::begin(Kind::Get, String::new(), String::new());
    let key = key_of(LENGTH, "\"1\"", vec![digest_of(LENGTH)]);
    let part = Part::unnamed(Some(dir.path()), key, job).unwrap();
    let reader = part.reader().unwrap();
    let writer = Writer::spawn(part, vec!["direct".into()]).unwrap();
    let mut prefix = writer.prefix();
    let piece = |r: Range<u64>| (r.start, bytes::Bytes::from(content(r)));
    let (at, last) = piece(30_000..LENGTH);
    writer.write(PathId(0), at, last).await.unwrap();
    for start in [0, 10_000, 20_000] {
        let (at, data) = piece(start..start + 10_000);
        writer.write(PathId(0), at, data).await.unwrap();
    }
    let mut read = Vec::new();
    while (read.len() as u64) < LENGTH {
        let end = *prefix.wait_for(|end| *end > read.len() as u64).await.unwrap();
        read.extend(reader.read(read.len() as u64..end).unwrap());
    }
    assert_eq!(read, content(0..LENGTH));
    let mut part = writer.finish().await.0.unwrap();
    part.verify(LENGTH).unwrap();
    assert!(names(dir.path()).is_empty(), "it has no name");
    let refused = part.publish(LENGTH).unwrap_err();
    assert!(refused.to_string().contains("no name"), "{refused}");
    assert!(names(dir.path()).is_empty());
}

/// 40 MiB, so that the digests are computed while the file arrives.
#[test]
fn a_long_file_is_hashed_while_it_arrives_in_any_order() {
    const LONG: u64 = 40 << 20;
    let dir = TempDir::new().unwrap();
    let (mut whole, mut sha) = (blake3::Hasher::new(), <sha2::Sha256 as sha2::Digest>::new());
    let piece = |i: u64| vec![(i % 251) as u8; 1 << 20];
    for i in 0..40 {
        whole.update(&piece(i));
        sha2::Digest::update(&mut sha, piece(i));
    }
    let sha: String = sha2::Digest::finalize(sha).iter().map(|b| format!("{b:02x}")).collect();
    let digests = [format!("blake3:{}", whole.finalize()), format!("sha256:{sha}")];
    let digests = digests.iter().map(|d| d.parse().unwrap()).collect();
    let mut part = open_key(dir.path(), key_of(LONG, "\"1\"", digests)).unwrap();
    for i in (0..20).flat_map(|i| [20 + i, i]).filter(|i| *i != 11) {
        part.write_from("direct", i << 20, &piece(i)).unwrap();
    }
    part.write_from("fra", 11 << 20, &piece(12)).unwrap();
    assert!(matches!(part.verify(LONG), Err(PartError::Digest { .. })));
    part.replace("direct", 11 << 20, &piece(11)).unwrap();
    part.publish(LONG).unwrap();
}

#[test]
fn a_file_of_another_program_is_continued_if_a_digest_is_given() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), content(0..15_000)).unwrap();
    let key = || key_of(LENGTH, "\"1\"", vec![digest_of(LENGTH)]);
    let mut part = open_key(dir.path(), key()).unwrap();
    assert_eq!(part.adopt().unwrap(), 15_000);
    assert_eq!(part.missing(), [15_000..LENGTH]);
    fill(&mut part, 15_000..20_000);
    part.checkpoint().unwrap();
    drop(part);
    // After a crash the journal contains only bytes from the network; the others are adopted again.
    let mut part = open_key(dir.path(), key()).unwrap();
    assert_eq!((part.resumed(), part.adopt().unwrap()), (5000, 15_000));
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..15_000), "untouched");
    fill(&mut part, 20_000..LENGTH);
    part.publish(LENGTH).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content(0..LENGTH));
}

#[test]
fn wrong_bytes_of_another_program_are_detected() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), vec![0; 15_000]).unwrap();
    let mut part = open_key(dir.path(), key_of(LENGTH, "\"1\"", vec![digest_of(LENGTH)])).unwrap();
    part.adopt().unwrap();
    fill(&mut part, 15_000..LENGTH);
    assert!(matches!(part.verify(LENGTH), Err(PartError::Digest { .. })));
    for doubtful in part.delivered_by(ADOPTED).iter() {
        part.replace("direct", doubtful.start, &content(doubtful.clone())).unwrap();
    }
    part.publish(LENGTH).unwrap();
}

#[test]
fn without_a_digest_nothing_is_adopted() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), content(0..15_000)).unwrap();
    let refused = open(dir.path()).adopt().unwrap_err();
    assert!(refused.to_string().contains("--sha256"), "{refused}");
    let none = open_key(dir.path(), key_of(1000, "\"1\"", vec![digest_of(1000)])).unwrap().adopt();
    assert_eq!(none.unwrap(), 0, "longer than the object");
}

#[test]
fn a_published_file_is_recognized_until_it_changes() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    assert!(!is_published_as(&target, &key()).unwrap(), "nothing is there");
    let mut part = open(dir.path());
    fill(&mut part, 0..LENGTH);
    part.publish(LENGTH).unwrap();
    if rustix::fs::getxattr(&target, "user.thalweg.source", &mut [0u8; 4096]).is_err() {
        return eprintln!("SKIPPED: {} has no extended attributes", dir.path().display());
    }
    let other = |etag| key_of(LENGTH, etag, Vec::new());
    assert!(is_published_as(&target, &key()).unwrap());
    assert!(!is_published_as(&target, &other("\"2\"")).unwrap());
    let PartKey::Url { length, validator, digests, .. } = key() else { unreachable!() };
    let url = "http://user:secret@www.example/a".to_owned();
    let with_user = PartKey::Url { url, length, validator, digests };
    assert!(is_published_as(&target, &with_user).unwrap(), "credentials name no object");
    let file = fs::OpenOptions::new().write(true).open(&target).unwrap();
    let later = file.metadata().unwrap().modified().unwrap() + Duration::from_secs(1);
    file.set_modified(later).unwrap();
    assert!(!is_published_as(&target, &key()).unwrap(), "somebody wrote to it");
}

#[test]
fn a_digest_identifies_a_file_whoever_made_it() {
    let dir = TempDir::new().unwrap();
    let target = dir.path().join("a");
    fs::write(&target, content(0..LENGTH)).unwrap();
    let key = key_of(LENGTH, "\"1\"", vec![digest_of(LENGTH)]);
    assert!(is_published_as(&target, &key).unwrap());
    assert_eq!(fs::metadata(&target).unwrap().len(), LENGTH);
    fs::write(&target, vec![0; LENGTH as usize]).unwrap();
    assert!(!is_published_as(&target, &key).unwrap());
    assert!(!is_published_as(dir.path(), &key).unwrap());
}

#[test]
fn secrets_of_a_url_are_not_stored_with_the_file() {
    let dir = TempDir::new().unwrap();
    let url = "http://user:secret@www.example/a?signature=secret".to_owned();
    let validator = Some(Validator::Etag("\"1\"".into()));
    let key = PartKey::Url { url, length: Some(LENGTH), validator, digests: Vec::new() };
    let mut part = open_key(dir.path(), key.clone()).unwrap();
    fill(&mut part, 0..LENGTH);
    let target = part.publish(LENGTH).unwrap();
    assert!(rustix::fs::getxattr(&target, "user.thalweg.source", &mut [0u8; 4096]).is_err());
    assert!(!is_published_as(&target, &key).unwrap());
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777 & !0o644, 0);
}
