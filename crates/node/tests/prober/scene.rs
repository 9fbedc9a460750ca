//! Nodes `n1`, `n2`, … (keys 1, 2, …) with real doors, and a roster of them.

use crate::oracle::Fake;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
};
use tempfile::TempDir;
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    clock::WallClock,
    log::{Event, Log},
};
use thalweg_mesh::{Membership, OracleClient, service::MemberService};
use thalweg_net::PrivateKey;
use thalweg_node::daemon::{
    Daemon, DaemonConfig, HandshakeLimits, NoDocuments, NoReload, Node as Served, OracleDown,
    Services,
};
use thalweg_probe::prober::{ProbeBudget, Prober};
use thalweg_units::{ByteSize, Rate, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Member, Role, Roster, measure_ticket::Ticket},
};
use tokio::task::JoinSet;

/// The key with this number.
pub fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

const MESH: u8 = 200;

pub fn member(n: u8, at: SocketAddr) -> Member {
    Member {
        name: format!("n{n}").parse().unwrap(),
        node: Some(key(n).id()),
        client: key(n + 100).id(),
        addresses: vec![at.into()],
        roles: [Role::Client, Role::Relay].into(),
        tags: [].into(),
    }
}

pub fn signed(version: u64, members: Vec<Member>) -> Vec<u8> {
    let roster = Roster {
        version,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    Signed::sign(roster, &key(MESH)).encode()
}

/// The oracle's permission for `from` to measure to `to`, for a minute.
pub fn ticket(order: u64, from: u8, to: u8) -> Ticket {
    let now = WallClock::default().now().as_unix_nanos();
    let expiry = WallTime::from_unix_nanos(now + 60_000_000_000);
    Ticket { order, from: key(from).id(), to: key(to).id(), bytes: u64::MAX, expiry }
}

/// The ticket, signed with the mesh's key.
pub fn signed_ticket(order: u64, from: u8, to: u8) -> String {
    ticket(order, from, to).sign(&key(MESH))
}

/// The settings of a node's operator.
#[derive(Clone, Copy)]
pub struct Set {
    pub listen: SocketAddr,
    pub measures: bool,
    pub per_day: u64,
    pub max_rate: Option<Rate>,
}

impl Default for Set {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { listen, measures: true, per_day: 1_000_000_000, max_rate: None }
    }
}

/// A running node; it and its tasks end when it is dropped.
pub struct Node {
    pub at: SocketAddr,
    pub membership: Membership,
    pub budget: Arc<Budget>,
    log: Receiver<Event>,
    pub n: u8,
    prober: Prober,
    tasks: JoinSet<()>,
    _dir: TempDir,
}

impl Node {
    pub async fn start(n: u8, set: Set) -> Self {
        let dir = TempDir::new().unwrap();
        let membership = Membership::new(key(MESH).id(), None);
        let (log, queue) = Log::to_queue();
        let budget = Arc::new(Budget::new());
        let purse = ProbeBudget::new(budget.clone(), ByteSize::from_bytes(set.per_day));
        let name: thalweg_wire::mesh::Name = format!("n{n}").parse().unwrap();
        let key = key(n);
        let who = (name.clone(), &key);
        let prober = Prober::new(who, membership.clone(), purse, set.max_rate, log.clone());
        let prober = prober.unwrap();
        let measure = set.measures.then(|| Arc::new(prober.clone()) as Arc<dyn MemberService>);
        let down = Arc::new(OracleDown::new(membership.clone(), "it is elsewhere"));
        // With something in place of an oracle, the door serves a protocol even if measurements are off.
        let services = Services {
            relay: None,
            oracle: Some(down.clone()),
            measure,
            files: None,
            cast: None,
            bond: None,
            stream: None,
            doctor: None,
            probe: None,
            submit: None,
            reach: None,
        };
        let config = DaemonConfig {
            riding: None,
            listen: vec![set.listen],
            handshake: std::time::Duration::from_secs(10),
            limits: HandshakeLimits::default(),
            drain: std::time::Duration::ZERO,
            metrics: None,
            socket: dir.path().join("node.sock"),
            api: None,
            socks: None,
        };
        let served = Served {
            name,
            key,
            membership: membership.clone(),
            services,
            control: down,
            jobs: None,
            documents: Arc::new(NoDocuments),
            settings: Arc::new(NoReload),
            registry: Default::default(),
            legs: None,
            reach: None,
            log,
        };
        let daemon = Daemon::bind(config, served).await.unwrap();
        let at = daemon.local_addrs()[0];
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            daemon.run(std::future::pending(), std::future::pending()).await;
        });
        Self { at, membership, budget, log: queue, n, prober, tasks, _dir: dir }
    }

    pub fn member(&self) -> Member {
        member(self.n, self.at)
    }

    /// From now on it carries out the oracle's orders.
    pub fn obey(&mut self, oracle: &Fake) {
        self.obey_elected(&[oracle]);
    }

    /// From now on it carries out the orders of the elected one of these.
    pub fn obey_elected(&mut self, oracles: &[&Fake]) {
        let oracles = oracles.iter().map(|oracle| oracle.oracle()).collect();
        let client = OracleClient::new(&key(self.n), oracles, WallClock::default()).unwrap();
        self.tasks.spawn(self.prober.clone().run(client, None));
    }

    /// Bytes that were only measured.
    pub fn spent(&self) -> u64 {
        self.budget.spent(Scope::purpose(Purpose::Probe)).as_bytes()
    }

    /// The number of log lines with `text`, until one with `end`.
    pub async fn lines_until(&self, text: &str, end: &str) -> usize {
        let mut lines = 0;
        loop {
            let line = self.line("").await;
            match line.contains(end) {
                true => return lines,
                false => lines += usize::from(line.contains(text)),
            }
        }
    }

    /// The next line of its log that contains this text.
    pub async fn line(&self, text: &str) -> String {
        loop {
            match self.log.try_recv() {
                Ok(event) if event.to_string().contains(text) => return event.to_string(),
                Ok(_) => {}
                Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                Err(TryRecvError::Disconnected) => panic!("the log ended without `{text}`"),
            }
        }
    }
}

/// Gives all nodes a roster of them.
pub fn introduce(nodes: &[&Node]) {
    let signed = signed(1, nodes.iter().map(|node| node.member()).collect());
    for node in nodes {
        node.membership.offer(&signed).unwrap();
    }
}

/// `n1`, which obeys a new oracle, and `n2`, with these settings.
pub async fn pair(first: Set, second: Set) -> (Fake, Node, Node) {
    let (mut one, mut two) = (Node::start(1, first).await, Node::start(2, second).await);
    introduce(&[&one, &two]);
    let oracle = Fake::start().await;
    one.obey(&oracle);
    two.obey(&oracle);
    (oracle, one, two)
}
