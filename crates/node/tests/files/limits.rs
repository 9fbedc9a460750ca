//! Bounds: channels at a time, and sizes of messages.

use crate::scene::{Node, introduce, list, the_file};
use thalweg_files::remote::RemoteError;
use thalweg_net::{Stream, channel::Channel, channel::Protocol};
use thalweg_wire::object::{self, FileRef, ListRequest, Request, TransferHash};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Creates a sparse file of two terabytes: it takes no space, and hashing it takes half an hour.
fn put_hole(node: &Node, name: &str) {
    node.put(name, b"");
    let file = std::fs::File::options().write(true).open(node.data.join(name)).unwrap();
    file.set_len(1 << 41).unwrap();
}

/// Opens a channel on which the test sends raw bytes.
async fn raw(from: &Node, to: &Node) -> Channel<Stream> {
    let name = crate::scene::name(to.n);
    from.dialer().channel(&name, &[], Protocol::Object).await.unwrap()
}

#[tokio::test]
async fn a_channel_beyond_the_limit_waits_until_a_place_is_free() {
    let (one, two) = (Node::limited(1, &["*"], 1).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    one.put("file", b"1");
    let mut first = two.open(&one, &[]).await;
    let file = the_file(&mut first, &one.root("/file")).await;
    let mut second = two.open(&one, &[]).await;
    let mut got = Vec::new();
    {
        let mut read = std::pin::pin!(second.read_all(vec![file], &mut got));
        // The second channel sends its request, and gets nothing as long as the first has the place.
        assert!(futures_util::poll!(&mut read).is_pending());
        first.close().await;
        read.await.unwrap()[0].as_ref().unwrap();
    }
    assert_eq!(got, b"1");
    one.line("requests=1 failed=0").await;
}

#[tokio::test]
async fn a_message_longer_than_allowed_ends_the_channel() {
    let (one, two) = (Node::start(1, &["*"]).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    one.put("file", b"1");
    let mut remote = two.open(&one, &[]).await;
    let file = the_file(&mut remote, &one.root("/file")).await;
    let many: Vec<FileRef> = vec![file; 100_000];
    let ended = async {
        remote.ask(&Request::ReadAll(many)).await?;
        remote.receive_all(&[0; 100_000], &mut Vec::new()).await
    };
    assert!(matches!(ended.await, Err(RemoteError::Lost { .. })));
    let line = one.line("event=files").await;
    assert!(line.contains("longer than"), "{line}");
    // Others are served as before.
    let (entries, _) = list(&mut two.open(&one, &[]).await, &[&one.root("/file")], &[]).await;
    assert_eq!(entries.len(), 1);
}

#[tokio::test]
async fn no_pattern_is_compiled_without_read_rights() {
    let (one, two) = (Node::start(1, &["n1"]).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    // More patterns than the limit allows; a member who may list is told so.
    let exclude = vec!["*a"; 1001];
    let (_, failures) = list(&mut two.open(&one, &[]).await, &[&one.root("")], &exclude).await;
    assert!(failures[0].1.contains("does not offer"), "{failures:?}");
    let mut remote = one.open(&one, &[]).await;
    let exclude = exclude.into_iter().map(|e| e.as_bytes().to_vec()).collect();
    let request = ListRequest { roots: vec![one.root("")], exclude };
    let why = remote.list(request, |_| {}).await.unwrap_err();
    assert!(why.to_string().contains("more than 1000"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hashing_ends_when_the_peer_has_left() {
    let (one, two) = (Node::start(1, &["*"]).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    put_hole(&one, "file");
    let file = the_file(&mut two.open(&one, &[]).await, &one.root("/file")).await;
    one.line("event=files").await;
    let mut channel = raw(&two, &one).await;
    channel.write_all(&object::encode(&Request::Check(vec![file; 2000]))).await.unwrap();
    channel.flush().await.unwrap();
    drop(channel);
    // The session and its hashing end, so another member gets a turn.
    assert!(one.line("event=files").await.contains("requests=1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_hash_does_not_keep_another_member_s_short_one_waiting() {
    let (one, two) = (Node::start(1, &["*"]).await, Node::start(2, &[]).await);
    let three = Node::start(3, &[]).await;
    introduce(&[&one, &two, &three]);
    put_hole(&one, "long");
    one.put("short", b"short");
    let long = the_file(&mut two.open(&one, &[]).await, &one.root("/long")).await;
    let mut busy = Vec::new();
    for _ in 0..8 {
        let mut channel = raw(&two, &one).await;
        channel.write_all(&object::encode(&Request::Check(vec![long.clone()]))).await.unwrap();
        channel.flush().await.unwrap();
        busy.push(channel);
    }
    let mut remote = three.open(&one, &[]).await;
    let short = the_file(&mut remote, &one.root("/short")).await;
    let hashes = remote.check(vec![short; 3]).await.unwrap();
    let right = TransferHash(*blake3::hash(b"short").as_bytes());
    assert!(hashes.iter().all(|hash| hash.as_ref().is_ok_and(|hash| *hash == right)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_place_is_read_and_refused() {
    let (one, two) = (Node::limited(1, &["*"], 1).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    one.put("file", b"1");
    let file = the_file(&mut two.open(&one, &[]).await, &one.root("/file")).await;
    one.line("event=files").await;
    // One request works in the only place and four wait for it; a further one is read, discarded and refused.
    let mut busy = Vec::new();
    let request = object::encode(&Request::Check(vec![file; 10_000]));
    assert!(request.len() > 500_000);
    for _ in 0..5 {
        let mut channel = raw(&two, &one).await;
        channel.write_all(&request[..100]).await.unwrap();
        channel.flush().await.unwrap();
        busy.push(channel);
    }
    let mut channel = raw(&two, &one).await;
    channel.write_all(&request).await.unwrap();
    channel.flush().await.unwrap();
    let mut head = [0; 4];
    channel.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; object::length(head, object::MAX_REPLY).unwrap()];
    channel.read_exact(&mut body).await.unwrap();
    let said: object::Reply = object::decode(&body).unwrap();
    assert_eq!(said, object::Reply::Failed(object::Failure::Busy));
}
