//! Files that are stored at another node.

use crate::scene::{Node, introduce};
use bytes::Bytes;
use std::os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _};
use thalweg_files::{
    AcceptingDirectory, Limits,
    remote::{Remote, RemoteError},
};
use thalweg_units::ByteSize;
use thalweg_wire::object::{
    Delivery, DescribedEntry, Entry, Failure, FilePath, FileTime, Kind, Rules, Snapshot,
};

const MODIFIED: i64 = 1_234_567_890_123_456_789;

fn entry(path: &str, size: u64) -> Entry {
    let snapshot =
        Snapshot { device: 1, inode: 2, size, modified_ns: MODIFIED, changed_ns: MODIFIED };
    Entry {
        root: 0,
        path: FilePath::new(path.into()).unwrap(),
        kind: Kind::File { snapshot },
        mode: 0o4640,
        owner: 0,
        group: 0,
        modified: FileTime::from_nanos(MODIFIED),
        more: None,
    }
}

/// `n1`, which accepts files, `n2`, which sends, and a channel from it.
async fn pair(members: &[&str]) -> (Node, Node, Remote, Vec<u8>) {
    let (one, two) = (Node::start(1, members).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    let remote = two.open(&one, &[]).await;
    let into = one.inbox.as_os_str().as_bytes().to_vec();
    (one, two, remote, into)
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn refused<T: std::fmt::Debug>(result: Result<T, RemoteError>) -> Failure {
    match result {
        Err(RemoteError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_gets_its_name_when_all_its_parts_have_arrived() {
    let (one, two, mut remote, into) = pair(&["n2"]).await;
    let content = noise(5_000_000);
    let file = entry("new/dir/file", 5_000_000);
    let path = one.inbox.join("new/dir/file");
    let part = |from: usize, to: usize| Bytes::copy_from_slice(&content[from..to]);
    assert_eq!(remote.held(&into, &file).await.unwrap(), []);
    // The second part first, over another channel.
    let mut other = two.open(&one, &[]).await;
    other.store(&into, &file, 4_000_000, &content[4_000_000..]).await.unwrap();
    assert_eq!(remote.held(&into, &file).await.unwrap(), only(4_000_000..5_000_000));
    assert!(!path.exists());
    remote.ask_store(&into, &file, 0, part(0, 2_000_000)).await.unwrap();
    remote.ask_store(&into, &file, 2_000_000, part(2_000_000, 4_000_000)).await.unwrap();
    remote.receive_stored().await.unwrap();
    remote.receive_stored().await.unwrap();
    assert!(std::fs::read(&path).unwrap() == content);
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o640, "no bits that give somebody's rights");
    assert_eq!(found.mtime_nsec() + found.mtime() * 1_000_000_000, MODIFIED);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left");
    // Another call finds the file there.
    assert_eq!(remote.held(&into, &file).await.unwrap(), only(0..5_000_000));
    remote.store(&into, &file, 0, &content[..9]).await.unwrap();
}

#[tokio::test]
async fn an_empty_file_is_one_part_without_bytes() {
    let (one, _two, mut remote, into) = pair(&["*"]).await;
    remote.store(&into, &entry("empty", 0), 0, b"").await.unwrap();
    assert_eq!(std::fs::metadata(one.inbox.join("empty")).unwrap().len(), 0);
}

#[tokio::test]
async fn stored_parts_outlive_the_channel() {
    let (one, two, mut remote, into) = pair(&["*"]).await;
    let content = noise(100_000);
    let file = entry("file", 100_000);
    remote.store(&into, &file, 10_000, &content[10_000..60_000]).await.unwrap();
    remote.close().await;
    one.line("event=files").await;
    let mut remote = two.open(&one, &[]).await;
    // Its part is written out after the end of the channel.
    while remote.held(&into, &file).await.unwrap() != only(10_000..60_000) {
        tokio::task::yield_now().await;
    }
    remote.store(&into, &file, 0, &content[..10_000]).await.unwrap();
    remote.store(&into, &file, 60_000, &content[60_000..]).await.unwrap();
    assert!(std::fs::read(one.inbox.join("file")).unwrap() == content);
}

#[tokio::test]
async fn an_interrupted_file_continues_where_only_its_rest_fits() {
    let max_bytes = Some(ByteSize::from_bytes(1_300_000));
    let limits = Limits { max_bytes, max_entries: 1, ..Limits::default() };
    let accept = AcceptingDirectory { limits, ..AcceptingDirectory::default() };
    let (one, two) = (Node::accepting(1, accept).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    let into = one.inbox.as_os_str().as_bytes().to_vec();
    let (content, file) = (noise(1_000_000), entry("file", 1_000_000));
    let mut remote = two.open(&one, &[]).await;
    // A piece that is sent again takes no more space.
    for _ in 0..4 {
        remote.store(&into, &file, 0, &content[..500_000]).await.unwrap();
    }
    remote.close().await;
    one.line("event=files").await;
    let mut remote = two.open(&one, &[]).await;
    while remote.held(&into, &file).await.unwrap() != only(0..500_000) {
        tokio::task::yield_now().await;
    }
    remote.store(&into, &file, 500_000, &content[500_000..]).await.unwrap();
    assert!(std::fs::read(one.inbox.join("file")).unwrap() == content);
}

/// A lowered bound, or a tree that local programs made, must not prevent its updates.
#[tokio::test]
async fn directories_that_exist_may_be_deeper_than_new_ones() {
    let limits = Limits { max_depth: 2, ..Limits::default() };
    let accept = AcceptingDirectory { limits, ..AcceptingDirectory::default() };
    let (one, two) = (Node::accepting(1, accept).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    let into = one.inbox.as_os_str().as_bytes().to_vec();
    std::fs::create_dir_all(one.inbox.join("a/b/c")).unwrap();
    let mut remote = two.open(&one, &[]).await;
    remote.store(&into, &entry("a/b/c/f", 1), 0, b"1").await.unwrap();
    let put = async |remote: &mut Remote, path: &str| {
        let delivery = Delivery {
            into: into.clone(),
            rules: Rules::default(),
            entries: vec![DescribedEntry(entry(path, 1))],
            owners: Default::default(),
        };
        remote.ask_put(delivery, Bytes::from_static(b"1")).await.unwrap();
        remote
            .receive_delivery_result()
            .await
            .unwrap()
            .failures()
            .next()
            .map(|(_, why)| why.to_string())
    };
    assert_eq!(put(&mut remote, "a/b/c/g").await, None);
    let why = put(&mut remote, "a/b/c/d/h").await.unwrap();
    assert!(why.contains("4 directories deep, and 2 are allowed"), "{why}");
}

#[tokio::test]
async fn existing_files_are_not_replaced() {
    let (one, _two, mut remote, into) = pair(&["*"]).await;
    std::fs::write(one.inbox.join("file"), b"kept").unwrap();
    let why = refused(remote.store(&into, &entry("file", 4), 0, b"new!").await);
    assert!(why.to_string().contains("there already"), "{why}");
    assert_eq!(std::fs::read(one.inbox.join("file")).unwrap(), b"kept");
}

#[tokio::test]
async fn files_are_accepted_only_from_and_into_what_the_settings_name() {
    let (one, _two, mut remote, into) = pair(&["n7"]).await;
    let not_offered = |why: Failure| assert!(matches!(why, Failure::NotOffered(_)), "{why:?}");
    not_offered(refused(remote.store(&into, &entry("file", 1), 0, b"1").await));
    not_offered(refused(remote.held(&into, &entry("file", 1)).await));
    let (two, _three, mut remote, into) = pair(&["*"]).await;
    not_offered(refused(remote.store(b"/tmp", &entry("file", 1), 0, b"1").await));
    let data = two.data.as_os_str().as_bytes();
    not_offered(refused(remote.store(data, &entry("file", 1), 0, b"1").await));
    let up = [&into[..], b"/.."].concat();
    not_offered(refused(remote.store(&up, &entry("file", 1), 0, b"1").await));
    // Nor through a link that leads out of it.
    std::os::unix::fs::symlink(&two.data, two.inbox.join("link")).unwrap();
    let why = refused(remote.store(&into, &entry("link/file", 1), 0, b"1").await);
    assert!(why.to_string().contains("irectory") || why.to_string().contains("link"), "{why}");
    let why = refused(remote.store(&into, &entry(".a.thalweg-part", 1), 0, b"1").await);
    assert!(why.to_string().contains("name"), "{why}");
    assert_eq!(std::fs::read_dir(&two.data).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&one.inbox).unwrap().count(), 0);
    // The channel continues after all of that.
    remote.store(&into, &entry("file", 1), 0, b"1").await.unwrap();
}

/// One range; clippy takes an array of one range for a mistake.
fn only(range: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
    std::iter::once(range).collect()
}

/// A small request must not create thousands of directories, and no member may fill the disk.
#[tokio::test]
async fn deliveries_are_bounded_by_depth_entries_and_bytes() {
    let limits = Limits {
        max_bytes: Some(ByteSize::from_bytes(3_000_000)),
        max_entries: 6,
        max_depth: 4,
        ..Limits::default()
    };
    let accept = AcceptingDirectory { limits, remove: true, ..AcceptingDirectory::default() };
    let (one, two) = (Node::accepting(1, accept).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    let mut remote = two.open(&one, &[]).await;
    let into = one.inbox.as_os_str().as_bytes().to_vec();
    let why = async |remote: &mut Remote, path: &str, size: u64| {
        let sent = noise(size.min(1_000_000) as usize);
        match refused(remote.store(&into, &entry(path, size), 0, &sent).await) {
            Failure::System(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let deep = why(&mut remote, &("d/".repeat(2040) + "f"), 5).await;
    assert!(deep.contains("2040 directories deep, and 4 are allowed (`max_depth`)"), "{deep}");
    assert!(deep.contains(one.inbox.to_str().unwrap()), "{deep}");
    let large = why(&mut remote, "large", 3_000_001).await;
    assert!(large.contains("`max_bytes`"), "{large}");
    assert_eq!(std::fs::read_dir(&one.inbox).unwrap().count(), 0, "nothing was made");
    remote.store(&into, &entry("a/b/c/d/e", 5), 0, &noise(5)).await.unwrap();
    remote.store(&into, &entry("f", 5), 0, &noise(5)).await.unwrap();
    let many = why(&mut remote, "g", 5).await;
    assert!(many.contains("6 files and directories, and 6 are allowed (`max_entries`)"), "{many}");
    assert!(many.contains("the stored data is kept"), "{many}");
    // Earlier content stays.
    remote.store(&into, &entry("f", 5), 0, &noise(5)).await.unwrap();
    assert!(!one.inbox.join("g").exists());
}
