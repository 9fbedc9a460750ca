//! Bounds: channels at a time, sizes of messages.

use crate::scene::{Node, introduce, list, the_file};
use thalweg_files::remote::RemoteError;
use thalweg_wire::object::{FileRef, Request};

#[tokio::test]
async fn beyond_the_most_channels_one_waits_until_a_place_is_free() {
    let (one, two) = (Node::limited(1, &["*"], 1).await, Node::start(2, &[]).await);
    introduce(&[&one, &two]);
    one.put("file", b"1");
    let mut first = two.open(&one, &[]).await;
    let file = the_file(&mut first, &one.root("/file")).await;
    let mut second = two.open(&one, &[]).await;
    let mut got = Vec::new();
    {
        let mut read = std::pin::pin!(second.read_all(vec![file], &mut got));
        // It asks, and nothing comes as long as the first has the place.
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
