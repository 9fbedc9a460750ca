//! A mesh whose nodes answer orders with rates from a matrix.

use crate::harness::{Answer, Host, ManualClock, get, post};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use thalweg_measure::{Bound, Estimate, Method, Metric, NodeIndex, Subject, Table};
use thalweg_oracle::{Caller, Config, Event, MeasureConfig, Oracle, Pace};
use thalweg_plan::Graph;
use thalweg_units::{ByteSize, Time};
use thalweg_wire::mesh::{
    Role, TokenRequest,
    measure::{
        CandidatesReply, Order, OrderReport, Orders, Outcome, PathsReply, ReceivedReport, Reports,
        ReportsReply,
    },
};
use tokio::{sync::oneshot, task::JoinHandle};

/// The bytes that each measurement reports.
pub const BYTES: u64 = 1_000_000;

/// Short periods, so that tests do not wait, and long deadlines for busy machines.
pub fn settings() -> MeasureConfig {
    MeasureConfig {
        p: 1.0,
        test_bytes: ByteSize::from_bytes(BYTES),
        pace: Pace { rank: Duration::ZERO, ..Pace::default() },
        ..MeasureConfig::default()
    }
}

/// A mesh of hosts `n0`, `n1` and so on.
pub struct Fake {
    pub dir: TempDir,
    pub hand: ManualClock,
    pub hosts: Vec<Host>,
    pub oracle: Oracle,
    pub events: Arc<Mutex<Vec<Event>>>,
    stop: Option<oneshot::Sender<()>>,
    runs: JoinHandle<()>,
    /// For each node, whether it is in a measurement, and how many it has had.
    busy: Arc<Mutex<BTreeMap<String, (bool, u64)>>>,
}

impl Fake {
    pub async fn start(nodes: usize, measure: MeasureConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, nodes, measure, Duration::from_secs(60)).await
    }

    /// Starts a mesh in this directory. `patience` is the time that a locked database is waited for.
    pub async fn start_in(
        dir: TempDir,
        nodes: usize,
        measure: MeasureConfig,
        patience: Duration,
    ) -> Self {
        let (founder, hand) = (Host::new("n0"), ManualClock::at_system_time());
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = events.clone();
        let config = Config {
            measure,
            patience,
            clock: hand.clock(),
            events: Arc::new(move |event| sink.lock().unwrap().push(event.clone())),
            ..Config::default()
        };
        let path = dir.path().join("oracle");
        let oracle = Oracle::create(&path, founder.member(), config).await.unwrap();
        let mut hosts = vec![founder];
        for n in 1..nodes {
            hosts.push(join(&oracle, &format!("n{n}"), &hand).await);
        }
        let (stop, stopped) = oneshot::channel();
        let running = oracle.clone();
        let runs = tokio::spawn(async move { running.run(async { _ = stopped.await }).await });
        let busy = Arc::default();
        Self { dir, hand, hosts, oracle, events, stop: Some(stop), runs, busy }
    }

    pub fn caller(&self, n: usize) -> Caller {
        self.hosts[n].caller()
    }

    /// Has these nodes carry out orders with the rates of `rate`, until the mesh is dropped.
    pub fn work(
        &self,
        nodes: impl Iterator<Item = usize>,
        most: u64,
        rate: fn(usize, usize) -> f64,
    ) {
        self.work_saying(nodes, most, Claims::Alike(rate));
    }

    /// Like [`Fake::work`], with separate reports of both ends.
    pub fn work_saying(&self, nodes: impl Iterator<Item = usize>, most: u64, says: Claims) {
        for n in nodes {
            let node = Worker {
                n,
                caller: self.caller(n),
                callers: self.hosts.iter().map(Host::caller).collect(),
                oracle: self.oracle.clone(),
                busy: self.busy.clone(),
                most,
                says,
            };
            tokio::spawn(node.run());
        }
    }

    /// The number of measurements of each node.
    pub fn turns(&self) -> Vec<u64> {
        let busy = self.busy.lock().unwrap();
        self.hosts.iter().map(|h| busy.get(&h.name).map_or(0, |(_, turns)| *turns)).collect()
    }

    pub async fn ask(&self, n: usize, path: &str) -> Answer {
        get(&self.oracle, self.caller(n), path).await
    }

    pub async fn candidates(&self, n: usize, query: &str) -> CandidatesReply {
        self.ask(n, &format!("/v1/candidates?{query}")).await.result().unwrap()
    }

    pub async fn paths(&self, n: usize) -> PathsReply {
        self.ask(n, "/v1/paths").await.result().unwrap()
    }

    pub async fn report(&self, n: usize, reports: &Reports) -> ReportsReply {
        let answer = post(&self.oracle, self.caller(n), "/v1/measure/reports", reports).await;
        answer.result().unwrap()
    }

    /// The next order for this node.
    pub async fn order(&self, n: usize) -> Order {
        loop {
            let answer = self.ask(n, "/v1/measure/orders?wait_s=60").await;
            if let Some(order) = answer.result::<Orders>().unwrap().orders.pop() {
                return order;
            }
        }
    }

    /// Waits until the paths meet the condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&PathsReply) -> bool) -> PathsReply {
        let wait = async {
            loop {
                let paths = self.paths(0).await;
                if condition(&paths) {
                    return paths;
                }
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(120), wait).await;
        waited.unwrap_or_else(|_| panic!("never: {what}; events {:?}", self.events.lock().unwrap()))
    }

    /// Stops the oracle as a daemon does. Returns its events.
    pub async fn stop(self) -> Vec<Event> {
        let events = self.events.clone();
        drop(self.end().await);
        let events = events.lock().unwrap();
        events.clone()
    }

    /// Stops the oracle as a daemon does. Returns its directory.
    pub async fn end(mut self) -> TempDir {
        _ = self.stop.take().unwrap().send(());
        self.runs.await.unwrap();
        self.dir
    }
}

async fn join(oracle: &Oracle, name: &str, hand: &ManualClock) -> Host {
    let host = Host::new(name);
    let valid = Duration::from_secs(3600);
    let request = TokenRequest { roles: [Role::Relay].into(), tags: [].into(), name: None, valid };
    let token = oracle.create_token(&Caller::Local, request).await.unwrap().token.parse().unwrap();
    let answer = post(oracle, host.caller(), "/v1/join", &host.request(&token, hand.now())).await;
    assert!(answer.status.is_success(), "{answer:?}");
    host
}

/// The number in the name `n7`.
pub fn number(name: &str) -> usize {
    name[1..].parse().unwrap()
}

/// A pseudo-random rate between 1 and 100 Mbit/s for each leg.
pub fn rate(from: usize, to: usize) -> f64 {
    let mixed = (from as u64 * 7919 + to as u64 * 104_729 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let unit = (mixed >> 40) as f64 / (1 << 24) as f64;
    (1e6 * 100_f64.powf(unit)).round()
}

/// The graph of these legs, as plans are made from a table.
pub fn graph(nodes: usize, legs: impl Iterator<Item = (usize, usize)>) -> Graph {
    let mut table = Table::new(nodes as u32, nodes * nodes);
    for (i, j) in legs {
        let estimate = Estimate {
            subject: Subject::leg(i as u32, j as u32),
            metric: Metric::Throughput,
            value: rate(i, j),
            spread: None,
            method: Method::Transfer,
            age: Duration::ZERO,
            reporter: NodeIndex(0),
            bound: Bound::Exact,
        };
        table.insert(estimate, Time::ZERO).unwrap();
    }
    Graph::from_table(&table, Time::ZERO)
}

/// A sender's report of a measurement.
pub fn done(id: u64, bps: f64) -> Reports {
    let outcome = Outcome::Measured {
        bps,
        spread_bps: Some(bps / 100.0),
        bytes: BYTES,
        took: Duration::from_secs(1),
        steady: true,
        at_least: false,
        rtt_s: Some(0.05),
        age: Duration::ZERO,
    };
    Reports { done: vec![OrderReport { id, outcome }], ..Reports::default() }
}

/// A receiver's report of a measurement.
pub fn received(id: u64, from: &str, bps: f64) -> Reports {
    let (from, age) = (from.parse().unwrap(), Duration::ZERO);
    let received = ReceivedReport { id, from, bps, bytes: BYTES, at_least: false, age };
    Reports { received: vec![received], ..Reports::default() }
}

/// The reports of a leg's two ends, bit/s, by sender and receiver.
#[derive(Clone, Copy)]
pub enum Claims {
    /// Both ends report the same rate.
    Alike(fn(usize, usize) -> f64),
    /// The sender's report and the receiver's.
    Each(fn(usize, usize) -> (f64, f64)),
}

impl Claims {
    fn of(self, from: usize, to: usize) -> (f64, f64) {
        match self {
            Self::Alike(rate) => (rate(from, to), rate(from, to)),
            Self::Each(rates) => rates(from, to),
        }
    }
}

struct Worker {
    n: usize,
    caller: Caller,
    callers: Vec<Caller>,
    oracle: Oracle,
    busy: Arc<Mutex<BTreeMap<String, (bool, u64)>>>,
    most: u64,
    says: Claims,
}

impl Worker {
    async fn run(self) {
        loop {
            let answer = get(&self.oracle, self.caller, "/v1/measure/orders?wait_s=20").await;
            // The oracle stops at the end of the test.
            let Ok(orders) = answer.result::<Orders>() else { return };
            for order in orders.orders {
                self.carry_out(&order).await;
            }
        }
    }

    async fn carry_out(&self, order: &Order) {
        let (from, to) = (format!("n{}", self.n), order.to.to_string());
        self.mark([&from, &to], true);
        tokio::task::yield_now().await;
        let (sent, got) = self.says.of(self.n, number(&to));
        let seen = received(order.id, &from, got);
        self.post(self.callers[number(&to)], &seen).await;
        self.mark([&from, &to], false);
        self.post(self.caller, &done(order.id, sent)).await;
    }

    /// Asserts that each node is in one measurement at a time (UKAIRO §2.1), and within its daily bytes.
    fn mark(&self, nodes: [&str; 2], begins: bool) {
        let mut busy = self.busy.lock().unwrap();
        for node in nodes {
            let (is_busy, turns) = busy.entry(node.to_owned()).or_default();
            assert_ne!(*is_busy, begins, "{node} is in two measurements at once");
            *is_busy = begins;
            *turns += u64::from(begins);
            assert!(*turns <= self.most, "{node} is asked for more than its bytes of the day");
        }
    }

    async fn post(&self, caller: Caller, reports: &Reports) {
        let answer = post(&self.oracle, caller, "/v1/measure/reports", reports).await;
        let reply: ReportsReply = answer.result().unwrap();
        assert_eq!(reply.refused, Vec::<String>::new());
    }
}
