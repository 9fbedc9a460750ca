//! What waits to be reported to the oracle.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_wire::mesh::{
    Name,
    measure::{Done, Outcome, Received, Reports, Watched},
    measure_flow::Verdict,
};
use tokio::{sync::Notify, time::Instant};

/// Entries of each kind that wait: an hour of one measurement after another, and a leg to
/// each member of the largest mesh. The oldest are dropped first.
const MOST: usize = 512;

/// Entries that wait; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waiting: Mutex<Waiting>,
    news: Notify,
    /// Of the next passive entry.
    next_id: AtomicU64,
}

impl Default for Inner {
    /// Ids begin anywhere, so that those of two runs of a node are not the same.
    fn default() -> Self {
        let mut first = [0; 8];
        // Without randomness the second run's first entries may count as told before.
        _ = getrandom::fill(&mut first);
        let next_id = AtomicU64::new(u64::from_le_bytes(first));
        Self { waiting: Mutex::default(), news: Notify::new(), next_id }
    }
}

/// Entries with the times at which their ages were right.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    done: VecDeque<(Instant, Done)>,
    received: VecDeque<(Instant, Received)>,
    passive: VecDeque<(Instant, Watched)>,
}

impl Outbox {
    /// An order's end.
    pub(super) fn done(&self, done: Done) {
        push(&mut self.lock().done, done);
        self.0.news.notify_one();
    }

    /// What came in a measurement that `from` sent.
    pub(super) fn received(&self, order: u64, from: Name, found: &Verdict) {
        let (age, Verdict { bps, bytes, at_least, .. }) = (std::time::Duration::ZERO, *found);
        let received = Received { id: order, from, bps, bytes, at_least, age };
        push(&mut self.lock().received, received);
        self.0.news.notify_one();
    }

    /// What a user's own transfer showed; waits for the next regular report. It gets its id
    /// here, and keeps it however often it is told.
    pub(super) fn watched(&self, watched: Watched) {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed).max(1);
        push(&mut self.lock().passive, Watched { id, ..watched });
    }

    /// Ends when there is something that the oracle waits for.
    pub(super) async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Ends the waits of [`Outbox::news`], since what was put back waits as well.
    pub(super) fn wake(&self) {
        self.0.news.notify_one();
    }

    /// Takes all out.
    pub(super) fn take(&self) -> Waiting {
        std::mem::take(&mut self.lock())
    }

    /// Puts back what could not be delivered, before what came since.
    pub(super) fn put_back(&self, mut old: Waiting) {
        let mut waiting = self.lock();
        let newer = std::mem::take(&mut *waiting);
        old.done.extend(newer.done);
        old.received.extend(newer.received);
        old.passive.extend(newer.passive);
        bound(&mut old.done);
        bound(&mut old.received);
        bound(&mut old.passive);
        *waiting = old;
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push<T>(to: &mut VecDeque<(Instant, T)>, entry: T) {
    to.push_back((Instant::now(), entry));
    bound(to);
}

fn bound<T>(entries: &mut VecDeque<T>) {
    let over = entries.len().saturating_sub(MOST);
    entries.drain(..over);
}

impl Waiting {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.received.is_empty() && self.passive.is_empty()
    }

    /// As they are told now, each as much older as it has waited.
    pub fn reports(&self) -> Reports {
        let done = self.done.iter().map(|(at, done)| {
            let mut done = done.clone();
            if let Outcome::Measured { age, .. } = &mut done.outcome {
                *age += at.elapsed();
            }
            done
        });
        let received = self.received.iter();
        let received = received.map(|(at, r)| Received { age: r.age + at.elapsed(), ..r.clone() });
        let passive = self.passive.iter();
        let passive = passive.map(|(at, w)| Watched { age: w.age + at.elapsed(), ..w.clone() });
        Reports {
            done: done.collect(),
            received: received.collect(),
            passive: passive.collect(),
            load: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn failed(id: u64) -> Done {
        let outcome = Outcome::Failed { why: "it is down".into(), is_down: true, bytes: 0 };
        Done { id, outcome }
    }

    #[tokio::test(start_paused = true)]
    async fn ages_grow_while_entries_wait_and_what_failed_comes_first_again() {
        let outbox = Outbox::default();
        let found = Verdict {
            bps: 1e6,
            spread_bps: None,
            steady: false,
            at_least: true,
            bytes: 1000,
            micros: 1_000_000,
        };
        outbox.received(7, "a".parse().unwrap(), &found);
        outbox.done(failed(1));
        outbox.news().await;
        let old = outbox.take();
        assert!(outbox.take().is_empty());
        outbox.done(failed(2));
        outbox.put_back(old);
        tokio::time::advance(Duration::from_secs(9)).await;
        let reports = outbox.take().reports();
        assert_eq!(reports.done.iter().map(|d| d.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((reports.received[0].id, reports.received[0].age), (7, Duration::from_secs(9)));
        assert!(reports.received[0].at_least);
    }

    #[tokio::test]
    async fn a_passive_entry_keeps_its_id_when_it_is_told_again() {
        let outbox = Outbox::default();
        let watched = Watched {
            id: 0,
            from: "a".parse().unwrap(),
            to: "b".parse().unwrap(),
            bps: 1e6,
            at_least: false,
            bytes: 1000,
            age: Duration::ZERO,
        };
        outbox.watched(watched.clone());
        outbox.watched(watched);
        let ids = |w: &Waiting| w.reports().passive.iter().map(|w| w.id).collect::<Vec<_>>();
        let first = outbox.take();
        let told = ids(&first);
        assert!(told[0] != 0 && told[1] != told[0], "{told:?}");
        outbox.put_back(first);
        assert_eq!(ids(&outbox.take()), told);
    }

    #[tokio::test]
    async fn so_many_wait_and_the_oldest_go() {
        let outbox = Outbox::default();
        (0..MOST as u64 + 3).for_each(|id| outbox.done(failed(id)));
        let done = outbox.take().reports().done;
        assert_eq!((done.len(), done[0].id), (MOST, 3));
    }
}
