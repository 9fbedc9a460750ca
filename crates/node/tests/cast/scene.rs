//! Nodes `n1`, `n2`, … with inboxes, and a source without a node, `n0`.

pub use crate::members::name;
use crate::members::{ANYWHERE, config, dialer, key, member, membership, nothing, served, signed};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_base::{clock::WallClock, log::Log};
use thalweg_cast::{
    CastService, Inbox, Settings,
    source::{
        CastError, Event, EventSink, Fidelity, ForgetError, ForgetReport, Forwarding, Request,
        Totals, cast, forget,
    },
};
use thalweg_mesh::{Membership, member_dialer::MemberDialer, service::MemberService};
use thalweg_node::daemon::{Daemon, Services};
use thalweg_paths::estimates::Estimates;
use thalweg_units::{ByteSize, WallTime};
use thalweg_wire::mesh::{Member, Name, Role};
use tokio::{net::TcpSocket, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// Longer than any wait on the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A node that can be stopped and started again.
pub struct Node {
    pub n: u8,
    pub at: SocketAddr,
    pub dir: TempDir,
    pub casts: Option<CastService>,
    _port: TcpSocket,
    membership: Membership,
    settings: Settings,
    tasks: JoinSet<()>,
    end: CancellationToken,
}

impl Node {
    /// A node that does not run yet; its port is reserved.
    fn new(n: u8, change: impl Fn(&mut Settings)) -> Self {
        let dir = TempDir::new().unwrap();
        for made in ["inbox", "state"] {
            std::fs::create_dir(dir.path().join(made)).unwrap();
        }
        let from = vec!["*".parse().unwrap()];
        let path = dir.path().join("inbox");
        let inbox = vec![Inbox { path, from, ..Inbox::default() }];
        let keep_free = ByteSize::ZERO;
        let mut settings = Settings { inbox, keep_free, ..Settings::default() };
        change(&mut settings);
        let membership = membership();
        // Bound but never listening, so that the port stays reserved while the node does not run: Linux lets another
        // socket listen there if both allow the reuse of addresses.
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind(ANYWHERE).unwrap();
        Self {
            n,
            at: port.local_addr().unwrap(),
            dir,
            casts: None,
            _port: port,
            membership,
            settings,
            tasks: JoinSet::new(),
            end: CancellationToken::new(),
        }
    }

    pub async fn start(&mut self) {
        let (membership, log) = (self.membership.clone(), Log::to_queue().0);
        let dialer = dialer(self.n, &key(self.n), &membership);
        let state = self.dir.path().join("state");
        let casts = CastService::new(&self.settings, &state, membership, dialer, log).unwrap();
        let cast = Some(Arc::new(casts.clone()) as Arc<dyn MemberService>);
        let served = served(self.n, &self.membership, Services { cast, ..nothing() });
        let daemon = Daemon::bind(config(self.at, self.dir.path()), served).await.unwrap();
        self.end = CancellationToken::new();
        let end = self.end.clone();
        self.tasks.spawn(async move {
            daemon.run(end.clone().cancelled_owned(), end.cancelled_owned()).await;
        });
        self.tasks.spawn(casts.clone().run());
        self.casts = Some(casts);
    }

    /// Runs this service in place of the node's own.
    pub async fn serve_as(&mut self, service: Arc<dyn MemberService>) {
        self.kill().await;
        let services = Services { cast: Some(service), ..nothing() };
        let served = served(self.n, &self.membership, services);
        let daemon = Daemon::bind(config(self.at, self.dir.path()), served).await.unwrap();
        self.end = CancellationToken::new();
        let end = self.end.clone();
        self.tasks.spawn(async move {
            daemon.run(end.clone().cancelled_owned(), end.cancelled_owned()).await;
        });
    }

    /// Starts the node this many days later, by its own clock.
    pub async fn start_later(&mut self, days: u64) {
        let now = WallClock::default().now().as_unix_nanos();
        let then = WallTime::from_unix_nanos(now + days * 24 * 3600 * 1_000_000_000);
        let clock = WallClock::new(move || then);
        let later = Membership::with_clock(self.membership.mesh(), None, clock);
        later.offer(&self.membership.signed().unwrap()).unwrap();
        self.membership = later;
        self.start().await;
    }

    /// Changes the settings for the next start.
    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
    }

    /// Stops the node as a kill would: it tells nobody.
    pub async fn kill(&mut self) {
        self.casts = None;
        self.end.cancel();
        tokio::time::sleep(Duration::ZERO).await;
        while self.tasks.len() > 1 {
            self.tasks.join_next().await;
        }
        self.tasks.shutdown().await;
    }

    pub fn inbox(&self, path: &str) -> PathBuf {
        self.dir.path().join("inbox").join(path)
    }

    /// The node's report on its only cast.
    pub fn report(&self) -> serde_json::Value {
        self.casts.as_ref().map(|casts| casts.report()["casts"][0].clone()).unwrap_or_default()
    }

    /// Waits until the node holds more than this many bytes.
    pub async fn holds(&self, bytes: u64) {
        let began = Instant::now();
        while self.report()["held_bytes"].as_u64().unwrap_or(0) <= bytes {
            assert!(began.elapsed() < PATIENCE, "{}", self.report());
            tokio::task::yield_now().await;
        }
    }

    fn member(&self) -> Member {
        member(self.n, Some(self.at), &[Role::Client])
    }
}

/// Events, in order.
#[derive(Debug, Default)]
pub struct Events(Mutex<Vec<Event>>);

impl EventSink for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// Passes events to two recipients.
struct Both(Arc<Events>, Box<dyn Fn(&Event) + Send + Sync>);

impl EventSink for Both {
    fn event(&self, event: &Event) {
        (self.1)(event);
        self.0.event(event);
    }
}

impl Events {
    pub fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// For each receiver that has the object: the bytes that it received, and how many of them were of no use.
    pub fn received(&self) -> Vec<(Name, u64, u64)> {
        let received = |event: &Event| match event {
            Event::Received { receiver, received_bytes, duplicate_bytes, .. } => {
                Some((receiver.clone(), *received_bytes, *duplicate_bytes))
            }
            _ => None,
        };
        let mut all: Vec<_> = self.all().iter().filter_map(received).collect();
        all.sort();
        all
    }
}

/// A source and nodes.
pub struct Scene {
    pub nodes: Vec<Node>,
    pub dir: TempDir,
    pub events: Arc<Events>,
    membership: Membership,
}

impl Scene {
    /// Starts this many nodes.
    pub async fn new(nodes: u8) -> Self {
        Self::with(nodes, |_, _| {}).await
    }

    pub async fn with(count: u8, change: impl Fn(u8, &mut Settings)) -> Self {
        let nodes = (1..=count).map(|n| Node::new(n, |settings| change(n, settings)));
        let mut nodes: Vec<Node> = nodes.collect();
        let mut members: Vec<Member> = nodes.iter().map(Node::member).collect();
        members.insert(0, member(0, None, &[Role::Client]));
        let signed = signed(1, members);
        let membership = membership();
        membership.offer(&signed).unwrap();
        for node in &mut nodes {
            node.membership.offer(&signed).unwrap();
            node.start().await;
        }
        let (dir, events) = (TempDir::new().unwrap(), Arc::default());
        Self { nodes, dir, events, membership }
    }

    /// Sets other addresses for some nodes, by the asking and the asked node.
    pub fn lead(&self, way: impl Fn(u8, u8) -> Option<SocketAddr>) {
        let roster = |from: u8| {
            let at = |node: &Node| Some(way(from, node.n).unwrap_or(node.at));
            let of = |node: &Node| member(node.n, at(node), &[Role::Client]);
            let mut members: Vec<Member> = self.nodes.iter().map(of).collect();
            members.insert(0, member(0, None, &[Role::Client]));
            signed(2, members)
        };
        self.membership.offer(&roster(0)).unwrap();
        for node in &self.nodes {
            node.membership.offer(&roster(node.n)).unwrap();
        }
    }

    /// Opens ports of nodes in the name of the node `n`.
    pub fn dialer(&self, n: u8) -> MemberDialer {
        dialer(n, &key(n), &self.nodes[usize::from(n) - 1].membership)
    }

    pub async fn forget(&self, what: &str) -> Result<ForgetReport, ForgetError> {
        let dialer = dialer(0, &key(100), &self.membership);
        forget(&self.path("kept"), what, &dialer, &key(100)).await
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Creates a file of this length to cast, and returns its content.
    pub fn file(&self, path: &str, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        let mut hasher = blake3::Hasher::new();
        hasher.update(path.as_bytes()).update(&length.to_be_bytes());
        hasher.finalize_xof().fill(&mut content);
        std::fs::write(self.path(path), &content).unwrap();
        content
    }

    /// A request for all nodes, as the command makes it without options.
    pub fn request(&self, path: &str) -> Request {
        Request {
            path: self.path(path),
            fidelity: Fidelity::default(),
            name: None,
            to: self.nodes.iter().map(|node| name(node.n)).collect(),
            estimates: Estimates::default(),
            parents: 2,
            shape: (None, None),
            forwarding: Forwarding::default(),
            open: false,
            patience: Duration::from_secs(60),
            limit: None,
            kept_in: self.path("kept"),
            dry_run: false,
        }
    }

    pub async fn cast(&self, request: Request) -> Result<Totals, CastError> {
        self.cast_until(request, CancellationToken::new()).await
    }

    /// Casts, and passes each event to another recipient as well.
    pub fn cast_telling(
        &self,
        request: Request,
        stop: CancellationToken,
        told: impl Fn(&Event) + Send + Sync + 'static,
    ) -> impl Future<Output = Result<Totals, CastError>> + Send + 'static {
        let dialer = dialer(0, &key(100), &self.membership);
        let events = Arc::new(Both(Arc::clone(&self.events), Box::new(told)));
        async move {
            let casting = cast(request, dialer, key(100), events, stop);
            tokio::time::timeout(PATIENCE, casting).await.expect("the cast ends")
        }
    }

    pub fn cast_until(
        &self,
        request: Request,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<Totals, CastError>> + Send + 'static {
        let dialer = dialer(0, &key(100), &self.membership);
        let (events, told) = (Arc::clone(&self.events), Arc::clone(&self.events));
        async move {
            let casting = cast(request, dialer, key(100), events, stop);
            let ended = tokio::time::timeout(PATIENCE, casting).await;
            ended.unwrap_or_else(|_| panic!("the cast does not end: {:?}", told.all()))
        }
    }
}
