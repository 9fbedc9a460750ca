//! Nodes `n0`, `n1`, … with streams in one process, and programs of their hosts.

use crate::members::{
    ANYWHERE, config, dialer, key, member, membership, name, nothing, served, signed,
};
use bytes::Bytes;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_base::log::Log;
use thalweg_media::{Frame, FrameClass};
use thalweg_mesh::{
    Membership, OracleClient,
    member_dialer::MemberDialer,
    service::{ApiService, MemberService},
};
use thalweg_node::daemon::{Daemon, Services, bind_local};
use thalweg_stream::{
    Settings, Streams,
    local::{self, Publisher, ReceivedItem, Subscriber},
};
use thalweg_wire::{
    mesh::{Member, Name, Role, Roster},
    stream::leg::{ParentMessage, PublishRequest, SubscribeRequest, Track},
};
use tokio::{net::TcpSocket, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// The timeout of all waits, enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node.
pub struct Node {
    pub streams: Streams,
    pub address: SocketAddr,
    dir: TempDir,
    membership: Membership,
    tasks: JoinSet<()>,
    end: CancellationToken,
}

impl Node {
    /// The socket for the host's programs.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("stream.sock")
    }

    /// The report of its only stream.
    pub fn stream(&self) -> serde_json::Value {
        self.streams.report()["streams"][0].clone()
    }

    /// A dialler in the name of member `n`.
    pub fn dialer(&self, n: u8) -> MemberDialer {
        dialer(n, &key(n), &self.membership)
    }

    /// Stops the node without notice.
    pub async fn kill(&mut self) {
        self.end.cancel();
        self.streams.end();
        self.tasks.shutdown().await;
    }

    /// Stops the node and the connections that it serves.
    pub async fn stop(&mut self) {
        self.end.cancel();
        // The other tasks do not end by themselves.
        self.tasks.join_next().await;
        self.kill().await;
    }

    /// Waits until its report fulfils the condition.
    pub async fn soon(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) {
        let began = Instant::now();
        loop {
            let report = self.streams.report();
            if is(&report) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {report}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A member with the tag `viewer`.
fn viewer(n: u8, at: std::net::SocketAddr) -> Member {
    Member { tags: ["viewer".parse().unwrap()].into(), ..member(n, Some(at), &[Role::Relay]) }
}

/// Starts nodes with a common roster of members with the tag `viewer`; `set` adjusts the settings of each number.
pub async fn nodes(count: u8, set: impl Fn(u8, &mut Settings)) -> Vec<Node> {
    let (ports, at) = ports(count);
    let members = (0..count).map(|n| viewer(n, at[usize::from(n)])).collect();
    let roster = signed(1, members);
    let mut all = Vec::new();
    for n in 0..count {
        let membership = membership();
        membership.offer(&roster).unwrap();
        let mut settings =
            Settings { subscribe: vec!["*".parse().unwrap()], ..Settings::default() };
        set(n, &mut settings);
        all.push(node(n, at[usize::from(n)], membership, settings, None).await);
    }
    drop(ports);
    all
}

/// Free ports, which nobody else gets while the sockets are there.
pub fn ports(count: u8) -> (Vec<TcpSocket>, Vec<SocketAddr>) {
    let mut ports = Vec::new();
    for _ in 0..count {
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind(ANYWHERE).unwrap();
        ports.push(port);
    }
    let at = ports.iter().map(|port| port.local_addr().unwrap()).collect();
    (ports, at)
}

/// Starts a node, with an oracle if there is one.
pub async fn node(
    n: u8,
    at: SocketAddr,
    membership: Membership,
    settings: Settings,
    oracle: Option<Arc<dyn ApiService>>,
) -> Node {
    let dir = TempDir::new().unwrap();
    let streams = Streams::new(settings, dialer(n, &key(n), &membership), Log::to_queue().0);
    let stream = Some(Arc::new(streams.clone()) as Arc<dyn MemberService>);
    let served = served(n, &membership, Services { stream, oracle, ..nothing() });
    let daemon = Daemon::bind(config(at, dir.path()), served).await.unwrap();
    let end = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stop = end.clone();
    tasks.spawn(async move {
        daemon.run(stop.clone().cancelled_owned(), stop.cancelled_owned()).await;
    });
    let listener = bind_local(&dir.path().join("stream.sock")).unwrap();
    tasks.spawn(local::serve(streams.clone(), listener));
    Node { streams, address: at, dir, membership, tasks, end }
}

impl Node {
    pub fn roster(&self) -> Arc<Roster> {
        self.membership.current().unwrap()
    }

    /// Has the node report to this oracle and follow its plan.
    pub fn follow(&mut self, oracle: OracleClient) {
        self.tasks.spawn(self.streams.clone().follow_oracle(oracle));
    }

    /// Offers the node another roster.
    pub fn offer(&self, roster: &[u8]) {
        self.membership.offer(roster).unwrap();
    }
}

pub fn stream() -> Name {
    "stage".parse().unwrap()
}

pub fn publish_request() -> PublishRequest {
    let tracks = vec![Track { label: "test".to_owned(), rates: [0; 5] }];
    PublishRequest { stream: stream(), tracks, latency_ms: 30_000 }
}

/// A request for all frames with a long deadline, from this node if given.
pub fn subscribe_request(from: Option<u8>) -> SubscribeRequest {
    SubscribeRequest {
        latency_ms: 30_000,
        from: from.map(name),
        ..SubscribeRequest::for_stream(stream())
    }
}

/// The frame at this place in groups of Table 2's frames: I BB P BB P BB P BB P BB.
pub fn frame(place: u64) -> Frame {
    let (class, bytes) = match place % 15 {
        0 => (FrameClass::Key, 13_500),
        n if n % 3 == 0 => (FrameClass::Reference, 7625),
        _ => (FrameClass::Disposable, 2850),
    };
    let mut content = vec![0; bytes];
    content[..8].copy_from_slice(&place.to_be_bytes());
    let time = Duration::from_millis(place * 33);
    Frame { track: 0, class, time, bytes: Bytes::from(content) }
}

/// The place of a received frame.
pub fn place(frame: &Frame) -> u64 {
    u64::from_be_bytes(frame.bytes[..8].try_into().unwrap())
}

pub async fn publisher(node: &Node) -> Publisher {
    Publisher::begin(&node.socket(), publish_request()).await.unwrap()
}

pub async fn subscriber(node: &Node, request: SubscribeRequest) -> Subscriber {
    Subscriber::begin(&node.socket(), request).await.unwrap()
}

/// Receives the next frame, and the loss notices before it.
pub async fn next(
    subscriber: &mut Subscriber,
) -> (Frame, Vec<thalweg_wire::stream::leg::LostFrame>) {
    let mut missing = Vec::new();
    loop {
        let coming = tokio::time::timeout(PATIENCE, subscriber.next()).await.expect("in time");
        match coming.unwrap() {
            ReceivedItem::Frame(_, frame) => return (frame, missing),
            ReceivedItem::Message(ParentMessage::Lost(lost)) => missing.extend(lost),
            ReceivedItem::Message(ParentMessage::End(why)) => panic!("it ended: {why}"),
            ReceivedItem::Message(_) => {}
        }
    }
}
