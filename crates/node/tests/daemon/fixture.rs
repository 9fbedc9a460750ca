//! A daemon in a mesh of three nodes, with an echo service in place of its relay and of its casts.

use futures_util::future::BoxFuture;
use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};
use tempfile::TempDir;
use thalweg_base::log::{Event, Log};
use thalweg_mesh::{
    Membership, MeshPeer,
    service::{Control, MemberService},
};
use thalweg_net::{
    PrivateKey,
    channel::{Channel, Connector, Protocol},
};
use thalweg_node::daemon::{
    Daemon, DaemonConfig, HandshakeLimits, LocalClient, NoDocuments, NoReload, Node, Services,
    Summary,
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{
        AddressesReply, AddressesRequest, ApiError, Member, RevokeReply, RevokeRequest, Role,
        Roster, StatusReply, TokenReply, TokenRequest,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

/// The key with this number.
pub fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

const MESH: u8 = 200;

/// A running daemon: node `n1` with key 1; `n2` and `n3` are the other members.
pub struct Fixture {
    pub at: SocketAddr,
    pub metrics: SocketAddr,
    pub key: NodeId,
    pub socket: PathBuf,
    pub membership: Membership,
    pub log: Receiver<Event>,
    stop: Option<oneshot::Sender<()>>,
    cut: Option<oneshot::Sender<()>>,
    running: JoinHandle<Summary>,
    _dir: TempDir,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::with(HandshakeLimits::default(), Duration::from_secs(60)).await
    }

    /// Starts it with this many simultaneous handshakes, each of which may be evicted at once.
    pub async fn with_limits(most: usize) -> Self {
        let limits = HandshakeLimits { total: most, per_source: most, grace: Duration::ZERO };
        Self::with(limits, Duration::from_secs(60)).await
    }

    pub async fn with(limits: HandshakeLimits, drain: Duration) -> Self {
        let dir = TempDir::new().unwrap();
        let membership = Membership::new(key(MESH).id(), None);
        membership.offer(&roster(1, &[1, 2, 3])).unwrap();
        let (log, queue) = Log::to_queue();
        let loopback = || "127.0.0.1:0".parse().unwrap();
        let config = DaemonConfig {
            riding: None,
            listen: vec![loopback()],
            handshake: Duration::from_secs(10),
            limits,
            drain,
            metrics: Some(loopback()),
            socket: dir.path().join("node.sock"),
            api: None,
            socks: None,
        };
        let node = Node {
            name: "n1".parse().unwrap(),
            key: key(1),
            membership: membership.clone(),
            services: Services {
                relay: Some(Arc::new(Echo)),
                oracle: None,
                measure: None,
                files: None,
                cast: Some(Arc::new(Echo)),
                bond: None,
                stream: None,
                doctor: None,
                probe: None,
                submit: None,
                reach: None,
            },
            control: Arc::new(FarOracle),
            jobs: None,
            documents: Arc::new(NoDocuments),
            settings: Arc::new(NoReload),
            registry: Default::default(),
            legs: None,
            reach: None,
            log,
        };
        let socket = config.socket.clone();
        let daemon = Daemon::bind(config, node).await.unwrap();
        let (at, metrics) = (daemon.local_addrs()[0], daemon.metrics_addr().unwrap());
        let ((stop, stopped), (cut, at_once)) = (oneshot::channel(), oneshot::channel());
        let running = daemon.run(async { _ = stopped.await }, async { _ = at_once.await });
        Self {
            at,
            metrics,
            key: key(1).id(),
            socket,
            membership,
            log: queue,
            stop: Some(stop),
            cut: Some(cut),
            running: tokio::spawn(running),
            _dir: dir,
        }
    }

    /// Opens a channel of the relay's protocol with this key.
    pub async fn relay_channel(&self, key: &PrivateKey) -> io::Result<Channel<TcpStream>> {
        self.channel(key, Protocol::Relay).await
    }

    /// Opens a channel of this protocol with this key.
    pub async fn channel(
        &self,
        key: &PrivateKey,
        protocol: Protocol,
    ) -> io::Result<Channel<TcpStream>> {
        let tcp = TcpStream::connect(self.at).await?;
        let connector = Connector::new(key)?;
        connector.connect(tcp, self.key, protocol).await.map_err(io::Error::other)
    }

    /// Gives the daemon a new roster with these members.
    pub fn publish(&self, version: u64, members: &[u8]) {
        self.membership.offer(&roster(version, members)).unwrap();
    }

    /// The page of metrics.
    pub async fn page(&self) -> String {
        let mut tcp = TcpStream::connect(self.metrics).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        tcp.write_all(request).await.unwrap();
        let mut text = String::new();
        tcp.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Reads the metrics until this line is there.
    pub async fn until(&self, line: &str) {
        let look = async {
            while !self.page().await.lines().any(|l| l == line) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), look).await.is_err() {
            panic!("no line `{line}` in:\n{}", self.page().await);
        }
    }

    pub async fn local(&self) -> LocalClient {
        LocalClient::find(&self.socket).await.unwrap()
    }

    /// Asks it to stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Asks it to stop at once.
    pub fn cut(&mut self) {
        self.cut.take().unwrap().send(()).unwrap();
    }

    /// Waits until it has ended, and returns its summary. The sender that cuts must not be dropped before.
    pub async fn ended(self) -> Summary {
        let Self { running, cut: _cut, stop: _stop, .. } = self;
        running.await.unwrap()
    }
}

fn roster(version: u64, members: &[u8]) -> Vec<u8> {
    let member = |n: &u8| Member {
        name: format!("n{n}").parse().unwrap(),
        node: Some(key(*n).id()),
        client: key(n + 100).id(),
        addresses: vec![format!("127.0.0.{n}:9").parse().unwrap()],
        roles: BTreeSet::from([Role::Client, Role::Relay]),
        tags: BTreeSet::new(),
    };
    let roster = Roster {
        version,
        not_before: WallTime::from_unix_nanos(0),
        // In the year 2100.
        expiry: WallTime::from_unix_nanos(4_102_444_800_000_000_000),
        members: members.iter().map(member).collect(),
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    Signed::sign(roster, &key(MESH)).encode()
}

/// Echoes all bytes until the peer ends or is revoked.
#[derive(Debug)]
struct Echo;

impl MemberService for Echo {
    fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        peer: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let echo = async {
                while let Ok(byte) = channel.read_u8().await {
                    if channel.write_u8(byte).await.is_err() || channel.flush().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { () = echo => {}, () = peer.revoked() => {} }
        })
    }

    fn report(&self) -> serde_json::Value {
        serde_json::json!({ "connections": 7 })
    }
}

/// An oracle that creates tokens, and knows nobody to revoke.
#[derive(Debug)]
struct FarOracle;

impl Control for FarOracle {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        let token = format!("token for {}", request.name.unwrap());
        Box::pin(async { Ok(TokenReply { token, expires: WallTime::from_unix_nanos(9) }) })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        let message = format!("no member is called {}", request.member);
        Box::pin(async { Err(ApiError { code: "unknown_member".into(), message }) })
    }

    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        let message = format!("{} addresses", request.addresses.len());
        Box::pin(async { Err(ApiError { code: "unreachable".into(), message }) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        let message = "it is far away".to_owned();
        Box::pin(async { Err(ApiError { code: "unreachable".into(), message }) })
    }
}
