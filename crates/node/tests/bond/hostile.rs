//! Peers that violate the protocol: the bond ends with a reason, within bounded memory.

use crate::soon;
use bytes::Bytes;
use proptest::prelude::*;
use socket2::SockRef;
use std::sync::Arc;
use thalweg_bond::LinkId;
use thalweg_uplinks::bond::{Engine, LinkEnd, LinkIo, Memory, Settings};
use thalweg_wire::bond::{BondMessage, ChunkHead, FRAME_HEAD, Frame, MAX_MESSAGE, Refusal, Target};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};

/// The memory for all streams of these bonds.
const MEMORY: u64 = 64 << 20;

/// The most streams of a bond at a time.
const STREAMS: usize = 512;

/// The end that behaves well, and the connection of the one that does not.
struct Scene {
    far: Arc<Engine>,
    memory: Memory,
    tcp: TcpStream,
    running: JoinHandle<LinkEnd>,
}

impl Scene {
    async fn new(settings: Settings) -> Self {
        Self::within(settings, MEMORY).await
    }

    async fn within(settings: Settings, memory: u64) -> Self {
        let memory = Memory::new(memory);
        let far = Engine::within(settings, settings.first_window(), false, memory.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Unread bytes are soon noticed; if the buffer were set later, a window that was already announced would
        // shrink.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let dial = socket.connect(listener.local_addr().unwrap());
        let (tcp, served) = tokio::join!(dial, listener.accept());
        let (tcp, served) = (tcp.unwrap(), served.unwrap().0);
        SockRef::from(&served).set_send_buffer_size(4096).unwrap();
        let (link, runs) = (LinkIo::clear(served).unwrap(), Arc::clone(&far));
        let running = tokio::spawn(async move { runs.run_link(LinkId(0), link).await });
        Self { far, memory, tcp, running }
    }

    async fn send(&mut self, message: &BondMessage) {
        self.tcp.write_all(&Frame::encode_message(message)).await.unwrap();
    }

    /// Reads what has arrived.
    fn drain(&self) {
        while matches!(self.tcp.try_read(&mut [0; 4096]), Ok(1..)) {}
    }

    /// Waits for the reason why the bond ended.
    async fn ended(self) -> String {
        match soon(self.running).await.unwrap() {
            LinkEnd::Hostile(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn open(stream: u32) -> BondMessage {
    BondMessage::Open { stream, to: Target::Service("x".into()) }
}

fn acks(stream: u32, arrived: u64, ranges: Vec<(u64, u64)>) -> BondMessage {
    BondMessage::Acks { stream, arrived, limit: u64::MAX, ranges, ended: false }
}

fn chunk(stream: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u32;
    let mut frame = Frame::Chunk(ChunkHead { stream, offset, length }).encode().to_vec();
    frame.extend(bytes);
    frame
}

/// What the peer sends once stream 0 exists, and the reason for the end of the bond.
fn faults() -> Vec<(&'static str, Vec<u8>)> {
    let framed = |message: &BondMessage| Frame::encode_message(message);
    let ends = [framed(&BondMessage::End { stream: 0, at: 10 }), chunk(0, 5, &[0; 6])].concat();
    let two_ends = [10, 11].map(|at| framed(&BondMessage::End { stream: 0, at })).concat();
    let far_out = Frame::Chunk(ChunkHead { stream: 0, offset: u64::MAX, length: 1 }).encode();
    let long = Frame::Message(MAX_MESSAGE + 1).encode().to_vec();
    let garbled = [&Frame::Message(3).encode()[..], &[250, 1, 2]].concat();
    let crumbs = (0..1 << 14).flat_map(|n| chunk(0, 2 * n + 1, &[0])).collect();
    vec![
        ("stream 1 was never opened", chunk(1, 0, &[0])),
        ("stream 7 was never opened", framed(&acks(7, 0, vec![]))),
        ("too many streams", framed(&open(4 * STREAMS as u32))),
        ("too many streams", chunk(u32::MAX - 1, 0, &[0])),
        (
            "bytes up to 1 were acknowledged, but only bytes up to 0 were sent",
            framed(&acks(0, 1, vec![])),
        ),
        (
            "were acknowledged, but only bytes up to 0 were sent",
            framed(&acks(0, 0, vec![(1, u64::MAX)])),
        ),
        ("numbers are out of order", framed(&acks(0, 9, vec![(3, 4)]))),
        ("the limit is 262144", chunk(0, 262_144, &[0])),
        ("the stream ends at 10", ends),
        ("the stream ends at 10", two_ends),
        ("exceeds the maximum length of a stream", far_out.to_vec()),
        ("a chunk or message has an invalid length of 4097 bytes", long),
        ("neither a chunk nor a message", vec![7; FRAME_HEAD]),
        ("message", garbled),
        ("pieces", crumbs),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_violations_end_the_bond_and_are_named() {
    for (expected, bytes) in faults() {
        let mut scene = Scene::new(Settings::default()).await;
        scene.send(&open(0)).await;
        let (stream, _) = soon(scene.far.next()).await.unwrap();
        let mut stream = scene.far.accept(stream);
        // The connection may end before all of it is written.
        _ = scene.tcp.write_all(&bytes).await;
        let (far, memory) = (Arc::clone(&scene.far), scene.memory.clone());
        let why = scene.ended().await;
        assert!(why.contains(expected), "{expected}: {why}");
        let read = soon(stream.read(&mut [0; 10])).await.unwrap_err();
        assert!(read.to_string().contains(&why), "{expected}: {read}");
        assert!(soon(far.next()).await.is_none() && far.links().is_empty(), "{expected}");
        drop((stream, far));
        assert_eq!(memory.used(), 0, "{expected}: nothing is held any more");
    }
}

/// More streams than allowed of an honest end: each further one is refused, and the others continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_too_many_is_refused_alone() {
    let mut scene = Scene::within(Settings::default(), 1 << 30).await;
    let most = 2 * STREAMS as u32;
    for stream in (0..most + 200).step_by(2) {
        scene.send(&open(stream)).await;
    }
    let mut refused = Vec::new();
    while refused.len() < 100 {
        if let BondMessage::Refused { stream, why } = soon(next_message(&mut scene.tcp)).await {
            assert_eq!(why, Refusal::Busy);
            refused.push(stream);
        }
    }
    refused.sort_unstable();
    assert_eq!(refused, (most..most + 200).step_by(2).collect::<Vec<_>>());
    let (stream, _) = soon(scene.far.next()).await.unwrap();
    let mut stream = scene.far.accept(stream);
    scene.tcp.write_all(&chunk(0, 0, b"all right")).await.unwrap();
    let mut read = [0; 9];
    soon(stream.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"all right");
    let left = async {
        while scene.far.streams() > STREAMS {
            // Reports on a stream are processed when a message arrives.
            scene.send(&BondMessage::Ping(1)).await;
            tokio::task::yield_now().await;
        }
    };
    soon(left).await;
    assert_eq!(scene.far.streams(), STREAMS);
}

/// Each stream ends before the next one begins: any number of them leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn streams_without_end_are_forgotten_one_by_one() {
    let mut scene = Scene::new(Settings::default()).await;
    for stream in (0..6_000).step_by(2) {
        scene.send(&open(stream)).await;
        scene.send(&BondMessage::Reset { stream, why: "x".repeat(3000) }).await;
        if let Some((stream, _)) = soon(scene.far.next()).await {
            drop(scene.far.accept(stream));
        }
        scene.drain();
        assert!(scene.far.streams() <= STREAMS);
    }
    assert!(scene.memory.used() <= MEMORY);
    scene.send(&BondMessage::Bye).await;
    assert!(matches!(soon(scene.running).await.unwrap(), LinkEnd::Bye));
}

/// Streams that nobody reads, up to the bound of memory; one more is refused, and the bond continues.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_nobody_reads_stays_within_the_bound_of_memory() {
    let mut scene = Scene::new(Settings::default()).await;
    let mut all = Vec::new();
    let full = vec![0; 128 << 10];
    for n in 0..200 {
        scene.send(&open(2 * n)).await;
        if let Err(why) = scene.tcp.write_all(&chunk(2 * n, 0, &full)).await {
            panic!("stream {n}: {why}: {:?}; {}", scene.running.await, scene.far.describe());
        }
        scene.drain();
        // Refused streams are not offered.
        if 2 * n < 2 * 128 {
            let (stream, _) = soon(scene.far.next()).await.unwrap();
            all.push(scene.far.accept(stream));
        }
        assert!(scene.memory.used() <= MEMORY, "{} bytes", scene.memory.used());
    }
    assert_eq!(scene.memory.used(), MEMORY);
    let mut got = vec![1; full.len()];
    soon(all[7].read_exact(&mut got)).await.unwrap();
    assert!(got == full);
}

/// The peer asks for an answer again and again, and reads none.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_do_not_pile_up() {
    let mut scene = Scene::new(Settings::default()).await;
    for n in 0..200 {
        scene.send(&open(2 * n)).await;
        let (stream, _) = soon(scene.far.next()).await.unwrap();
        drop(scene.far.accept(stream));
        scene.send(&BondMessage::Reset { stream: 2 * n, why: "x".into() }).await;
    }
    let over = async {
        while scene.far.streams() > 0 {
            // Reports on a stream are processed when a message arrives.
            scene.send(&BondMessage::Ping(1)).await;
            scene.drain();
            tokio::task::yield_now().await;
        }
    };
    soon(over).await;
    const EACH: u64 = 40;
    for _ in 0..EACH {
        let all: Vec<u8> = (0..200).flat_map(|n| chunk(2 * n, 0, &[0])).collect();
        scene.tcp.write_all(&all).await.unwrap();
    }
    let taken = async {
        while scene.far.links()[0].received < 200 * EACH {
            tokio::task::yield_now().await;
        }
    };
    soon(taken).await;
    let account = scene.far.describe();
    let messages = account.split(", ").find_map(|part| part.strip_suffix(" messages of its own"));
    let messages: usize = messages.unwrap().parse().unwrap();
    assert!(messages <= 64, "{account}");
}

/// A peer that reads nothing cannot keep what a bond held that was broken off.
#[tokio::test(flavor = "multi_thread")]
async fn a_jammed_link_ends_with_its_bond() {
    let mut scene = Scene::new(Settings::default()).await;
    scene.send(&open(0)).await;
    let (stream, _) = soon(scene.far.next()).await.unwrap();
    let mut stream = scene.far.accept(stream);
    soon(stream.write_all(&[0; 200 << 10])).await.unwrap();
    let jams = async {
        // A chunk is longer than the buffers of both ends.
        while scene.far.links()[0].sent == 0 || !scene.far.describe().contains("writer at work") {
            tokio::task::yield_now().await;
        }
    };
    soon(jams).await;
    let Scene { far, memory, tcp, running } = scene;
    far.break_off("the member was revoked");
    drop((stream, far));
    soon(running).await.unwrap();
    assert_eq!(memory.used(), 0);
    drop(tcp);
}

/// The first message of a stream is repeated if a link breaks; the stream is passed on only once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_opened_twice_is_offered_once() {
    let mut scene = Scene::new(Settings::default()).await;
    scene.send(&open(0)).await;
    assert_eq!(soon(scene.far.next()).await.unwrap().0, 0);
    scene.send(&open(0)).await;
    scene.send(&open(2)).await;
    assert_eq!(soon(scene.far.next()).await.unwrap().0, 2);
}

/// The refusal of a stream was lost with its link: a peer that still asks gets it again.
#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_a_broken_stream_is_repeated_on_request() {
    let mut scene = Scene::new(Settings::default()).await;
    scene.send(&open(0)).await;
    let (stream, _) = soon(scene.far.next()).await.unwrap();
    scene.far.refuse(stream, thalweg_wire::bond::Refusal::Busy);
    assert!(matches!(
        soon(next_message(&mut scene.tcp)).await,
        BondMessage::Refused { stream: 0, .. }
    ));
    let over = async {
        while scene.far.streams() > 0 {
            // Reports on a stream are processed when a message arrives.
            scene.send(&BondMessage::Ping(1)).await;
            tokio::task::yield_now().await;
        }
    };
    soon(over).await;
    for again in [open(0), acks(0, 0, vec![])] {
        scene.send(&again).await;
        let heard = soon(next_message(&mut scene.tcp)).await;
        assert!(matches!(heard, BondMessage::Reset { stream: 0, .. }), "{again:?}: {heard:?}");
    }
}

/// The next message that is no answer to a ping.
async fn next_message(tcp: &mut TcpStream) -> BondMessage {
    loop {
        let mut head = [0; FRAME_HEAD];
        tcp.read_exact(&mut head).await.unwrap();
        let Ok(Frame::Message(length)) = Frame::decode(head) else { panic!("{head:?}") };
        let mut body = vec![0; length];
        tcp.read_exact(&mut body).await.unwrap();
        match thalweg_wire::object::decode(&body).unwrap() {
            BondMessage::Pong { .. } => {}
            message => return message,
        }
    }
}

fn any_message() -> impl Strategy<Value = BondMessage> {
    let stream = || prop_oneof![Just(0u32), Just(1), Just(2), 0u32..40, any::<u32>()];
    let number = || prop_oneof![0u64..10, 0u64..300_000, any::<u64>()];
    let ranges = prop::collection::vec((number(), number()), 0..4);
    prop_oneof![
        stream().prop_map(open),
        stream().prop_map(|stream| BondMessage::Opened { stream }),
        (stream(), number()).prop_map(|(stream, at)| BondMessage::End { stream, at }),
        (stream(), ".{0,9}").prop_map(|(stream, why)| BondMessage::Reset { stream, why }),
        (stream(), number(), number(), ranges, any::<bool>()).prop_map(
            |(stream, arrived, limit, ranges, ended)| BondMessage::Acks {
                stream,
                arrived,
                limit,
                ranges,
                ended
            }
        ),
        number().prop_map(BondMessage::Ping),
        (number(), number()).prop_map(|(token, received)| BondMessage::Pong { token, received }),
        (0u32..3).prop_map(|link| BondMessage::Gone { link }),
    ]
}

/// Messages, chunks, and bytes that are neither.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let at = prop_oneof![0u64..100, 0u64..300_000];
    prop_oneof![
        8 => any_message().prop_map(|message| Frame::encode_message(&message)),
        4 => (0u32..6, at, 1usize..3000).prop_map(|(s, at, length)| chunk(s, at, &vec![0; length])),
        1 => prop::collection::vec(any::<u8>(), FRAME_HEAD..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The values of failing frames are printed, with the seed.
    #[test]
    fn no_frames_make_an_end_panic_or_hold_more_than_it_may(
        frames in prop::collection::vec(any_frame(), 1..120),
    ) {
        tokio::runtime::Runtime::new().unwrap().block_on(bears(frames));
    }
}

impl Scene {
    /// Accepts the streams that the peer opens, writes something into each, and reads it to its end.
    fn serves(&self) -> JoinHandle<()> {
        let far = Arc::clone(&self.far);
        tokio::spawn(async move {
            while let Some((stream, _)) = far.next().await {
                let mut stream = far.accept(stream);
                tokio::spawn(async move {
                    _ = stream.write_all(&Bytes::from_static(&[7; 5000])).await;
                    _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                });
            }
        })
    }
}

async fn bears(frames: Vec<Vec<u8>>) {
    let scene = Scene::new(Settings::default()).await;
    let watching = Arc::clone(&scene.far);
    let watching = tokio::spawn(async move { watching.watch().await });
    let serving = scene.serves();
    let Scene { far, memory, tcp, running } = scene;
    let (mut read, mut write) = tcp.into_split();
    let reading = tokio::spawn(async move {
        _ = tokio::io::copy(&mut read, &mut tokio::io::sink()).await;
    });
    for frame in frames {
        if write.write_all(&frame).await.is_err() {
            break;
        }
        assert!(far.streams() <= STREAMS && memory.used() <= MEMORY);
    }
    drop(write);
    // In any case the link ends without a panic.
    soon(running).await.unwrap();
    far.break_off("the test is over");
    soon(async { tokio::join!(serving, watching, reading) }).await.0.unwrap();
}
