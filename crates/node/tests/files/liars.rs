//! Nodes that send unrequested, endless or excessively long answers.

use crate::scene::{Node, Script, introduce, name};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_gather::{
    Event, EventSink,
    run::{Request, SourceRequest, gather},
};
use thalweg_wire::object::{
    Entry, Failure, FilePath, FileRef, FileTime, Kind, ListRequest, MAX_WHY, ReadRequest, Reply,
    Snapshot, TransferHash, encode,
};
use tokio_util::sync::CancellationToken;

/// A node that sends these bytes, and a channel to it.
async fn liar(said: Vec<u8>) -> ([Node; 2], Remote) {
    let (one, two) = (Node::scripted(1, Script(said)).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    let remote = two.open(&one, &[]).await;
    ([one, two], remote)
}

fn part(bytes: u64) -> ReadRequest {
    let snapshot = Snapshot { device: 0, inode: 0, size: bytes, modified_ns: 0, changed_ns: 0 };
    let file = FileRef { root: b"/a".to_vec(), path: FilePath::new(Vec::new()).unwrap(), snapshot };
    ReadRequest { file, from: 0, bytes }
}

fn sent(bytes: &[u8]) -> Vec<u8> {
    let check = TransferHash(*blake3::hash(bytes).as_bytes());
    [encode(&Reply::Bytes(bytes.len() as u64)), bytes.to_vec(), encode(&Reply::Sent(check))]
        .concat()
}

fn lost<T: std::fmt::Debug>(ended: Result<T, RemoteError>) -> String {
    match ended {
        Err(why @ RemoteError::Lost { .. }) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bytes_that_were_not_requested_end_the_channel() {
    for said in [&b"12345"[..], b"1"] {
        let (_nodes, mut remote) = liar(sent(said)).await;
        let mut got = Vec::new();
        let why = lost(remote.read(part(3), &mut got).await);
        assert!(why.contains("node n1") && why.contains("3 were requested"), "{why}");
        assert!(got.is_empty() && !remote.is_usable());
        let (_nodes, mut remote) = liar([sent(b"123"), sent(said)].concat()).await;
        let why = lost(remote.read_parts(vec![part(3), part(3)], &mut got).await);
        assert!(why.contains("3 were requested") && got == b"123", "{why}");
        let (_nodes, mut remote) = liar(sent(said)).await;
        lost(remote.read_all(vec![part(3).file], &mut got).await);
    }
    let (_nodes, mut remote) = liar(sent(b"123")).await;
    let mut got = Vec::new();
    remote.read(part(3), &mut got).await.unwrap();
    assert_eq!(got, b"123");
}

#[tokio::test]
async fn a_node_that_only_claims_to_be_at_work_is_given_up() {
    let (_nodes, mut remote) = liar(encode(&Reply::Wait).repeat(100_000)).await;
    let why = lost(remote.check(vec![part(3).file]).await);
    assert!(why.contains("node n1") && why.contains("at work"), "{why}");
}

#[tokio::test]
async fn the_memory_of_a_listing_is_bounded() {
    let entry = Entry {
        root: 0,
        path: FilePath::new(vec![b'a'; 1000]).unwrap(),
        kind: Kind::Directory,
        mode: 0,
        owner: 0,
        group: 0,
        modified: FileTime::default(),
        more: None,
    };
    let some = encode(&Reply::Entries(vec![entry; 20]));
    let (_nodes, mut remote) = liar(some.repeat(100)).await;
    let request = ListRequest { roots: vec![b"/a".to_vec()], exclude: Vec::new() };
    let mut entries = 0;
    let why = lost(remote.list_within(request, 100_000, |part| entries += part.len()).await);
    assert!(why.contains("node n1") && why.contains("memory"), "{why}");
    assert!(entries > 0 && entries < 100, "{entries}");
}

#[tokio::test]
async fn only_the_beginning_of_a_long_reason_is_kept() {
    let long = Failure::System("x".repeat(1_000_000));
    let (_nodes, mut remote) = liar(encode(&Reply::Failed(long))).await;
    match remote.read(part(3), &mut Vec::new()).await {
        Err(RemoteError::Refused { why, .. }) => assert!(why.text_len() < MAX_WHY + 10),
        other => panic!("{other:?}"),
    }
}

/// Sources that were left out, and the reasons.
#[derive(Debug, Default)]
struct LeftOut(Mutex<Vec<(String, String)>>);

impl EventSink for LeftOut {
    fn event(&self, event: Event) {
        if let Event::SourceFailed { source, why } = event {
            self.0.lock().unwrap().push((source.to_string(), why));
        }
    }
}

#[tokio::test]
async fn a_source_with_an_endless_listing_is_left_out_and_the_rest_arrives() {
    let (honest, me) = (Node::start(1, &["*"]).await, Node::start(3, &[]).await);
    let at_work = encode(&Reply::Wait).repeat(3);
    let liar = Node::scripted(2, Script(at_work)).await;
    introduce(&[&honest, &liar, &me]);
    honest.put("a", b"abc");
    let asked = |n: u8, path: Vec<u8>| SourceRequest { node: name(n), paths: vec![path] };
    let sources = vec![asked(1, honest.root("/a")), asked(2, b"/a".to_vec())];
    let into = me.dir.path().join("into");
    let mut request = Request::new(sources, into.clone());
    request.listing_patience = Duration::from_millis(300);
    let left_out = Arc::new(LeftOut::default());
    let stop = CancellationToken::new();
    let totals = gather(request, me.dialer(), left_out.clone(), stop).await.unwrap();
    assert_eq!((totals.files, totals.failed_sources), (1, 1), "{totals:?}");
    assert_eq!(std::fs::read(into.join("n1/a")).unwrap(), b"abc");
    let left_out = left_out.0.lock().unwrap();
    let [(source, why)] = &left_out[..] else { panic!("{left_out:?}") };
    assert!(source == "n2" && why.contains("listed nothing new for 300ms"), "{why}");
}
