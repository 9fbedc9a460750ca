//! Which repair symbols a receiver sends that holds the object.

use crate::{
    members::{key, name},
    parents::ways,
    ring_liars::{Liar, read},
    scene::{PATIENCE, Scene},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use thalweg_cast::source::{Event, Forwarding};
use thalweg_fountain::Geometry;
use thalweg_net::channel::{Channel, Protocol};
use thalweg_paths::estimates::Estimates;
use thalweg_units::WallTime;
use thalweg_wire::{
    Signed,
    cast::{
        Answer, CastId, ChildMessage, FRAME_HEAD, Frame, MAX_ANSWER, Opening, ParentMessage, Pass,
        ServiceMode, SymbolHead, decode, encode,
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const LENGTH: usize = 9 << 20;

/// n1 serves n3 and n2 serves n4: n1 and n2 are neighbours, whose repair symbols differ.
const RATES: &str = "from,to,rate\nn0,n1,90 Mbit/s\nn0,n2,80 Mbit/s\nn1,n3,40 Mbit/s\n\
    n2,n4,40 Mbit/s\n";

/// A child that is silent for two minutes is disconnected.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// How many symbols of the first block the child claims to lack.
const NEED: u32 = 20;

/// What a child received: a symbol, without its bytes, or a message.
type Received = Arc<Mutex<Vec<Result<SymbolHead, ParentMessage>>>>;

/// A child of a node, played by this test in the name of n3. It reads all the time, because a child that reads nothing
/// for long is disconnected, and sends a sign of life now and then.
struct Child {
    outgoing: mpsc::Sender<Vec<ChildMessage>>,
    received: Received,
    _tasks: JoinSet<()>,
}

impl Child {
    /// Sends its first messages before it receives anything.
    async fn begin<S>(mut channel: Channel<S>, cast: CastId) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let pass = Pass { cast, to: name(3), expiry: WallTime::from_unix_nanos(u64::MAX) };
        let pass = Signed::sign(pass, &key(100)).encode();
        channel
            .write_all(&encode(&Opening::Hello { cast, pass, want: ServiceMode::Stream }))
            .await
            .unwrap();
        channel.flush().await.unwrap();
        let answer = read::<Answer>(&mut channel, MAX_ANSWER).await.unwrap();
        assert_eq!(answer, Answer::Accepted { open: false });
        let (reader, writer) = split(channel);
        let ((outgoing, messages), received) = (mpsc::channel(1), Received::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(send_messages(writer, messages));
        tasks.spawn(receive_messages(reader, Arc::clone(&received)));
        outgoing
            .send(vec![ChildMessage::RepairPage(0), ChildMessage::Request(Vec::new())])
            .await
            .unwrap();
        Self { outgoing, received, _tasks: tasks }
    }

    fn has_sheet(&self) -> bool {
        let is_sheet = |one: &_| matches!(one, Err(ParentMessage::RepairPage { block: 0, .. }));
        self.received.lock().unwrap().iter().any(is_sheet)
    }

    /// The repair symbols of the first block that come when it lacks some.
    async fn repairs(&mut self, geometry: &Geometry) -> BTreeSet<u32> {
        let runs = vec![(0, u64::from(3 * NEED))];
        self.outgoing
            .send(vec![ChildMessage::Missing { block: 0, need: NEED, runs }])
            .await
            .unwrap();
        let began = Instant::now();
        loop {
            let esis = self.repairs_so_far(geometry);
            if esis.len() >= NEED as usize {
                return esis;
            }
            assert!(began.elapsed() < PATIENCE, "of {NEED} repair symbols {esis:?} came");
            tokio::task::yield_now().await;
        }
    }

    /// The repair symbols of the first block so far; none came twice.
    fn repairs_so_far(&self, geometry: &Geometry) -> BTreeSet<u32> {
        let first = geometry.source_symbols_of(0);
        let received = self.received.lock().unwrap();
        let heads = received.iter().filter_map(|one| one.as_ref().ok());
        let of_first = heads.filter(|head| head.block == 0 && head.esi >= first);
        let mut esis = BTreeSet::new();
        of_first.for_each(|head| assert!(esis.insert(head.esi), "{} came twice", head.esi));
        esis
    }
}

async fn send_messages(
    mut writer: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Vec<ChildMessage>>,
) {
    loop {
        let outgoing = match timeout(SIGN_OF_LIFE, messages.recv()).await {
            Ok(Some(outgoing)) => outgoing,
            Ok(None) => return,
            Err(_) => vec![ChildMessage::Request(Vec::new())],
        };
        let encoded: Vec<u8> = outgoing.iter().flat_map(encode).collect();
        writer.write_all(&encoded).await.unwrap();
        writer.flush().await.unwrap();
    }
}

async fn receive_messages(mut reader: impl AsyncRead + Unpin, received: Received) {
    loop {
        let mut head = [0; FRAME_HEAD];
        reader.read_exact(&mut head).await.unwrap();
        let (frame, length) = match Frame::decode(head).unwrap() {
            Frame::Symbol(head) => (Some(head), head.length as usize),
            Frame::Message(length) => (None, length),
        };
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await.unwrap();
        let one = frame.ok_or_else(|| decode(&body).unwrap());
        received.lock().unwrap().push(one);
    }
}

async fn until(scene: &Scene, what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < PATIENCE, "{:?}", scene.events.all());
        tokio::task::yield_now().await;
    }
}

fn cast_id(all: &[Event]) -> CastId {
    let id = all.iter().find_map(|event| match event {
        Event::Started { cast, .. } => cast.parse().ok(),
        _ => None,
    });
    id.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_with_the_object_make_repair_symbols_that_no_neighbour_makes() {
    let mut scene = Scene::new(4).await;
    let content = scene.file("image", LENGTH);
    for n in [2, 3] {
        scene.nodes[n].serve_as(Arc::new(Liar::silent())).await;
    }
    let ways = ways(&scene, &[(0, 1, 1_000_000), (0, 2, 1_000_000)]).await;
    let mut request = scene.request("image");
    request.estimates = Estimates::parse(RATES).unwrap();
    request.forwarding = Forwarding { by_rings: true, ..Forwarding::default() };
    let stop = CancellationToken::new();
    let casting = tokio::spawn(scene.cast_until(request, stop.clone()));
    let mut children = Vec::new();
    for n in [1, 2] {
        scene.nodes[usize::from(n) - 1].holds(0).await;
        let channel = scene.dialer(3).channel(&name(n), &[], Protocol::Cast).await.unwrap();
        let child = Child::begin(channel, cast_id(&scene.events.all())).await;
        // The sheet comes from the source, through n1 or n2, and is kept there.
        until(&scene, || child.has_sheet()).await;
        children.push(child);
    }
    ways.values().for_each(|way| way.set(100_000_000));
    let has_come = |event: &&Event| matches!(event, Event::Received { .. });
    until(&scene, || scene.events.all().iter().filter(has_come).count() == 2).await;
    let geometry = Geometry::for_length(content.len() as u64).unwrap();
    let first = geometry.source_symbols_of(0);
    let mut all: Vec<BTreeSet<u32>> = Vec::new();
    for child in &mut children {
        let esis = child.repairs(&geometry).await;
        assert!(esis.iter().all(|esi| *esi < first + geometry.repair_symbols()), "{esis:?}");
        all.push(esis);
    }
    assert!(all[0].is_disjoint(&all[1]), "{all:?}");
    stop.cancel();
    casting.await.unwrap().unwrap();
}
