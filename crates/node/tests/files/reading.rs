//! Lists and reads, directly and through relays.

use crate::scene::{Node, file, introduce, list, names, the_file, three};
use futures_util::future::BoxFuture;
use thalweg_files::{
    land::LandError,
    remote::{RemoteError, Sink},
};
use thalweg_wire::object::{Failure, ReadRequest, Request};

/// Bytes without repetitions.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[tokio::test]
async fn a_file_is_listed_and_read_directly_and_through_relays() {
    let [one, two, three] = three().await;
    let four = Node::start(4, &[]).await;
    introduce(&[&one, &two, &three, &four]);
    let content = noise(1_000_003);
    one.put("set/file", &content);
    for via in [&[][..], &[&two], &[&two, &three]] {
        let mut remote = four.open(&one, via).await;
        let (root, mut got) = (one.root("/set"), Vec::new());
        let (entries, failures) = list(&mut remote, &[&root], &[]).await;
        assert_eq!((names(&entries), failures), (vec![String::new(), "file".to_owned()], vec![]));
        let file = file(&root, &entries[1]);
        let all = ReadRequest { file: file.clone(), from: 0, bytes: content.len() as u64 };
        let check = remote.read(all, &mut got).await.unwrap();
        assert!(got == content && check.0 == *blake3::hash(&content).as_bytes());
        // A part from the middle.
        got.clear();
        remote.read(ReadRequest { file, from: 999_999, bytes: 4 }, &mut got).await.unwrap();
        assert_eq!(got, content[999_999..]);
    }
}

#[tokio::test]
async fn pipelined_reads_are_answered_in_order() {
    let [one, _two, three] = three().await;
    let content = noise(3_000_000);
    one.put("file", &content);
    let mut remote = three.open(&one, &[]).await;
    let file = the_file(&mut remote, &one.root("/file")).await;
    let parts: Vec<u64> = (0..30).map(|i| i * 100_000).collect();
    for from in &parts {
        let part = ReadRequest { file: file.clone(), from: *from, bytes: 100_000 };
        remote.ask(&Request::Read(part)).await.unwrap();
    }
    let mut got = Vec::new();
    for from in parts {
        remote.receive(from, &mut got).await.unwrap();
    }
    assert!(got == content);
    assert_eq!(remote.outstanding(), 0);
}

#[tokio::test]
async fn a_file_that_changed_is_refused_and_the_channel_continues() {
    let [one, _two, three] = three().await;
    one.put("file", b"before");
    one.put("other", b"other");
    let mut remote = three.open(&one, &[]).await;
    let file = the_file(&mut remote, &one.root("/file")).await;
    let other = the_file(&mut remote, &one.root("/other")).await;
    one.put("file", b"after!");
    let mut got = Vec::new();
    let read = ReadRequest { file: file.clone(), from: 0, bytes: 6 };
    let failed = remote.read(read, &mut got).await.unwrap_err();
    assert!(
        matches!(&failed, RemoteError::Refused { why: Failure::Changed, .. }) && failed.is_final()
    );
    let results = remote.read_all(vec![file, other], &mut got).await.unwrap();
    assert!(results[0].is_err() && results[1].is_ok() && got == b"other", "{results:?}");
}

/// Truncates the file as soon as bytes of it arrive.
struct Cutting(std::path::PathBuf, u64);

impl Sink for Cutting {
    fn take(
        &mut self,
        _: usize,
        _: u64,
        bytes: bytes::Bytes,
    ) -> BoxFuture<'_, Result<(), LandError>> {
        self.1 += bytes.len() as u64;
        std::fs::File::options().write(true).open(&self.0).unwrap().set_len(1000).unwrap();
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_file_truncated_while_it_is_read_is_padded_and_not_trusted() {
    let [one, _two, three] = three().await;
    let length = 40_000_000;
    one.put("file", &noise(length as usize));
    one.put("other", b"other");
    let mut remote = three.open(&one, &[]).await;
    let file = the_file(&mut remote, &one.root("/file")).await;
    let other = the_file(&mut remote, &one.root("/other")).await;
    let mut cutting = Cutting(one.data.join("file"), 0);
    let read = ReadRequest { file, from: 0, bytes: length };
    let failed = remote.read(read, &mut cutting).await.unwrap_err();
    assert!(matches!(&failed, RemoteError::Refused { why: Failure::Changed, .. }), "{failed}");
    assert_eq!(cutting.1, length);
    // The channel is in the right state.
    let mut got = Vec::new();
    remote.read_all(vec![other], &mut got).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(got, b"other");
}

/// Has no room for one file of several.
struct Picky(Vec<usize>);

impl Sink for Picky {
    fn take(&mut self, i: usize, _: u64, _: bytes::Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        self.0.push(i);
        Box::pin(async move {
            match i {
                1 => Err(LandError::File { file: "b".into(), why: "no".into() }),
                3 => Err(LandError::All {
                    why: "full".into(),
                    kind: std::io::ErrorKind::StorageFull,
                }),
                _ => Ok(()),
            }
        })
    }
}

#[tokio::test]
async fn a_failed_write_costs_its_file_and_a_full_disk_the_channel() {
    let [one, _two, three] = three().await;
    let mut remote = three.open(&one, &[]).await;
    let mut files = Vec::new();
    for name in ["a", "b", "c", "d"] {
        one.put(name, &noise(500_000));
        files.push(the_file(&mut remote, &one.root(&format!("/{name}"))).await);
    }
    let mut picky = Picky(Vec::new());
    let kept = remote.read_all(files[..3].to_vec(), &mut picky).await.unwrap();
    assert!(kept[0].is_ok() && kept[2].is_ok(), "{kept:?}");
    assert!(matches!(kept[1], Err(RemoteError::Land(LandError::File { .. }))));
    picky.0.retain(|i| *i == 1);
    assert_eq!(picky.0, [1], "it gets no more of what it cannot keep");
    let full = remote.read_all(files.clone(), &mut Picky(Vec::new())).await.unwrap_err();
    assert!(matches!(&full, RemoteError::Land(LandError::All { .. })) && !full.leaves_channel());
    assert!(!remote.is_usable());
    let after = remote.read_all(files, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(after, RemoteError::Lost { .. }), "{after}");
}

#[tokio::test]
async fn only_regular_files_are_opened() {
    let [one, _two, three] = three().await;
    one.put("file", b"1");
    rustix::fs::mkfifoat(rustix::fs::CWD, one.data.join("fifo"), 0o600.into()).unwrap();
    let mut remote = three.open(&one, &[]).await;
    let mut file = the_file(&mut remote, &one.root("/file")).await;
    file.root = one.root("/fifo");
    let said = remote.read_all(vec![file.clone()], &mut Vec::new()).await.unwrap();
    assert!(said[0].as_ref().unwrap_err().to_string().contains("not a regular file"), "{said:?}");
    // Nothing is beyond the end, and the file is not the listed one.
    file.root = one.root("/file");
    let beyond = ReadRequest { file, from: 1, bytes: u64::MAX };
    assert!(remote.read(beyond, &mut Vec::new()).await.is_err());
}

#[tokio::test]
async fn hashes_are_sent_without_the_bytes() {
    let [one, _two, three] = three().await;
    let content = noise(3_000_000);
    one.put("a", &content);
    one.put("b", b"");
    let mut remote = three.open(&one, &[]).await;
    let a = the_file(&mut remote, &one.root("/a")).await;
    let b = the_file(&mut remote, &one.root("/b")).await;
    let said = remote.check(vec![a, b]).await.unwrap();
    let of = |i: usize| said[i].as_ref().unwrap().0;
    assert_eq!((of(0), of(1)), (*blake3::hash(&content).as_bytes(), *blake3::hash(b"").as_bytes()));
}
