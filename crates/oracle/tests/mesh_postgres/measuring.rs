//! Three oracles on one database measure a mesh: one schedules, all answer, and the scheduling one is killed.

use crate::{
    fake::{done, number, rate, received},
    harness::{Host, Mesh, get, newest, post, token_request},
};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use thalweg_oracle::{Caller, Config, Event, MeasureConfig, Oracle, Pace};
use thalweg_units::ByteSize;
use thalweg_wire::{
    Signer as _,
    mesh::{
        Role, Token, TokenRequest,
        measure::{CandidatesReply, Orders, PassiveReport, PathsReply, Reports, ReportsReply},
    },
};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_millis(1500);

/// Longer than any wait on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn settings() -> MeasureConfig {
    let pace = Pace { rank: Duration::ZERO, follow: Duration::from_millis(50), ..Pace::default() };
    let test_bytes = ByteSize::from_bytes(1_000_000);
    MeasureConfig { p: 1.0, test_bytes, pace, ..MeasureConfig::default() }
}

/// An oracle that runs until it is killed.
struct Running {
    oracle: Oracle,
    runs: JoinHandle<()>,
    /// How often it was elected.
    elections: Arc<AtomicU32>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runs.abort();
    }
}

/// The oracles that nodes can reach: those that were not killed.
type Reached = Arc<Mutex<Vec<Oracle>>>;

struct World {
    mesh: Mesh,
    hosts: Vec<Host>,
    running: Vec<Running>,
    reached: Reached,
}

async fn run(mesh: &Mesh, host: &Host, dir: PathBuf) -> Running {
    let config = Config { lease: Some(LEASE), measure: settings(), ..mesh.config() };
    let elections = Arc::new(AtomicU32::new(0));
    let (count, log_event) = (elections.clone(), config.events.clone());
    let events = Arc::new(move |event: &Event| {
        if matches!(event, Event::Elected(_)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        log_event(event);
    });
    let oracle = Oracle::open(&dir, host.node.id(), Config { events, ..config }).await.unwrap();
    let running = oracle.clone();
    let runs = tokio::spawn(async move { running.run(std::future::pending()).await });
    Running { oracle, runs, elections }
}

/// Oracles `fra`, `n1` and `n2`, which relay as well. `None` without PostgreSQL; then the reason is printed.
async fn world() -> Option<World> {
    let mesh = Mesh::found().await;
    mesh.url.as_ref()?;
    let mut hosts = vec![mesh.founder.again("fra")];
    let mut running = vec![run(&mesh, &hosts[0], mesh.path()).await];
    for n in 1..=2 {
        let roles = [Role::Oracle, Role::Relay].into();
        let token = mesh.token_with(TokenRequest { roles, ..token_request() }).await;
        let host = Host::new(&format!("n{n}"));
        mesh.join(&host, &token).await.unwrap();
        let dir = mesh.dir.path().join(&host.name);
        fs::create_dir(&dir).unwrap();
        fs::copy(mesh.path().join("mesh.key"), dir.join("mesh.key")).unwrap();
        running.push(run(&mesh, &host, dir).await);
        hosts.push(host);
    }
    let reached = Arc::new(Mutex::new(running.iter().map(|r| r.oracle.clone()).collect()));
    Some(World { mesh, hosts, running, reached })
}

/// The number of an oracle: `fra` is the first.
fn at(name: &str) -> usize {
    if name == "fra" { 0 } else { number(name) }
}

fn reached(oracles: &Reached) -> Vec<Oracle> {
    oracles.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Sends reports to the oracle that accepts them, as a node does. Returns false if none does at present.
async fn send_reports(oracles: &Reached, caller: Caller, reports: &Reports) -> bool {
    for oracle in reached(oracles) {
        let answer = post(&oracle, caller, "/v1/measure/reports", reports).await;
        if answer.status.is_success() {
            let reply: ReportsReply = answer.result().unwrap();
            // The next oracle may not know an order of the killed one.
            assert!(reply.refused.iter().all(|why| why.contains("not known here")), "{reply:?}");
            return true;
        }
        assert_eq!(answer.refusal(), (421, "not_elected".into()));
    }
    false
}

async fn work(oracles: Reached, n: usize, callers: Vec<Caller>, names: Vec<String>) {
    loop {
        for oracle in reached(&oracles) {
            let path = "/v1/measure/orders?wait_s=1";
            let answer = get(&oracle, callers[n], path).await;
            let Ok(orders) = answer.result::<Orders>() else { continue };
            for order in orders.orders {
                let to = at(order.to.as_str());
                let bps = rate(n, to);
                let seen = received(order.id, &names[n], bps);
                let _ = send_reports(&oracles, callers[to], &seen).await;
                let _ = send_reports(&oracles, callers[n], &done(order.id, bps)).await;
            }
        }
        tokio::task::yield_now().await;
    }
}

impl World {
    /// Has the hosts carry out orders, until the handles are aborted.
    fn work(&self, from: usize) -> Vec<JoinHandle<()>> {
        let callers: Vec<_> = self.hosts.iter().map(Host::caller).collect();
        let names: Vec<_> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let one = |n| tokio::spawn(work(self.reached.clone(), n, callers.clone(), names.clone()));
        (from..self.hosts.len()).map(one).collect()
    }

    async fn paths(&self, oracle: &Oracle) -> PathsReply {
        get(oracle, self.hosts[0].caller(), "/v1/paths").await.result().unwrap()
    }

    /// Waits until each reachable oracle knows this many legs and has ranked them.
    async fn until_all_know(&self, legs: usize) {
        for oracle in reached(&self.reached) {
            let wait = async {
                loop {
                    let paths = self.paths(&oracle).await;
                    let path = "/v1/candidates?strategy=oblivious&m=9";
                    let told = get(&oracle, self.hosts[0].caller(), path).await;
                    let told: CandidatesReply = told.result().unwrap();
                    if paths.legs.len() >= legs && told.measured as usize >= legs {
                        assert_eq!(told.candidates.len(), self.hosts.len() - 1);
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let waited = tokio::time::timeout(PATIENCE, wait).await;
            let events = &self.mesh.events;
            waited.unwrap_or_else(|_| panic!("never {legs}: {:?}", events.lock().unwrap()));
        }
    }

    /// Waits until each reachable oracle has read the roster with this many members. Before that, an oracle does not
    /// know a new member.
    async fn until_all_list(&self, members: usize) {
        let wait = async {
            while !reached(&self.reached).iter().all(|o| newest(o).members.len() >= members) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    async fn elected(&self) -> usize {
        let wait = async {
            loop {
                let is_elected = |r: &Running| !r.runs.is_finished() && r.oracle.is_elected();
                if let Some(found) = self.running.iter().position(is_elected) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap()
    }

    /// The number of orders that each has given.
    fn scheduled(&self) -> Vec<u64> {
        self.running.iter().map(|r| r.oracle.measured().ordered).collect()
    }

    /// Kills an oracle as `kill -9` would: it does not release its lease, and cannot be reached any more.
    async fn kill(&mut self, killed: usize) {
        let runs = &mut self.running[killed].runs;
        runs.abort();
        assert!(runs.await.unwrap_err().is_cancelled());
        let left = self.running.iter().enumerate().filter(|(n, _)| *n != killed);
        *self.reached.lock().unwrap() = left.map(|(_, r)| r.oracle.clone()).collect();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_scheduling_oracle_is_killed_another_continues_with_all_measurements() {
    let Some(mut world) = world().await else { return };
    let workers = world.work(0);
    world.until_all_know(6).await;
    let first = world.elected().await;
    // On a busy machine a lease may have expired, and another oracle have been elected meanwhile.
    let idle = |(running, orders): (&Running, u64)| {
        running.elections.load(Ordering::SeqCst) > 0 || orders == 0
    };
    let scheduled = world.scheduled();
    assert!(world.running.iter().zip(scheduled.clone()).all(idle), "the elected schedules alone");
    assert!(scheduled.iter().sum::<u64>() >= 6, "{scheduled:?}");
    world.kill(first).await;
    let before = world.scheduled();
    // The remaining oracles still answer reads, with everything measured before.
    for oracle in reached(&world.reached) {
        assert_eq!(world.paths(&oracle).await.legs.len(), 6);
        let path = "/v1/candidates?strategy=load_aware&m=2";
        let told = get(&oracle, world.hosts[0].caller(), path).await;
        assert_eq!(told.result::<CandidatesReply>().unwrap().candidates.len(), 2);
    }
    let second = world.elected().await;
    assert_ne!(second, first);
    // A new host joins at a remaining oracle, and its legs are measured on orders of the new elected one.
    let token = world.running[second].oracle.create_token(&Caller::Local, token_request()).await;
    let token: Token = token.unwrap().token.parse().unwrap();
    let host = Host::new("n3");
    let request = host.request(&token, world.mesh.hand.now());
    let joined = post(&world.running[second].oracle, host.caller(), "/v1/join", &request).await;
    assert!(joined.status.is_success(), "{joined:?}");
    world.hosts.push(host);
    world.until_all_list(4).await;
    workers.iter().for_each(JoinHandle::abort);
    let workers = world.work(0);
    world.until_all_know(12).await;
    let after = world.scheduled();
    assert_eq!(after[first], before[first], "it is dead");
    assert!(after.iter().sum::<u64>() >= before.iter().sum::<u64>() + 6);
    // A passive report reaches the elected oracle, whichever oracle the node asks first.
    let (from, to) = ("n3".parse().unwrap(), "fra".parse().unwrap());
    let age = Duration::ZERO;
    let watched =
        PassiveReport { id: 1, from, to, bps: 1e6, at_least: true, bytes: 9_000_000, age };
    let reports = Reports { passive: vec![watched], ..Reports::default() };
    let told = async {
        while !send_reports(&world.reached, world.hosts[3].caller(), &reports).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap();
    workers.iter().for_each(JoinHandle::abort);
}
