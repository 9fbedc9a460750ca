//! Entries that wait to be reported to the oracle.

use super::report_batch::{Entry, ReportBatch};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_wire::mesh::{
    Name,
    measure::{OrderReport, PassiveReport, ReceivedReport, TrainReport},
    measure_flow::Verdict,
};
use tokio::{sync::Notify, time::Instant};

/// The most entries of each kind that wait: a quarter of an hour of one measurement after another, or half a minute of
/// transfers over as many legs. The oldest are dropped first.
const MOST: usize = 512;

/// The entries that wait; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waiting: Mutex<Waiting>,
    news: Notify,
    /// The id of the next passive or probed entry.
    next_id: AtomicU64,
}

impl Default for Inner {
    /// Ids begin at random, so that those of two runs of a node differ.
    fn default() -> Self {
        let mut first = [0; 8];
        // Without randomness the second run's first entries may be taken for repetitions.
        _ = getrandom::fill(&mut first);
        let next_id = AtomicU64::new(u64::from_le_bytes(first));
        Self { waiting: Mutex::default(), news: Notify::new(), next_id }
    }
}

/// Entries, each with the time at which its age was right.
#[derive(Debug, Default)]
struct Waiting {
    done: VecDeque<(Instant, OrderReport)>,
    received: VecDeque<(Instant, ReceivedReport)>,
    passive: VecDeque<(Instant, PassiveReport)>,
    probed: VecDeque<(Instant, TrainReport)>,
}

impl Outbox {
    /// Adds the outcome of an order.
    pub(super) fn add_outcome(&self, done: OrderReport) {
        push(&mut self.0.waiting.lock().done, done);
        self.0.news.notify_one();
    }

    /// Adds what arrived in a measurement that `from` sent.
    pub(super) fn add_received(&self, order: u64, from: Name, found: &Verdict) {
        let (age, Verdict { bps, bytes, at_least, .. }) = (std::time::Duration::ZERO, *found);
        let received = ReceivedReport { id: order, from, bps, bytes, at_least, age };
        push(&mut self.0.waiting.lock().received, received);
        self.0.news.notify_one();
    }

    /// Adds what a user's own transfer showed, for the next regular report. The entry gets its id here, and keeps it
    /// however often it is reported.
    pub(super) fn add_transfer(&self, watched: PassiveReport) {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed).max(1);
        push(&mut self.0.waiting.lock().passive, PassiveReport { id, ..watched });
    }

    /// Adds what trains found, which is reported at once, since it does not stay valid for long. The entry gets its id
    /// here.
    pub(super) fn add_finding(&self, probed: TrainReport) {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed).max(1);
        push(&mut self.0.waiting.lock().probed, TrainReport { id, ..probed });
        self.0.news.notify_one();
    }

    /// Waits until there is an entry that the oracle waits for.
    pub(super) async fn wait_for_entry(&self) {
        self.0.news.notified().await;
    }

    /// Ends the waits of [`Outbox::wait_for_entry`], because entries that were put back wait as well.
    pub(super) fn wake(&self) {
        self.0.news.notify_one();
    }

    /// Takes at most `most` entries, first those that the oracle waits for.
    pub(super) fn take(&self, most: usize) -> ReportBatch {
        let (mut waiting, mut part) = (self.0.waiting.lock(), ReportBatch::default());
        let Waiting { done, received, passive, probed } = &mut *waiting;
        move_to(&mut part, most, done, Entry::Done);
        move_to(&mut part, most, received, Entry::Received);
        move_to(&mut part, most, probed, Entry::Probed);
        move_to(&mut part, most, passive, Entry::Passive);
        part
    }

    /// Puts back entries that could not be delivered, before newer ones. A load is not put back: the next one is as
    /// good.
    pub(super) fn put_back(&self, part: ReportBatch) {
        let mut waiting = self.0.waiting.lock();
        for (at, entry) in part.0.into_iter().rev() {
            match entry {
                Entry::Done(done) => waiting.done.push_front((at, done)),
                Entry::Received(received) => waiting.received.push_front((at, received)),
                Entry::Passive(watched) => waiting.passive.push_front((at, watched)),
                Entry::Probed(probed) => waiting.probed.push_front((at, probed)),
                Entry::Load(_) => {}
            }
        }
        let Waiting { done, received, passive, probed } = &mut *waiting;
        bound(done);
        bound(received);
        bound(passive);
        bound(probed);
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

fn move_to<T>(
    part: &mut ReportBatch,
    most: usize,
    from: &mut VecDeque<(Instant, T)>,
    entry: fn(T) -> Entry,
) {
    let fits = from.len().min(most.saturating_sub(part.0.len()));
    part.0.extend(from.drain(..fits).map(|(at, what)| (at, entry(what))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_wire::mesh::measure::{MOST_ENTRIES, Outcome};

    fn all(outbox: &Outbox) -> ReportBatch {
        outbox.take(usize::MAX)
    }

    fn failed(id: u64) -> OrderReport {
        let outcome = Outcome::Failed { why: "it is down".into(), is_down: true, bytes: 0 };
        OrderReport { id, outcome }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_age_while_they_wait_and_return_before_newer_ones() {
        let outbox = Outbox::default();
        let found = Verdict {
            bps: 1e6,
            spread_bps: None,
            steady: false,
            at_least: true,
            bytes: 1000,
            micros: 1_000_000,
        };
        outbox.add_received(7, "a".parse().unwrap(), &found);
        outbox.add_outcome(failed(1));
        outbox.wait_for_entry().await;
        let old = all(&outbox);
        assert!(all(&outbox).is_empty());
        outbox.add_outcome(failed(2));
        outbox.put_back(old);
        tokio::time::advance(Duration::from_secs(9)).await;
        let reports = all(&outbox).reports();
        assert_eq!(reports.done.iter().map(|d| d.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((reports.received[0].id, reports.received[0].age), (7, Duration::from_secs(9)));
        assert!(reports.received[0].at_least);
    }

    #[tokio::test]
    async fn a_passive_entry_keeps_its_id_when_it_is_reported_again() {
        let outbox = Outbox::default();
        let watched = PassiveReport {
            id: 0,
            from: "a".parse().unwrap(),
            to: "b".parse().unwrap(),
            bps: 1e6,
            at_least: false,
            bytes: 1000,
            age: Duration::ZERO,
        };
        outbox.add_transfer(watched.clone());
        outbox.add_transfer(watched);
        let ids = |w: &ReportBatch| w.reports().passive.iter().map(|w| w.id).collect::<Vec<_>>();
        let first = all(&outbox);
        let told = ids(&first);
        assert!(told[0] != 0 && told[1] != told[0], "{told:?}");
        outbox.put_back(first);
        assert_eq!(ids(&all(&outbox)), told);
    }

    #[tokio::test]
    async fn the_oldest_entries_are_dropped_beyond_the_limit() {
        let outbox = Outbox::default();
        (0..MOST as u64 + 3).for_each(|id| outbox.add_outcome(failed(id)));
        let done = all(&outbox).reports().done;
        assert_eq!((done.len(), done[0].id), (MOST, 3));
    }

    #[tokio::test]
    async fn parts_are_bounded_and_orders_come_first() {
        let outbox = Outbox::default();
        let watched = |n: u64| PassiveReport {
            id: 0,
            from: "a".parse().unwrap(),
            to: "b".parse().unwrap(),
            bps: 123_456_789.5 + n as f64,
            at_least: false,
            bytes: n,
            age: Duration::from_nanos(3_123_456_789),
        };
        (0..MOST as u64).for_each(|n| outbox.add_transfer(watched(n)));
        (0..MOST as u64).for_each(|id| outbox.add_outcome(failed(id)));
        let (mut sizes, mut ids) = (Vec::new(), Vec::new());
        loop {
            let part = outbox.take(MOST_ENTRIES);
            let reports = part.reports();
            if part.is_empty() {
                break;
            }
            assert!(part.fits(&reports));
            sizes.push((reports.done.len(), reports.passive.len()));
            ids.extend(reports.done.iter().map(|done| done.id));
        }
        assert_eq!(sizes, [(200, 0), (200, 0), (112, 88), (0, 200), (0, 200), (0, 24)]);
        assert_eq!(ids, (0..MOST as u64).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn halves_are_put_back_in_order() {
        let outbox = Outbox::default();
        (0..5).for_each(|id| outbox.add_outcome(failed(id)));
        let (first, second) = all(&outbox).halves().unwrap();
        assert_eq!((first.0.len(), second.0.len()), (2, 3));
        outbox.put_back(second);
        outbox.put_back(first);
        let ids: Vec<_> = all(&outbox).reports().done.iter().map(|done| done.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        outbox.add_outcome(failed(9));
        assert!(all(&outbox).halves().is_err(), "one entry has none");
    }
}
