//! Nodes `n1`, `n2`, … (keys 1, 2, …) with real doors and drop boxes, and clients.

use std::{
    io::Cursor,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use thalweg_base::{clock::WallClock, log::Log};
use thalweg_dropbox::{
    BoxFiles, DropBoxes, NodeAddress, NodeChannel, NodeChannelError, PushError, Settings, Target,
    View, push,
};
use thalweg_mesh::{Membership, service::SubmitService};
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_node::daemon::{
    Daemon, DaemonConfig, HandshakeLimits, NoDocuments, NoReload, Node as Served, OracleDown,
    Services,
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        CommitmentHasher, Evidence, Intent, Nonce, Receipt, Refusal, Sheet, SheetNode, Stamp,
    },
    mesh::{Member, Name, Role, Roster},
};
use tokio::{
    net::TcpListener,
    task::{JoinSet, yield_now},
};

/// The deadline of all boxes, and the time at which the clocks begin.
pub const UNTIL: u64 = 2_000_000_000_000_000_000;
pub const BEFORE: u64 = UNTIL - 60_000_000_000;

const MESH: u8 = 200;

/// The key with this number.
pub fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A box of the node itself, with data at these nodes.
pub fn own(nodes: &[&str]) -> Settings {
    Settings {
        name: Some(name("taxes")),
        until: Some(WallTime::from_unix_nanos(UNTIL)),
        nodes: nodes.iter().copied().map(name).collect(),
        ..Settings::default()
    }
}

/// A box of `n1`.
pub fn others() -> Settings {
    Settings { name: Some(name("taxes")), destination: Some(name("n1")), ..Settings::default() }
}

/// A host, whose directory outlives its daemon.
pub struct Host {
    pub n: u8,
    dir: TempDir,
    at: SocketAddr,
    pub clock: Arc<AtomicU64>,
    membership: Membership,
    running: Option<JoinSet<()>>,
}

impl Host {
    /// A host that does not run yet, at a port of its own.
    pub async fn new(n: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let membership = Membership::new(key(MESH).id(), None);
        let (dir, clock) = (TempDir::new().unwrap(), Arc::new(AtomicU64::new(BEFORE)));
        Self { n, dir, at, clock, membership, running: None }
    }

    pub fn set_clock(&self, nanos: u64) {
        self.clock.store(nanos, Ordering::SeqCst);
    }

    /// Starts the daemon, and kills a running one before.
    pub async fn start(&mut self, settings: Settings) {
        self.kill().await;
        let clock = self.clock.clone();
        let clock = WallClock::new(move || WallTime::from_unix_nanos(clock.load(Ordering::SeqCst)));
        let (log, _) = Log::to_queue();
        let who = (name(&format!("n{}", self.n)), key(self.n));
        let membership = self.membership.clone();
        let opened = DropBoxes::open_with_clock(
            &[settings],
            self.dir.path(),
            who,
            membership.clone(),
            clock,
            log.clone(),
        );
        let boxes = opened.unwrap();
        let submit = Some(Arc::new(boxes.clone()) as Arc<dyn SubmitService>);
        let config = DaemonConfig {
            riding: None,
            listen: vec![self.at],
            handshake: std::time::Duration::from_secs(10),
            limits: HandshakeLimits::default(),
            drain: std::time::Duration::ZERO,
            metrics: None,
            socket: self.dir.path().join("node.sock"),
            api: None,
            socks: None,
        };
        let served = Served {
            name: name(&format!("n{}", self.n)),
            key: key(self.n),
            membership: membership.clone(),
            services: Services {
                relay: None,
                oracle: None,
                measure: None,
                files: None,
                cast: None,
                bond: None,
                stream: None,
                doctor: None,
                probe: None,
                reach: None,
                submit,
            },
            control: Arc::new(OracleDown::new(membership, "it is elsewhere")),
            jobs: None,
            documents: Arc::new(NoDocuments),
            settings: Arc::new(NoReload),
            registry: Default::default(),
            legs: None,
            reach: None,
            log,
        };
        let daemon = Daemon::bind(config, served).await.unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move {
            daemon.run(std::future::pending(), std::future::pending()).await;
        });
        running.spawn(boxes.run());
        self.running = Some(running);
    }

    /// Kills it, as `kill -9` does.
    pub async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.shutdown().await;
        }
    }

    pub fn member(&self) -> Member {
        member(self.n, Some(self.at))
    }

    pub fn files(&self) -> BoxFiles {
        BoxFiles::new(self.dir.path(), &name("taxes"), None)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until its books are as wanted, and returns them.
    pub async fn view(&self, wanted: impl Fn(&View) -> bool) -> View {
        loop {
            let view = View::read(&self.files()).unwrap();
            if wanted(&view) {
                return view;
            }
            yield_now().await;
        }
    }

    pub fn target(&self) -> Target {
        let port = NodeAddress { key: key(self.n).id(), addresses: vec![self.at.into()] };
        Target { drop_box: name("taxes"), port }
    }

    pub fn sheet_node(&self) -> SheetNode {
        let port = self.target().port;
        SheetNode { name: self.member().name, key: port.key, addresses: port.addresses }
    }
}

pub fn member(n: u8, at: Option<SocketAddr>) -> Member {
    Member {
        name: name(&format!("n{n}")),
        node: Some(key(n).id()),
        client: key(n + 100).id(),
        addresses: at.into_iter().map(Into::into).collect(),
        roles: [Role::Client].into(),
        tags: [].into(),
    }
}

/// Gives all hosts a roster of them and of `n9`, who has no host.
pub fn introduce(hosts: &[&Host]) -> Signed<Roster> {
    let members = hosts.iter().map(|host| host.member()).chain([member(9, None)]).collect();
    let roster = Roster {
        version: 1,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    let signed = Signed::sign(roster, &key(MESH));
    hosts.iter().for_each(|host| _ = host.membership.offer(&signed.encode()).unwrap());
    signed
}

/// `n1`, which owns the box, and `n2`, which takes its data.
pub async fn pair() -> (Host, Host) {
    let (mut one, mut two) = (Host::new(1).await, Host::new(2).await);
    introduce(&[&one, &two]);
    one.start(own(&["n2"])).await;
    two.start(others()).await;
    (one, two)
}

/// A client with a key and data.
pub struct Client {
    key: PrivateKey,
    pub connector: Connector,
    pub nonce: Nonce,
    pub data: Vec<u8>,
}

impl Client {
    /// `n9`'s command line.
    pub fn member(data: &[u8]) -> Self {
        Self::with(key(109), data)
    }

    /// A client in no roster.
    pub fn stranger(n: u8, data: &[u8]) -> Self {
        Self::with(PrivateKey::from_seed(&[n, 77].repeat(16).try_into().unwrap()), data)
    }

    fn with(key: PrivateKey, data: &[u8]) -> Self {
        let connector = Connector::new(&key).unwrap();
        Self { key, connector, nonce: Nonce::from_bytes([5; 32]), data: data.to_vec() }
    }

    pub fn id(&self) -> NodeId {
        self.key.id()
    }

    pub fn intent(&self) -> Intent {
        let mut committing = CommitmentHasher::new(&self.nonce, &self.id());
        committing.update(&self.data);
        Intent { label: "return.pdf".parse().unwrap(), commitment: committing.finish() }
    }

    pub async fn line(&self, host: &Host) -> Result<NodeChannel, NodeChannelError> {
        NodeChannel::open(&self.connector, &host.target().port).await
    }

    pub async fn commit(&self, host: &Host) -> Result<Signed<Stamp>, Refusal> {
        let mut line = self.line(host).await.unwrap();
        let asked = host.target().commit(&mut line, self.id(), &[self.intent()]).await;
        match asked {
            Ok(mut stamps) => stamps.remove(0),
            Err(thalweg_dropbox::ClientError::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{e}"),
        }
    }

    pub async fn sheet(&self, host: &Host) -> Signed<Sheet> {
        let mut line = self.line(host).await.unwrap();
        host.target().sheet(&mut line).await.unwrap()
    }

    pub async fn push(
        &self,
        host: &Host,
        stamp: &Signed<Stamp>,
    ) -> Result<Signed<Receipt>, PushError> {
        let mut line = self.line(host).await.unwrap();
        let node = host.sheet_node();
        push((&mut line, &node), stamp, self.nonce, &mut Cursor::new(&self.data)).await
    }

    /// The refusal of a push by the node.
    pub async fn refused(&self, host: &Host, stamp: &Signed<Stamp>) -> Refusal {
        match self.push(host, stamp).await {
            Err(PushError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    pub fn evidence(
        &self,
        stamp: Signed<Stamp>,
        receipt: Option<Signed<Receipt>>,
        sheet: Option<Signed<Sheet>>,
    ) -> Evidence {
        Evidence {
            drop_box: name("taxes"),
            destination: stamp.signer(),
            client: self.id(),
            label: stamp.value().label.clone(),
            commitment: stamp.value().commitment,
            nonce: Some(self.nonce),
            keys: None,
            content: None,
            stamp: Some(stamp),
            receipt,
            sheet,
            roster: None,
        }
    }
}
