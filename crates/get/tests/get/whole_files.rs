//! Tests of servers that always send the whole file.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{Reply, Server, Step, Version},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_base::job::Event;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

async fn ignores_ranges(version: &Version, spoil: fn(&mut Reply)) -> Server {
    let bytes = version.bytes.clone();
    Server::start(version, move |_, reply| {
        reply.whole(bytes.clone());
        spoil(reply);
    })
    .await
}

#[tokio::test]
async fn a_server_that_ignores_ranges_delivers_the_file_with_its_first_answer() {
    let version = Version::new(1, LENGTH);
    let server = ignores_ranges(&version, |_| {}).await;
    let relay = Directed::start(server.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), ["direct"]);
    assert!(server.asks().iter().all(|a| a.is_probe()), "its first answer was the file");
}

#[tokio::test]
async fn chunks_without_a_length_end_at_the_last_chunk() {
    let version = Version::new(1, LENGTH);
    let server = ignores_ranges(&version, |reply| reply.unset("content-length")).await;
    Trial::new(&server, &[]).gets(&version).await;
}

/// The server generates the file while sending it. curl waits too.
#[tokio::test]
async fn a_server_that_pauses_in_the_middle_is_waited_for() {
    let version = Version::new(1, LENGTH);
    let bytes = version.bytes.clone();
    let server = Server::start(&version, move |_, reply| {
        reply.whole(bytes.clone());
        reply.unset("content-length");
        let pause = tokio::time::sleep(Duration::from_millis(300));
        let (first, rest) = (bytes.slice(..500_000), bytes.slice(500_000..));
        reply.body = [Step::Data(first), Step::Pause(Box::pin(pause)), Step::Data(rest)].into();
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.selection.stall = Duration::from_millis(20);
    trial.gets(&version).await;
    assert_eq!(server.asks().len(), 1, "it is not begun anew");
}

/// curl can fetch it too: one answer suffices.
#[tokio::test]
async fn a_link_that_answers_only_once_is_fetched_over_one_path() {
    for ranges in [Some("bytes"), None, Some("none")] {
        let version = Version::new(1, LENGTH);
        let used = AtomicBool::new(false);
        let server = Server::start(&version, move |_, reply| {
            if let Some(ranges) = ranges {
                reply.set("accept-ranges", ranges);
            }
            if used.swap(true, Ordering::SeqCst) {
                reply.status(410);
            }
        })
        .await;
        Trial::new(&server, &[]).gets(&version).await;
        assert_eq!(server.asks().len(), 1, "{ranges:?}");
    }
}

#[tokio::test]
async fn a_broken_answer_is_continued_unless_the_server_refuses_ranges() {
    for (ranges, restarts) in [("bytes", 0), ("none", 1)] {
        let version = Version::new(1, LENGTH);
        let broke = AtomicBool::new(false);
        let server = Server::start(&version, move |_, reply| {
            reply.set("accept-ranges", ranges);
            if !broke.swap(true, Ordering::SeqCst) {
                reply.after_bytes(500_000, Step::Cut);
            }
        })
        .await;
        let trial = Trial::new(&server, &[]);
        trial.gets(&version).await;
        assert_eq!((trial.restarts(), server.asks().len()), (restarts, 2), "{ranges}");
    }
}

/// The server states a version and has no ranges: dropping the answer would mean starting over.
#[tokio::test]
async fn a_server_with_unknown_range_support_is_waited_for_as_long_as_one_without_ranges() {
    let version = Version::new(1, LENGTH);
    let bytes = version.bytes.clone();
    let asks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asks);
    let server = Server::start(&version, move |_, reply| {
        reply.whole(bytes.clone());
        reply.set("etag", "\"v1\"");
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        // Longer than three stall times.
        let pause = tokio::time::sleep(Duration::from_millis(400));
        let (first, rest) = (bytes.slice(..500_000), bytes.slice(500_000..));
        reply.body = [Step::Data(first), Step::Pause(Box::pin(pause)), Step::Data(rest)].into();
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.selection.stall = Duration::from_millis(50);
    trial.gets(&version).await;
    assert_eq!((trial.restarts(), trial.why_dropped("direct")), (0, None));
    assert_eq!(asks.load(Ordering::SeqCst), 2, "the same was requested beside it once, in vain");
}

#[tokio::test]
async fn answers_that_always_break_off_leave_no_file() {
    let version = Version::new(1, LENGTH);
    let with_length = |reply: &mut Reply| reply.after_bytes(500_000, Step::Cut);
    let chunked = |reply: &mut Reply| {
        reply.unset("content-length");
        reply.after_bytes(500_000, Step::Cut);
    };
    for spoil in [with_length, chunked] {
        let server = ignores_ranges(&version, spoil).await;
        let trial = Trial::new(&server, &[]);
        trial.fails().await;
        assert!(trial.files().is_empty(), "{:?}", trial.files());
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_requested_again() {
    let version = Version::new(1, LENGTH);
    let (bytes, broke) = (version.bytes.clone(), AtomicBool::new(false));
    let server = Server::start(&version, move |_, reply| {
        reply.whole(bytes.clone());
        if !broke.swap(true, Ordering::SeqCst) {
            reply.after_bytes(500_000, Step::Cut);
        }
    })
    .await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_compressed_answer_is_saved_as_received_and_reported() {
    let version = Version::new(1, LENGTH);
    let server = ignores_ranges(&version, |reply| reply.set("content-encoding", "gzip")).await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    let says = |e: &Event| matches!(e, Event::Note { text } if text.contains("compressed (gzip)"));
    assert!(trial.told().iter().any(says));
}

#[tokio::test]
async fn a_whole_file_from_one_relay_alone_needs_a_digest() {
    let version = Version::new(1, LENGTH);
    let server = ignores_ranges(&version, |_| {}).await;
    let relay = Directed::start(server.address, End::Never).await;
    let dead = Server::honest(&version).await.url();
    let message = Trial::of(&dead, &[relay.address]).fails().await;
    assert!(message.contains("nothing confirms"), "{message}");
    let mut trial = Trial::of(&dead, &[relay.address]);
    let digest = format!("blake3:{}", blake3::hash(&version.bytes));
    trial.request.digests = vec![digest.parse().unwrap()];
    trial.gets(&version).await;
}

/// Answers every connection with `answer` and closes it.
async fn raw(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/file.bin", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            _ = tcp.read(&mut [0; 4096]).await;
            _ = tcp.write_all(answer).await;
        }
    });
    url
}

#[tokio::test]
async fn an_answer_without_an_end_mark_ends_with_the_connection_unless_it_was_relayed() {
    let url = raw(b"HTTP/1.0 200 OK\r\n\r\nhalf a fi").await;
    let trial = Trial::of(&url, &[]);
    assert_eq!(trial.run().await.unwrap().length.as_bytes(), 9);
    let says = |e: &Event| matches!(e, Event::Chosen { reason, .. } if reason.contains("the end of the connection"));
    assert!(trial.told().iter().any(says));
    let server = url.trim_start_matches("http://").trim_end_matches("/file.bin").parse().unwrap();
    let relay = Directed::start(server, End::Never).await;
    let message = Trial::of(&url, &[relay.address]).only(relay.address).fails().await;
    assert!(message.contains("does not mark its end"), "{message}");
}

#[tokio::test]
async fn an_unsupported_transfer_coding_is_refused() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nbyte\r\n0\r\n\r\n"[..],
        b"HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: gzip, chunked\r\n\
          Content-Range: bytes 0-3/4\r\n\r\n4\r\nbyte\r\n0\r\n\r\n",
    ] {
        let message = Trial::of(&raw(answer).await, &[]).fails().await;
        assert!(message.contains("gzip, chunked"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_an_error() {
    for answer in
        [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"", b"HTTP/1.1 206 OK\r\ncontent-length: -4\r\n\r\n"]
    {
        Trial::of(&raw(answer).await, &[]).fails().await;
    }
}
