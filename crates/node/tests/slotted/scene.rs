//! Nodes `n0`, `n1`, … that serve files and forward data, and a destination without a node.

pub use crate::members::{dialer, key, name};
use crate::{
    fake::Fake,
    land::Memory,
    members::{ANYWHERE, config, member, membership, nothing, served, signed},
};
use std::{
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use thalweg_base::{clock::WallClock, log::Log, space::KeepFree};
use thalweg_files::remote::Remote;
use thalweg_files::{
    Files, Lending, OfferedDirectory, Settings,
    inventory::{Inventory, MissingFile},
    land::LandError,
    spool::Spool,
};
use thalweg_gather::{
    CollectContext, Event, EventSink,
    slotted::{ScheduleOutcome, ScheduledRun, Scheme, run},
};
use thalweg_mesh::{Membership, member_dialer::MemberDialer, service::MemberService};
use thalweg_node::daemon::{Daemon, Services};
use thalweg_paths::overlay::Overlay;
use thalweg_plan::Graph;
use thalweg_units::ByteSize;
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Name, Role},
    object::{FileRef, JobId, Kind, ListRequest},
};
use tokio::{sync::Notify, task::JoinSet};

/// The job of all collections in these tests.
pub const JOB: JobId = JobId([9; 16]);

/// The data unit of the timetables.
pub const UNIT: u64 = 65_536;

/// All nodes may forward data.
const ROLES: [Role; 2] = [Role::Client, Role::Relay];

/// The kind of a node.
#[derive(Clone, Debug)]
pub enum Sort {
    /// It offers its data to these members, and holds at most `spool` bytes of others'.
    Honest { to: Vec<&'static str>, spool: u64 },
    /// It does what a test specifies.
    Fake(Box<Fake>),
    /// Nothing listens at its address.
    Absent,
}

impl Sort {
    /// Offers its data to all.
    pub fn open() -> Self {
        Self::Honest { to: vec!["*"], spool: 1 << 30 }
    }
}

/// A running node; it ends when it is dropped.
pub struct Node {
    pub n: u8,
    pub at: SocketAddr,
    pub membership: Membership,
    pub dir: TempDir,
    pub spool: Option<Spool>,
    /// The service of an honest node, for its counters.
    files: Option<Files>,
    _tasks: JoinSet<()>,
}

impl Node {
    pub async fn start(n: u8, sort: Sort) -> Self {
        let dir = TempDir::new().unwrap();
        for made in ["data", "state"] {
            std::fs::create_dir(dir.path().join(made)).unwrap();
        }
        let membership = membership();
        let (mut spool, mut honest_files) = (None, None);
        let files: Option<Arc<dyn MemberService>> = match sort {
            Sort::Honest { to, spool: bound } => {
                let (files, own) = honest(n, &dir, &membership, &to, bound);
                spool = Some(own);
                honest_files = Some(files.clone());
                Some(Arc::new(files))
            }
            Sort::Fake(fake) => Some(Arc::new(fake.at(dialer(n, &key(n), &membership)))),
            Sort::Absent => None,
        };
        let (at, tasks) = match files {
            Some(files) => serve(n, &dir, &membership, files).await,
            None => (closed(), JoinSet::new()),
        };
        Self { n, at, membership, dir, spool, files: honest_files, _tasks: tasks }
    }

    fn member(&self) -> Member {
        member(self.n, Some(self.at), &ROLES)
    }

    /// Bytes that it has sent to others, messages included.
    pub fn sent(&self) -> u64 {
        let report = self.files.as_ref().unwrap().report();
        report["sent_bytes"].as_u64().unwrap()
    }

    /// Puts a file into the offered directory.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.dir.path().join("data").join(path), bytes).unwrap();
    }
}

/// A port where nothing listens.
fn closed() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn honest(
    n: u8,
    dir: &TempDir,
    membership: &Membership,
    to: &[&str],
    bound: u64,
) -> (Files, Spool) {
    let to = to.iter().map(|whom| whom.parse().unwrap()).collect();
    let offer = vec![OfferedDirectory { path: dir.path().join("data"), members: to }];
    let settings = Settings { offer, ..Settings::default() };
    let state = dir.path().join("state");
    let files =
        Files::new(&settings, &state, key(n).id(), membership.clone(), Log::to_queue().0).unwrap();
    let bound = ByteSize::from_bytes(bound);
    let spool = Spool::open(&state.join("spool"), bound, KeepFree::default(), WallClock::default())
        .unwrap();
    let dialer = dialer(n, &key(n), membership);
    files.lend(Lending::new(spool.clone(), dialer, membership.clone()));
    (files, spool)
}

async fn serve(
    n: u8,
    dir: &TempDir,
    membership: &Membership,
    files: Arc<dyn MemberService>,
) -> (SocketAddr, JoinSet<()>) {
    let served = served(n, membership, Services { files: Some(files), ..nothing() });
    let daemon = Daemon::bind(config(ANYWHERE, dir.path()), served).await.unwrap();
    let at = daemon.local_addrs()[0];
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        daemon.run(std::future::pending(), std::future::pending()).await;
    });
    (at, tasks)
}

/// Events, in order.
#[derive(Debug, Default)]
pub struct Events(Mutex<Vec<Event>>, Notify);

impl EventSink for Events {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
        self.1.notify_waiters();
    }
}

impl Events {
    /// Waits until a participant has received this many transfers.
    pub async fn transfers(&self, receiver: &Name, count: usize) {
        let is_one = |event: &&Event| matches!(event, Event::Transfer { to, why: None, .. } if to == receiver);
        loop {
            let more = self.1.notified();
            if self.0.lock().unwrap().iter().filter(is_one).count() >= count {
                return;
            }
            more.await;
        }
    }
}

/// A whole collection.
pub struct Scene {
    pub nodes: Vec<Node>,
    pub membership: Membership,
    pub events: Arc<Events>,
    /// How many of the nodes are sources.
    sources: usize,
}

/// The result of a collection.
pub struct Ended {
    pub outcome: Result<ScheduleOutcome, LandError>,
    pub land: Arc<Memory>,
    pub inventory: Arc<Inventory>,
}

impl Scene {
    /// Creates two sources, and nodes that forward.
    pub async fn new(sorts: &[Sort]) -> Self {
        let mut nodes = Vec::new();
        for (n, sort) in (0..).zip(sorts) {
            nodes.push(Node::start(n, sort.clone()).await);
        }
        let mut members: Vec<Member> = nodes.iter().map(Node::member).collect();
        members.push(member(nodes.len() as u8, None, &ROLES));
        let signed = signed(1, members);
        let membership = membership();
        membership.offer(&signed).unwrap();
        for node in &nodes {
            node.membership.offer(&signed).unwrap();
        }
        Self { nodes, membership, events: Arc::default(), sources: 2 }
    }

    /// Opens files of others as the destination's command line does.
    pub fn dialer(&self) -> MemberDialer {
        let n = self.nodes.len() as u8;
        dialer(n, &key(n + 100), &self.membership)
    }

    /// The present files of all sources that can be reached.
    pub async fn inventory(&self) -> Inventory {
        let mut files = Vec::new();
        for source in 0..self.sources {
            let node = &self.nodes[source];
            let Ok(mut remote) = Remote::open(&self.dialer(), &name(node.n), &[]).await else {
                continue;
            };
            let root = node.dir.path().join("data").as_os_str().as_bytes().to_vec();
            let request = ListRequest { roots: vec![root.clone()], exclude: Vec::new() };
            let mut entries = Vec::new();
            let listed = remote.list(request, |part| entries.extend(part)).await;
            assert!(listed.unwrap().is_empty());
            for entry in entries {
                let Kind::File { snapshot } = entry.kind else { continue };
                let file = FileRef { root: root.clone(), path: entry.path, snapshot };
                let missing = std::iter::once(0..snapshot.size).collect();
                files.push(MissingFile { source: source as u32, file, missing });
            }
        }
        Inventory { files }
    }

    /// Carries out a schedule.
    pub async fn gather(&self, scheme: Scheme) -> Ended {
        let inventory = self.inventory().await;
        self.gather_these(scheme, inventory).await
    }

    pub async fn gather_these(&self, scheme: Scheme, inventory: Inventory) -> Ended {
        let (context, land) = self.context(inventory);
        let unit = ByteSize::from_bytes(UNIT);
        let outcome =
            run(&context, ScheduledRun { scheme, unit, job: JOB, resumed: false, seed: 1 }).await;
        Ended { outcome, land, inventory: context.inventory }
    }

    /// A collection, and where it is stored.
    pub fn context(&self, inventory: Inventory) -> (CollectContext, Arc<Memory>) {
        let sizes: Vec<u64> = inventory.files.iter().map(|w| w.file.snapshot.size).collect();
        let (land, inventory) = (Arc::new(Memory::new(&sizes)), Arc::new(inventory));
        let n = self.nodes.len() as u8;
        let overlay = Overlay {
            names: (0..=n).map(name).collect(),
            sources: self.sources,
            rates: Graph::new(usize::from(n) + 1),
            rtts: Default::default(),
        };
        let context = CollectContext {
            idle_remotes: thalweg_gather::IdleRemotes::default(),
            dialer: self.dialer(),
            overlay: Arc::new(overlay),
            inventory,
            land: land.clone(),
            events: self.events.clone(),
            connections: Default::default(),
            stop: Default::default(),
        };
        (context, land)
    }

    /// Checks that these files are all here, as they are at their sources.
    pub fn check(&self, ended: &Ended) {
        for (number, wanted) in ended.inventory.files.iter().enumerate() {
            let path = std::str::from_utf8(wanted.file.path.as_bytes()).unwrap();
            let data = self.nodes[wanted.source as usize].dir.path().join("data");
            let there = std::fs::read(data.join(path)).unwrap();
            assert!(ended.land.file(number) == Some(there), "{path} of n{}", wanted.source);
        }
        assert_eq!(ended.land.given_up(), []);
    }
}
