//! Large objects in ranges over several paths.

use crate::{
    races::{FixedChooser, direct, relay, way},
    scene::{Scene, field, status},
    server::{Server, Step, Version},
    slow_path::SlowPath,
};
use std::sync::Arc;
use tokio::task::JoinSet;

const LENGTH: usize = 3_000_000;

struct Stage {
    scene: Scene,
    server: Server,
    version: Version,
    _tasks: JoinSet<()>,
}

impl Stage {
    async fn new(
        spoil: impl Fn(&crate::server::Ask, &mut crate::server::Reply) + Send + Sync + 'static,
    ) -> Self {
        let version = Version::new(1, LENGTH);
        let server = Server::start(&version, move |ask, reply| {
            reply.set("accept-ranges", "bytes");
            reply.set("x-origin", "its own");
            spoil(ask, reply);
        })
        .await;
        let mut tasks = JoinSet::new();
        let at = relay(&mut tasks).await;
        let ways = vec![direct(0), way("fra", at, 600_000)];
        let scene =
            Scene::choosing(Arc::new(FixedChooser { ways, ..FixedChooser::default() })).await;
        Self { scene, server, version, _tasks: tasks }
    }

    fn get(&self, lines: &str) -> String {
        format!("GET {} HTTP/1.1\r\nHost: x\r\n{lines}\r\n", self.server.url())
    }

    /// Asks, checks status, length and bytes, and returns the head.
    async fn gets(&self, lines: &str) -> String {
        let mut program = self.scene.program().await;
        program.send(self.get(lines)).await;
        let (head, content) = program.answer().await;
        assert_eq!(status(&head), 200, "{head}");
        assert!(content == self.version.bytes, "other bytes");
        head
    }

    fn asked_for_ranges(&self) -> usize {
        self.server.asks().iter().filter(|ask| !ask.ranges.is_empty()).count()
    }
}

#[tokio::test]
async fn a_large_object_comes_over_two_paths_under_the_origins_own_head() {
    let stage = Stage::new(|_, _| {}).await;
    let head = stage.gets("Cookie: a=1\r\nUser-Agent: me/1\r\nX-Own: 2\r\n").await;
    assert_eq!(field(&head, "x-origin"), Some("its own"));
    assert_eq!(field(&head, "etag"), Some("\"v1\""));
    assert_eq!(field(&head, "content-range"), None);
    assert!(stage.asked_for_ranges() >= 2, "{}", stage.asked_for_ranges());
    for ask in stage.server.asks() {
        assert_eq!(ask.fields["cookie"], "a=1");
        assert_eq!(
            (&ask.fields["user-agent"], &ask.fields["x-own"]),
            (&"me/1".parse().unwrap(), &"2".parse().unwrap())
        );
        assert!(ask.fields.get("host").is_some_and(|h| h == &stage.server.address.to_string()));
        if !ask.ranges.is_empty() {
            assert_eq!(ask.fields["if-match"], "\"v1\"");
        }
    }
    let (summary, _) = stage.scene.end().await;
    assert_eq!((summary.requests, summary.split), (1, 1));
}

#[tokio::test]
async fn other_requests_are_answered_by_one_path() {
    for lines in ["If-None-Match: \"other\"\r\n", "If-Modified-Since: then\r\n"] {
        let stage = Stage::new(|_, _| {}).await;
        stage.gets(lines).await;
        assert_eq!(stage.asked_for_ranges(), 0, "{lines}");
    }
    let stage = Stage::new(|_, _| {}).await;
    let mut program = stage.scene.program().await;
    program.send(stage.get("Range: bytes=5-2000004\r\n")).await;
    let (head, content) = program.answer().await;
    assert_eq!(status(&head), 206);
    assert!(content == stage.version.bytes[5..2_000_005]);
    assert_eq!(stage.server.asks().len(), 1);
}

#[tokio::test]
async fn without_a_proof_of_the_version_one_path_is_used() {
    let weak = |_: &crate::server::Ask, reply: &mut crate::server::Reply| {
        reply.set("etag", "W/\"v1\"");
    };
    let none = |_: &crate::server::Ask, reply: &mut crate::server::Reply| reply.unset("etag");
    let silent =
        |_: &crate::server::Ask, reply: &mut crate::server::Reply| reply.unset("accept-ranges");
    for spoil in [weak, none, silent] {
        let stage = Stage::new(spoil).await;
        stage.gets("").await;
        assert_eq!(stage.asked_for_ranges(), 0);
    }
}

#[tokio::test]
async fn an_object_that_changes_between_head_and_ranges_comes_whole() {
    let stage = Stage::new(|_, _| {}).await;
    // The second request, the first for a range, finds another version.
    let newer = Version::new(2, LENGTH);
    stage.server.publish_at(1, newer.clone());
    let mut program = stage.scene.program().await;
    program.send(stage.get("")).await;
    let (head, content) = program.answer().await;
    assert_eq!((status(&head), field(&head, "etag")), (200, Some("\"v2\"")));
    assert!(content == newer.bytes, "head and content of two versions");
}

#[tokio::test]
async fn a_server_that_ignores_the_condition_does_not_mix_two_versions() {
    let newer = Version::new(2, LENGTH);
    let bytes = newer.bytes.clone();
    let stage = Stage::new(move |ask, reply| {
        if let (412, [range]) = (reply.status, &ask.ranges[..]) {
            reply.status = 206;
            let part = bytes.slice(range.start as usize..range.end as usize);
            let of = format!("bytes {}-{}/{LENGTH}", range.start, range.end - 1);
            reply.set("content-range", &of);
            reply.set("content-length", &part.len().to_string());
            reply.set("etag", "\"v2\"");
            reply.body = [Step::Data(part)].into();
        }
    })
    .await;
    stage.server.publish_at(1, newer.clone());
    let mut program = stage.scene.program().await;
    program.send(stage.get("")).await;
    let (head, content) = program.answer().await;
    assert_eq!((status(&head), field(&head, "etag")), (200, Some("\"v2\"")));
    assert!(content == newer.bytes, "head and content of two versions");
}

#[tokio::test]
async fn ranges_that_the_server_then_refuses_come_whole() {
    let stage = Stage::new(|ask, reply| {
        if !ask.ranges.is_empty() {
            reply.status(403);
        }
    })
    .await;
    stage.gets("").await;
}

#[tokio::test]
async fn a_program_that_leaves_ends_the_fetching() {
    let stage = Stage::new(|ask, reply| {
        if ask.ranges.iter().any(|r| r.end > 1_000_000) {
            reply.after_bytes(10_000, Step::Hang);
        }
    })
    .await;
    let mut program = stage.scene.program().await;
    program.send(stage.get("")).await;
    program.head().await;
    program.take(100_000).await;
    drop(program);
    // If it were still fetching, it would be cut.
    let (summary, _) = stage.scene.end().await;
    assert_eq!((summary.split, summary.cut), (1, 0));
}

/// The most bytes that a relay of 48 Mbit/s brought while the program got none, for an object of this length that the
/// direct path brings at 5 Mbit/s.
async fn longest_silence(length: usize) -> u64 {
    let version = Version::new(1, length);
    let ranges = |_: &crate::server::Ask, reply: &mut crate::server::Reply| {
        reply.set("accept-ranges", "bytes");
    };
    let server = Server::start(&version, ranges).await;
    let slow = SlowPath::direct(server.address, 600_000).await;
    let fast = SlowPath::relay(server.address, 6_000_000).await;
    let ways = vec![direct(0), way("fra", fast.at, 600_000)];
    let scene = Scene::choosing(Arc::new(FixedChooser { ways, ..FixedChooser::default() })).await;
    let mut program = scene.program().await;
    program.send(format!("GET http://{}/big HTTP/1.1\r\nHost: x\r\n\r\n", slow.at)).await;
    assert_eq!(status(&program.head().await), 200);
    let (mut at, mut before, mut longest) = (0, fast.moved(), 0);
    while at < length {
        let piece = program.take((length - at).min(16 << 10)).await;
        assert!(piece == version.bytes[at..at + piece.len()], "other bytes at {at}");
        let moved = fast.moved();
        longest = longest.max(moved - before);
        (at, before) = (at + piece.len(), moved);
    }
    assert_eq!(scene.end().await.0.split, 1);
    longest
}

#[tokio::test]
async fn the_stream_goes_on_when_a_faster_path_takes_over() {
    let length = 24_000_000;
    // Half of the object lies ahead: if the relay's part of it were fetched first, the program would get nothing
    // meanwhile.
    let silence = longest_silence(length).await;
    assert!(silence < length as u64 / 6, "the relay brought {silence} bytes for later");
}
