//! Synthetic relays, which report that they have executed orders without measuring.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_base::clock::WallClock;
use thalweg_mesh::{Oracle, OracleClient, State};
use thalweg_wire::mesh::{
    Name,
    measure::{Order, OrderReport, Outcome, ReceivedReport, Reports},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// The pretended duration of a measurement.
const TAKES: Duration = Duration::from_millis(500);

/// The pause after a failure, as in a daemon.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a request for orders waits, as in a daemon.
const WAIT: Duration = Duration::from_secs(20);

/// The reported bytes and rate of each measurement.
const BYTES: u64 = 1_000_000;
const BPS: f64 = 1e8;

/// A leg, by the names of its ends.
type LegEnds = (String, String);

/// All synthetic relays; dropping this ends them.
pub struct Relays {
    seen: Arc<Mutex<RelayObservations>>,
    _tasks: JoinSet<()>,
}

/// The observations of the relays.
#[derive(Default)]
struct RelayObservations {
    /// The times of the first and the last order of each term.
    orders: BTreeMap<u64, (Instant, Instant)>,
    /// Legs whose measurement both ends have reported and the oracle has accepted.
    measured: Vec<LegEnds>,
}

/// The oracle clients of the relays, by name.
type Clients = Arc<BTreeMap<Name, OracleClient>>;

impl Relays {
    /// Starts the relays, each with the keys of a state directory.
    ///
    /// # Errors
    /// When a directory has no keys.
    pub fn start(states: Vec<State>, oracles: &[Oracle]) -> anyhow::Result<Self> {
        let mut clients = BTreeMap::new();
        for state in &states {
            let client =
                OracleClient::new(&state.node_key()?, oracles.to_vec(), WallClock::default())?;
            clients.insert(state.mesh()?.name, client);
        }
        let (clients, seen) = (Arc::new(clients), Arc::<Mutex<RelayObservations>>::default());
        let mut tasks = JoinSet::new();
        for name in clients.keys() {
            tasks.spawn(execute_orders(name.clone(), Arc::clone(&clients), Arc::clone(&seen)));
        }
        Ok(Self { seen, _tasks: tasks })
    }

    fn observations(&self) -> MutexGuard<'_, RelayObservations> {
        lock(&self.seen)
    }

    /// The legs that were reported so far.
    pub fn measured(&self) -> Vec<LegEnds> {
        self.observations().measured.clone()
    }

    /// Waits until orders of one term have arrived for `long`, up to the present; returns this term.
    pub async fn wait_for_steady_orders(&self, long: Duration, limit: Duration) -> Option<u64> {
        let began = Instant::now();
        while began.elapsed() < limit {
            let newest = self.observations().orders.last_key_value().map(|(term, at)| (*term, *at));
            if let Some((term, (first, last))) = newest
                && first.elapsed() >= long
                && last.elapsed() < PAUSE
            {
                return Some(term);
            }
            sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// The time from `began` to the first order of a later term.
    pub async fn wait_for_later_term(
        &self,
        term: u64,
        began: Instant,
        limit: Duration,
    ) -> Option<Duration> {
        while began.elapsed() < limit {
            let next =
                self.observations().orders.range(term + 1..).next().map(|(_, (first, _))| *first);
            if let Some(first) = next {
                return Some(first - began);
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }
}

fn lock(seen: &Mutex<RelayObservations>) -> MutexGuard<'_, RelayObservations> {
    seen.lock()
}

async fn execute_orders(name: Name, clients: Clients, seen: Arc<Mutex<RelayObservations>>) {
    let Some(client) = clients.get(&name) else { return };
    let (orders, reports) = (client.beside(), client.beside());
    loop {
        match orders.orders(WAIT).await {
            Ok(found) => {
                for order in found.orders {
                    record_order(&seen, order.id >> 30);
                    carry_out(&name, &order, &reports, &clients, &seen).await;
                }
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn record_order(seen: &Mutex<RelayObservations>, term: u64) {
    let (now, mut seen) = (Instant::now(), lock(seen));
    seen.orders.entry(term).and_modify(|(_, last)| *last = now).or_insert((now, now));
}

/// The receiver reports first, so that the sender's report completes the order.
async fn carry_out(
    name: &Name,
    order: &Order,
    own: &OracleClient,
    clients: &Clients,
    seen: &Mutex<RelayObservations>,
) {
    sleep(TAKES).await;
    let (id, age) = (order.id, Duration::ZERO);
    let from = name.clone();
    let received = ReceivedReport { id, from, bps: BPS, bytes: BYTES, at_least: false, age };
    let received = Reports { received: vec![received], ..Reports::default() };
    let outcome = Outcome::Measured {
        bps: BPS,
        spread_bps: None,
        bytes: BYTES,
        took: TAKES,
        steady: true,
        at_least: false,
        rtt_s: None,
        age,
    };
    let done = Reports { done: vec![OrderReport { id, outcome }], ..Reports::default() };
    let Some(receiver) = clients.get(&order.to) else { return };
    for (who, what) in [(receiver, received), (own, done)] {
        match who.report(&what).await {
            Ok(reply) if reply.refused.is_empty() => {}
            // The oracle of the order is gone; another one will issue it anew.
            _ => return,
        }
    }
    lock(seen).measured.push((name.to_string(), order.to.to_string()));
}
