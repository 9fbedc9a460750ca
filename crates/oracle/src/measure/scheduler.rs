//! The oracle's measuring tasks: giving orders, taking reports, ranking, and storing the history.

use super::{
    MeasureEvent, MeasuringService,
    planner::OrderEnd,
    reports::ReportIntake,
    service::{PollPermit, RefreshState, may_retry},
    state::MeasureState,
};
use crate::{
    Database, Event, Refusal,
    election::{Election, ElectionState},
    registry::{Registry, earlier},
    store::{MOST_SAMPLES, Recent},
};
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

/// The period of the pulse when nothing happens: presence and deadlines are a matter of seconds.
const PULSE: Duration = Duration::from_millis(500);

/// How often a waiting request checks whether another oracle was elected.
const ELECTION_LOOK: Duration = Duration::from_millis(500);

/// How often waiting history is stored: the most that a killed oracle loses.
const STORE_PERIOD: Duration = Duration::from_millis(500);

/// The pause after the database rejected entries.
const RETRY: Duration = Duration::from_secs(10);

/// The pause between attempts to read earlier measurements.
const RELOAD_PAUSE: Duration = Duration::from_secs(60);

/// The time between compactions, which proceed in small steps. The first one runs once this oracle is elected.
const COMPACT: Duration = Duration::from_secs(3600);

/// A compaction also runs after this many new measurements: an eighth of the most that are kept singly.
const COMPACT_ROWS: u64 = MOST_SAMPLES.unsigned_abs() / 8;

/// How often to check whether a compaction is due.
const COMPACT_LOOK: Duration = Duration::from_secs(5);

/// The time limit for storing the last entries when the oracle stops.
const STOP_TIME: Duration = Duration::from_secs(2);

/// The measuring tasks, with the parts of the oracle that they need: rosters, database, election.
#[derive(Debug)]
pub(crate) struct Scheduler {
    registry: Arc<Registry>,
    election: Arc<Election>,
    pub(crate) measuring: Arc<MeasuringService>,
}

impl Scheduler {
    pub(crate) fn new(
        registry: Arc<Registry>,
        election: Arc<Election>,
        measuring: Arc<MeasuringService>,
    ) -> Self {
        Self { registry, election, measuring }
    }

    /// Schedules, ranks and stores the history; never returns.
    pub(crate) async fn run(&self) {
        tokio::join!(self.pulses(), self.keep_history(), self.follow_others(), self.compactions());
    }

    async fn pulses(&self) {
        let took = (Duration::ZERO, Duration::ZERO);
        let mut made = RefreshState {
            ranked: None,
            offered: None,
            took,
            broken: None,
            assignment_broken: None,
        };
        loop {
            self.pulse().await;
            let measuring = &self.measuring;
            let broken =
                |what| self.registry.emit(&Event::Measuring(MeasureEvent::Broken { what }));
            if may_retry(made.broken)
                && let Err(what) = measuring.refresh(&mut made).await
            {
                made.broken = Some(Instant::now());
                broken(what);
            }
            if measuring.assigning.has_broken() && may_retry(made.assignment_broken) {
                made.assignment_broken = Some(Instant::now());
                broken("assigning relays by their load");
            }
            tokio::select! {
                () = sleep(PULSE) => {}
                () = self.measuring.news.notified() => {}
            }
        }
    }

    /// One pulse: follows the roster, ends overdue orders, gives new ones.
    async fn pulse(&self) {
        let measuring = &*self.measuring;
        let (newest, standing) = (self.registry.newest(), self.election.state());
        let mut state = measuring.state.lock().await;
        let (now, pace) = (measuring.now(), measuring.config.pace);
        state.follow(&newest.roster, &self.registry.node, now.time);
        state.elect(
            match standing {
                ElectionState::Elected { term } if measuring.config.enabled => Some(term),
                _ => None,
            },
            now.time,
        );
        state.settle(now, &pace);
        if let ElectionState::Elected { .. } = standing {
            state.update_presence(now, pace.silent);
        }
        if state.term.is_some() {
            state.schedule(now.time, pace.silent, pace.rest);
        }
        measuring.tally.table(state.known.table().len());
        self.flush_news(state);
    }

    /// Hands entries to the history, and reports events.
    fn flush_news(&self, mut state: MutexGuard<'_, MeasureState>) {
        let (batch, events) = state.take_news();
        drop(state);
        self.measuring.history.add(batch);
        events.into_iter().for_each(|event| self.emit_measuring(Some(event)));
    }

    /// Waits for orders for the member with this principal. Empty if there are none in time, or `stop` becomes true.
    pub(crate) async fn orders(
        &self,
        key: NodeId,
        wait: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Orders, Refusal> {
        let measuring = &*self.measuring;
        let _place = PollPermit::take(measuring, key)?;
        let Some((slot, wake)) = measuring.begin_poll(&key).await else {
            // The roster is newer than the service's view; the member will poll again.
            return Ok(Orders::default());
        };
        measuring.news.notify_one();
        let ordered = async {
            loop {
                let orders = measuring.fetch(slot, &self.registry.keys.signing).await;
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

    /// Waits until another oracle is known to be elected, and returns its name. A request that began to wait while none
    /// was elected would otherwise only learn it at its end.
    async fn another_elected(&self) -> String {
        loop {
            if let ElectionState::Another(elected) = self.election.state() {
                return self.registry.name_of(&elected);
            }
            sleep(ELECTION_LOOK).await;
        }
    }

    /// Takes the reports of the member with this principal.
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
        let mut intake = ReportIntake { state: &mut state, config: &measuring.config, who, now };
        let reply = intake.take(reports);
        drop(state);
        measuring.news.notify_one();
        reply
    }

    fn emit_measuring(&self, event: Option<MeasureEvent>) {
        event.into_iter().for_each(|event| self.registry.emit(&Event::Measuring(event)));
    }

    /// Stores waiting history; never returns.
    async fn keep_history(&self) {
        loop {
            let pause = if self.store_waiting().await { STORE_PERIOD } else { RETRY };
            sleep(pause).await;
        }
    }

    /// Stores all waiting entries. Returns false if the database rejects them.
    async fn store_waiting(&self) -> bool {
        let history = &self.measuring.history;
        while let Some(batch) = history.next() {
            if let Err(error) = self.registry.store.record(&batch).await {
                self.emit_measuring(history.put_back(batch, error.to_string()));
                return false;
            }
            history.add_rows(batch.samples.len() as u64);
            self.emit_measuring(history.kept());
        }
        true
    }

    /// Stores the last entries, including those not yet handed to the history, within a short time.
    pub(crate) async fn store_last(&self) {
        self.flush_news(self.measuring.state.lock().await);
        let _ = timeout(STOP_TIME, self.store_waiting()).await;
    }

    /// Reads earlier measurements; then, if several oracles may exist, follows what the others record.
    async fn follow_others(&self) {
        let mut cursor = self.load_history().await;
        if let Database::File = self.registry.config.database {
            return;
        }
        loop {
            sleep(self.measuring.config.pace.follow).await;
            // Database errors are reported by `Oracle::tick`, which looks for newer rosters.
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

    /// Fills the table with earlier measurements; retries until it succeeds. Returns the cursor.
    async fn load_history(&self) -> i64 {
        let mut reported = None;
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
                    if why != reported {
                        self.emit_measuring(why.clone().map(MeasureEvent::Forgotten));
                        reported = why;
                    }
                }
            }
            sleep(RELOAD_PAUSE).await;
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

    /// Runs compactions when they are due, if this oracle is elected.
    async fn compactions(&self) {
        let history = &self.measuring.history;
        let mut last: Option<Instant> = None;
        loop {
            let is_time =
                last.is_none_or(|last| last.elapsed() >= COMPACT) || history.rows() >= COMPACT_ROWS;
            if let (true, ElectionState::Elected { .. }) = (is_time, self.election.state()) {
                last = Some(Instant::now());
                history.take_rows();
                // A failed compaction is retried; database errors are reported by writers.
                let _ = self.registry.store.compact(self.registry.now()).await;
            }
            sleep(COMPACT_LOOK).await;
        }
    }
}

/// For experiments with hypothetical meshes.
impl Scheduler {
    /// See [`crate::Oracle::assume`].
    pub(crate) async fn assume(&self, legs: impl IntoIterator<Item = SeedLeg>) {
        let mut state = self.measuring.state.lock().await;
        self.assume_in(&mut state, legs);
        drop(state);
        self.measuring.news.notify_one();
    }

    fn assume_in(&self, state: &mut MeasureState, legs: impl IntoIterator<Item = SeedLeg>) {
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
        (0..state.nodes.len()).for_each(|slot| state.presence.record_contact(slot, now));
    }

    /// See [`crate::Oracle::rank_timed`].
    pub(crate) fn rank_timed(&self) -> (usize, Duration) {
        let measuring = &*self.measuring;
        measuring.state.blocking_lock().known.forget_snapshot();
        let began = Instant::now();
        let ranked = measuring.rank_now();
        (ranked.graph.measured(), began.elapsed())
    }

    /// See [`crate::Oracle::rank_next_timed`].
    pub(crate) fn rank_next_timed(&self, legs: impl IntoIterator<Item = SeedLeg>) -> Duration {
        let measuring = &*self.measuring;
        // Rank other changes first, so that they do not count.
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
        state.planner.set_first_id(1);
        let now = measuring.now().time;
        let (mut under_way, first) = state.orders_now(now);
        let mut times = vec![];
        while times.len() < looks && !under_way.is_empty() {
            let order = under_way.remove(0);
            state.planner.finish_order(order.id, OrderEnd::Measured(1), now);
            let bps = 1e6 * (1 + order.id % 300) as f64;
            state.assume(order.leg, bps, now, now);
            let (orders, took) = state.orders_now(now);
            under_way.extend(orders);
            times.push(took);
        }
        (first, times)
    }
}

/// A measured leg, for experiments.
#[derive(Clone, Debug)]
pub struct SeedLeg {
    /// The sender's position among the roster's members.
    pub from: usize,
    /// The receiver's position.
    pub to: usize,
    pub bps: f64,
    /// How long ago it was measured.
    pub age: Duration,
}
