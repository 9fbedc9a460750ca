//! What this oracle does about measuring: it orders, takes reports, ranks, and keeps the history.

use super::{
    MeasureEvent, Measuring,
    measuring::{Made, Place, is_over},
    planner::End,
    reports::Desk,
    state::State,
};
use crate::{
    Database, Event, Refusal,
    election::{Election, Standing},
    registry::{Registry, earlier},
    store::{MOST_SAMPLES, Recent},
};
use Leg as SeedLeg;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_plan::graph::MAX_AGE;
use thalweg_units::NodeId;
use thalweg_wire::mesh::measure::{Orders, Reports, ReportsReply};
use tokio::{
    sync::{MutexGuard, watch},
    time::{sleep, timeout},
};

/// Between two looks if nothing happens: presence and deadlines are of seconds.
const PULSE: Duration = Duration::from_millis(500);

/// Between two looks whether another oracle was elected meanwhile.
const ELECTION_LOOK: Duration = Duration::from_millis(500);

/// Between two looks at the buffer, which are what a killed oracle loses; and after a failure.
const EVERY: Duration = Duration::from_millis(500);

const RETRY: Duration = Duration::from_secs(10);

/// Between two tries to read what was measured before.
const AGAIN: Duration = Duration::from_secs(60);

/// The database is made shorter in small steps: so often, and at the start, once this oracle
/// is elected.
const COMPACT: Duration = Duration::from_secs(3600);

/// And sooner, if so many measurements were kept since: an eighth of the most that are kept whole.
const COMPACT_ROWS: u64 = MOST_SAMPLES.unsigned_abs() / 8;

/// Between two looks whether it is time.
const COMPACT_LOOK: Duration = Duration::from_secs(5);

/// For the last entries when the oracle stops.
const LAST: Duration = Duration::from_secs(2);

/// The measuring service, with what it needs of the oracle: rosters, the database, who is elected.
#[derive(Debug)]
pub(crate) struct Scheduler {
    registry: Arc<Registry>,
    election: Arc<Election>,
    pub(crate) measuring: Arc<Measuring>,
}

impl Scheduler {
    pub(crate) fn new(
        registry: Arc<Registry>,
        election: Arc<Election>,
        measuring: Arc<Measuring>,
    ) -> Self {
        Self { registry, election, measuring }
    }

    /// Schedules, ranks, keeps the history; never ends.
    pub(crate) async fn run(&self) {
        tokio::join!(self.pulses(), self.keep_history(), self.follow_others(), self.compactions());
    }

    async fn pulses(&self) {
        let took = (Duration::ZERO, Duration::ZERO);
        let mut made = Made { ranked: None, offered: None, took, broken: None, unassigned: None };
        loop {
            self.pulse().await;
            let measuring = &self.measuring;
            let broken =
                |what| self.registry.tell(&Event::Measuring(MeasureEvent::Broken { what }));
            if is_over(made.broken)
                && let Err(what) = measuring.refresh(&mut made).await
            {
                made.broken = Some(Instant::now());
                broken(what);
            }
            if measuring.assigning.has_broken() && is_over(made.unassigned) {
                made.unassigned = Some(Instant::now());
                broken("assigning relays by their load");
            }
            tokio::select! {
                () = sleep(PULSE) => {}
                () = self.measuring.news.notified() => {}
            }
        }
    }

    /// One look: follows the roster, ends what has had its time, gives orders.
    async fn pulse(&self) {
        let measuring = &*self.measuring;
        let (newest, standing) = (self.registry.newest(), self.election.standing());
        let mut state = measuring.state.lock().await;
        let (now, pace) = (measuring.now(), measuring.config.pace);
        state.follow(&newest.roster, &self.registry.node, now.time);
        state.elect(
            match standing {
                Standing::Elected { term } if measuring.config.enabled => Some(term),
                _ => None,
            },
            now.time,
        );
        state.settle(now, &pace);
        if let Standing::Elected { .. } = standing {
            state.look(now, pace.silent);
        }
        if state.term.is_some() {
            state.schedule(now.time, pace.silent, pace.rest);
        }
        measuring.tally.table(state.known.table().len());
        self.hand_on(state);
    }

    /// Gives the history what is to be kept, and tells of what happened.
    fn hand_on(&self, mut state: MutexGuard<'_, State>) {
        let (batch, events) = state.take_news();
        drop(state);
        self.measuring.history.add(batch);
        events.into_iter().for_each(|event| self.tell_measuring(Some(event)));
    }

    /// Orders for the member that this key stands for, as soon as there are any; empty if that
    /// does not happen in time, or `stop` becomes true.
    pub(crate) async fn orders(
        &self,
        key: NodeId,
        wait: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Orders, Refusal> {
        let measuring = &*self.measuring;
        let _place = Place::take(measuring, key)?;
        let Some((slot, wake)) = measuring.begin_poll(&key).await else {
            // The roster is newer than what the service has seen of it: it asks again.
            return Ok(Orders::default());
        };
        measuring.news.notify_one();
        let ordered = async {
            loop {
                let orders = measuring.fetch(slot, &self.registry.key).await;
                if !orders.orders.is_empty() {
                    return orders;
                }
                wake.notified().await;
            }
        };
        let waited = timeout(wait, async {
            tokio::select! {
                orders = ordered => Ok(orders),
                elected = self.another_elected() => Err(Refusal::NotElected(elected)),
                _ = stop.wait_for(|stop| *stop) => Ok(Orders::default()),
            }
        });
        waited.await.unwrap_or_else(|_| Ok(Orders::default()))
    }

    /// Returns when another oracle is known to be elected, with its name. Who began to wait here
    /// while nobody was would else hear of it only when its request ends.
    async fn another_elected(&self) -> String {
        loop {
            if let Standing::Another(elected) = self.election.standing() {
                return self.registry.name_of(&elected);
            }
            sleep(ELECTION_LOOK).await;
        }
    }

    /// Takes what the member that this key stands for reports.
    pub(crate) async fn take_reports(&self, key: &NodeId, reports: Reports) -> ReportsReply {
        let measuring = &*self.measuring;
        let newest = self.registry.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now();
        state.follow(&newest.roster, &self.registry.node, now.time);
        let Some(who) = state.nodes.by_key(key) else {
            let refused = vec!["this member was revoked just now".to_owned()];
            return ReportsReply { accepted: 0, refused };
        };
        let mut desk = Desk { state: &mut state, config: &measuring.config, who, now };
        let reply = desk.take(reports);
        drop(state);
        measuring.news.notify_one();
        reply
    }

    fn tell_measuring(&self, event: Option<MeasureEvent>) {
        event.into_iter().for_each(|event| self.registry.tell(&Event::Measuring(event)));
    }

    /// Keeps what is new; never ends.
    async fn keep_history(&self) {
        loop {
            let pause = if self.keep_some().await { EVERY } else { RETRY };
            sleep(pause).await;
        }
    }

    /// Keeps all that waits; false if the database does not take it.
    async fn keep_some(&self) -> bool {
        let history = &self.measuring.history;
        while let Some(batch) = history.next() {
            if let Err(error) = self.registry.store.record(&batch).await {
                self.tell_measuring(history.put_back(batch, error.to_string()));
                return false;
            }
            history.add_rows(batch.samples.len() as u64);
            self.tell_measuring(history.kept());
        }
        true
    }

    /// The last entries, also those since the last look, for a short time.
    pub(crate) async fn keep_last(&self) {
        self.hand_on(self.measuring.state.lock().await);
        let _ = timeout(LAST, self.keep_some()).await;
    }

    /// Reads what was measured before; then, of several oracles, what others record.
    async fn follow_others(&self) {
        let mut cursor = self.remember().await;
        if let Database::File = self.registry.config.database {
            return;
        }
        loop {
            sleep(self.measuring.config.pace.follow).await;
            // What is wrong with the database is told by the look for newer rosters.
            while let Ok(recent) = self.registry.store.load_since(cursor).await {
                cursor = recent.cursor;
                let is_last = recent.samples.is_empty();
                self.take_over(recent).await;
                if is_last {
                    break;
                }
            }
        }
    }

    /// Fills the table with what was measured before; tries until that is possible.
    async fn remember(&self) -> i64 {
        let mut told = None;
        loop {
            let oldest = earlier(self.registry.now(), MAX_AGE);
            match self.registry.store.load_recent(oldest).await {
                Ok(recent) => {
                    let cursor = recent.cursor;
                    self.take_over(recent).await;
                    return cursor;
                }
                Err(error) => {
                    let why = Some(error.to_string());
                    if why != told {
                        self.tell_measuring(why.clone().map(MeasureEvent::Forgotten));
                        told = why;
                    }
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn take_over(&self, recent: Recent) {
        let measuring = &*self.measuring;
        let newest = self.registry.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now();
        state.follow(&newest.roster, &self.registry.node, now.time);
        state.take_over(recent, now);
        drop(state);
        measuring.news.notify_one();
    }

    /// Makes old measurements shorter when it is time, if this oracle is elected.
    async fn compactions(&self) {
        let history = &self.measuring.history;
        let mut last: Option<Instant> = None;
        loop {
            let is_time =
                last.is_none_or(|last| last.elapsed() >= COMPACT) || history.rows() >= COMPACT_ROWS;
            if let (true, Standing::Elected { .. }) = (is_time, self.election.standing()) {
                last = Some(Instant::now());
                history.take_rows();
                // It is tried again; what is wrong is told by whoever writes.
                let _ = self.registry.store.compact(self.registry.now()).await;
            }
            sleep(COMPACT_LOOK).await;
        }
    }
}

/// For experiments with meshes that nobody has.
impl Scheduler {
    /// See [`crate::Oracle::assume`].
    pub(crate) async fn assume(&self, legs: impl IntoIterator<Item = SeedLeg>) {
        let mut state = self.measuring.state.lock().await;
        self.assume_in(&mut state, legs);
        drop(state);
        self.measuring.news.notify_one();
    }

    fn assume_in(&self, state: &mut State, legs: impl IntoIterator<Item = SeedLeg>) {
        let (newest, now) = (self.registry.newest(), self.measuring.now().time);
        state.follow(&newest.roster, &self.registry.node, now);
        let names = newest.roster.members.iter().map(|member| &member.name);
        let slots: Vec<_> = names.map(|name| state.nodes.by_name(name)).collect();
        let slot = |at: usize| slots.get(at).copied().flatten();
        for leg in legs {
            if let (Some(from), Some(to)) = (slot(leg.from), slot(leg.to)) {
                state.assume((from, to), leg.bps, now - leg.age, now);
            }
        }
    }

    /// See [`crate::Oracle::assume_present`].
    pub(crate) async fn assume_present(&self) {
        let measuring = &*self.measuring;
        let newest = self.registry.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now().time;
        state.follow(&newest.roster, &self.registry.node, now);
        (0..state.nodes.len()).for_each(|slot| state.presence.heard(slot, now));
    }

    /// See [`crate::Oracle::rank_timed`].
    pub(crate) fn rank_timed(&self) -> (usize, Duration) {
        let measuring = &*self.measuring;
        measuring.state.blocking_lock().known.forget_look();
        let began = Instant::now();
        let ranked = measuring.rank_now();
        (ranked.graph.measured(), began.elapsed())
    }

    /// See [`crate::Oracle::rank_next_timed`].
    pub(crate) fn rank_next_timed(&self, legs: impl IntoIterator<Item = SeedLeg>) -> Duration {
        let measuring = &*self.measuring;
        // What is new besides is ranked before.
        measuring.rank_now();
        self.assume_in(&mut measuring.state.blocking_lock(), legs);
        let began = Instant::now();
        measuring.rank_now();
        began.elapsed()
    }

    /// See [`crate::Oracle::orders_timed`].
    pub(crate) fn orders_timed(&self, looks: usize) -> (Duration, Vec<Duration>) {
        let measuring = &*self.measuring;
        let mut state = measuring.state.blocking_lock();
        state.planner.elected(1);
        let now = measuring.now().time;
        let (mut under_way, first) = state.orders_now(now);
        let mut times = vec![];
        while times.len() < looks && !under_way.is_empty() {
            let order = under_way.remove(0);
            state.planner.ended(order.id, End::Measured(1), now);
            let bps = 1e6 * (1 + order.id % 300) as f64;
            state.assume(order.leg, bps, now, now);
            let (orders, took) = state.orders_now(now);
            under_way.extend(orders);
            times.push(took);
        }
        (first, times)
    }
}

/// One measured leg.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The sender's position among the roster's members.
    pub from: usize,
    /// The receiver's.
    pub to: usize,
    /// bit/s.
    pub bps: f64,
    /// How long ago it was measured.
    pub age: Duration,
}
