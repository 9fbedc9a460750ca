//! Lists and reads, directly and by relays.

use crate::scene::{Node, file, introduce, list, names, the_file, three};
use thalweg_node::gather::RemoteError;
use thalweg_wire::object::{Failure, ReadRequest, Request};

/// Bytes that are not the same anywhere.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[tokio::test]
async fn a_file_is_listed_and_read_directly_and_by_relays() {
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
async fn reads_asked_for_ahead_come_in_their_order() {
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
async fn a_file_that_changed_is_refused_and_the_channel_goes_on() {
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
