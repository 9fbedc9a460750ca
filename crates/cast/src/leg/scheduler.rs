//! Decides which symbols are requested from which parent: `fountain::Pull` behind a lock, with this process's clock.

use parking_lot::Mutex;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{
    ops::Range,
    time::{Duration, Instant},
};
use thalweg_fountain::{
    Geometry, HaveSet, ParentId, ParentStatus, Pull, PullSettings, ReceiptOutcome,
};
use thalweg_units::{Rate, Time};
use tokio::sync::Notify;

/// Schedules requests: each missing symbol is requested from one parent that has it, at the end from a second one too.
#[derive(Debug)]
pub struct SymbolScheduler {
    began: Instant,
    inner: Mutex<Inner>,
    /// Wakes legs when something may be requested that could not be before.
    pub changed: Notify,
}

#[derive(Debug)]
struct Inner {
    pull: Pull,
    random: Xoshiro256PlusPlus,
    next: u64,
}

impl SymbolScheduler {
    /// Creates the scheduler of an object, without parents; `have` is present. `seed` differs between receivers, so
    /// that they start at different places.
    pub fn new(geometry: Geometry, have: HaveSet, seed: u64) -> Self {
        let pull = Pull::new(geometry, have, PullSettings::default());
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let inner = Mutex::new(Inner { pull, random, next: 0 });
        Self { began: Instant::now(), inner, changed: Notify::new() }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Adds a parent with its expected rate; zero if unknown.
    pub fn join(&self, expected: Rate, rtt: Duration) -> ParentId {
        let (now, mut inner) = (self.now(), self.inner.lock());
        let id = ParentId(inner.next);
        inner.next += 1;
        inner.pull.join(id, expected, rtt, now);
        id
    }

    /// Removes a parent. The symbols that it owes are requested from others.
    pub fn leave(&self, id: ParentId) {
        self.inner.lock().pull.leave(id);
        self.changed.notify_waiters();
    }

    /// Adds symbols that a parent has.
    pub fn record_held(&self, id: ParentId, runs: &[(u64, u64)]) {
        let mut inner = self.inner.lock();
        runs.iter().for_each(|(from, to)| inner.pull.record_held(id, *from..*to));
    }

    /// Removes symbols that a parent no longer has.
    pub fn withdraw(&self, id: ParentId, runs: &[(u64, u64)]) {
        let (now, mut inner) = (self.now(), self.inner.lock());
        runs.iter().for_each(|(from, to)| inner.pull.withdraw(id, *from..*to, now));
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Records a verified symbol from a parent.
    pub fn receive(&self, id: ParentId, index: u64) -> ReceiptOutcome {
        let (now, mut inner) = (self.now(), self.inner.lock());
        inner.pull.receive(id, index, now)
    }

    /// Records verified symbols that came otherwise, so that they are not requested any more.
    pub fn record_obtained(&self, symbols: Range<u64>) {
        self.inner.lock().pull.record_obtained(symbols);
    }

    /// The state of a parent.
    pub fn status(&self, id: ParentId) -> Option<ParentStatus> {
        self.inner.lock().pull.status(id)
    }

    /// Whether a parent owes symbols and has sent nothing for too long.
    pub fn is_silent(&self, id: ParentId) -> bool {
        let now = self.now();
        self.inner.lock().pull.silent_parents(now).contains(&id)
    }

    /// The symbols to request from a parent now.
    pub fn next_requests(&self, id: ParentId) -> Vec<(u64, u64)> {
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let asks = inner.pull.next_requests(id, now, &mut inner.random);
        asks.into_iter().map(|run| (run.start, run.end)).collect()
    }
}
