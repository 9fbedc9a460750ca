//! Bounds: channels at a time, sizes of messages.

use crate::scene::{Node, introduce, list, the_file};
use thalweg_node::gather::RemoteError;
use thalweg_wire::object::{Failure, FileRef, Request};

#[tokio::test]
async fn beyond_the_most_channels_all_is_busy_until_one_is_free() {
    let (one, two) = (Node::limited(1, &["*"], 1).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    one.put("file", b"1");
    let mut first = two.open(&one, &[]).await;
    let file = the_file(&mut first, &one.root("/file")).await;
    let mut second = two.open(&one, &[]).await;
    let busy = second.read_all(vec![file.clone()], &mut Vec::new()).await.unwrap();
    assert!(matches!(busy[0], Err(RemoteError::Refused { why: Failure::Busy, .. })), "{busy:?}");
    drop(second);
    first.close().await;
    one.line("requests=1 failed=0").await;
    let mut third = two.open(&one, &[]).await;
    let mut got = Vec::new();
    third.read_all(vec![file], &mut got).await.unwrap()[0].as_ref().unwrap();
    assert_eq!(got, b"1");
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
