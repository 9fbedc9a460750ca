//! Who is asked for what: `fountain`'s scheduler behind a lock, with this process's clock.

use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_fountain::{Arrived, Geometry, HaveSet, ParentId, ParentStatus, Pull, PullSettings};
use thalweg_units::{Rate, Time};
use tokio::sync::Notify;

/// Each missing symbol is asked of one parent that has it; at the end of a second one.
#[derive(Debug)]
pub struct Desk {
    began: Instant,
    inner: Mutex<Inner>,
    /// Something may be asked that could not be before.
    pub changed: Notify,
}

#[derive(Debug)]
struct Inner {
    pull: Pull,
    random: Xoshiro256PlusPlus,
    next: u64,
}

impl Desk {
    /// Without a parent, for an object of which this is here. `seed`: another one for each receiver, so
    /// that they begin in different places.
    pub fn new(geometry: Geometry, have: HaveSet, seed: u64) -> Self {
        let pull = Pull::new(geometry, have, PullSettings::default());
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let inner = Mutex::new(Inner { pull, random, next: 0 });
        Self { began: Instant::now(), inner, changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in between would be the scheduler's; it has none.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// One more parent, with what is expected of it; zero: not known.
    pub fn join(&self, expected: Rate, rtt: Duration) -> ParentId {
        let (now, mut inner) = (self.now(), self.lock());
        let id = ParentId(inner.next);
        inner.next += 1;
        inner.pull.join(id, expected, rtt, now);
        id
    }

    /// It is gone; what it owed is asked of others.
    pub fn leave(&self, id: ParentId) {
        self.lock().pull.leave(id);
        self.changed.notify_waiters();
    }

    /// It has these, too.
    pub fn holds(&self, id: ParentId, runs: &[(u64, u64)]) {
        let mut inner = self.lock();
        runs.iter().for_each(|(from, to)| inner.pull.holds(id, *from..*to));
    }

    /// It has these no more.
    pub fn gone(&self, id: ParentId, runs: &[(u64, u64)]) {
        let (now, mut inner) = (self.now(), self.lock());
        runs.iter().for_each(|(from, to)| inner.pull.gone(id, *from..*to, now));
        drop(inner);
        self.changed.notify_waiters();
    }

    /// A proven symbol came.
    pub fn arrived(&self, id: ParentId, index: u64) -> Arrived {
        let (now, mut inner) = (self.now(), self.lock());
        inner.pull.arrived(id, index, now)
    }

    /// Proven symbols came otherwise: they are not asked for any more.
    pub fn obtained(&self, symbols: Range<u64>) {
        self.lock().pull.obtained(symbols);
    }

    /// How a parent does.
    pub fn status(&self, id: ParentId) -> Option<ParentStatus> {
        self.lock().pull.status(id)
    }

    /// Whether it owes something and has sent nothing for too long.
    pub fn is_silent(&self, id: ParentId) -> bool {
        let now = self.now();
        self.lock().pull.silent(now).contains(&id)
    }

    /// What it is to be asked for now.
    pub fn asks(&self, id: ParentId) -> Vec<(u64, u64)> {
        let now = self.now();
        let inner = &mut *self.lock();
        let asks = inner.pull.asks(id, now, &mut inner.random);
        asks.into_iter().map(|run| (run.start, run.end)).collect()
    }
}
