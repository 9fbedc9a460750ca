//! A buffer of entries for the database, so that measuring never waits for it.

use super::event::MeasureEvent;
use crate::store::{Batch, Disagreement, NodeChange, Sample};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

/// The most waiting entries of each kind, about 10 MB: half a day of a mesh that measures once a second. Beyond that
/// the oldest are dropped.
const MOST: usize = 50_000;

/// The most entries of each kind in one batch: a few transactions.
const AT_ONCE: usize = 1000;

/// The entries that wait for the database.
#[derive(Debug, Default)]
pub(super) struct HistoryBuffer {
    waiting: Mutex<PendingEntries>,
    /// Measurements stored since the last compaction.
    rows: AtomicU64,
}

#[derive(Debug, Default)]
struct PendingEntries {
    samples: VecDeque<Sample>,
    changes: VecDeque<NodeChange>,
    disagreements: VecDeque<Disagreement>,
    lost: u64,
    /// The database rejects writes at present.
    is_stuck: bool,
}

/// Drops the oldest entries beyond the bound. Returns how many.
fn bound<T>(entries: &mut VecDeque<T>) -> u64 {
    let beyond = entries.len().saturating_sub(MOST);
    entries.drain(..beyond);
    beyond as u64
}

impl PendingEntries {
    fn bound(&mut self) {
        self.lost += bound(&mut self.samples);
        self.lost += bound(&mut self.changes);
        self.lost += bound(&mut self.disagreements);
    }
}

fn first<T: Clone>(entries: &VecDeque<T>) -> Vec<T> {
    entries.iter().take(AT_ONCE).cloned().collect()
}

impl HistoryBuffer {
    /// Counts measurements that were stored in the database.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// The number of measurements stored since [`HistoryBuffer::take_rows`].
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Resets the count, before a compaction.
    pub fn take_rows(&self) {
        self.rows.store(0, Ordering::Relaxed);
    }

    /// Adds a batch to the entries that wait to be stored; drops the oldest beyond the bound.
    pub fn add(&self, batch: Batch) {
        let mut waiting = self.waiting.lock();
        waiting.samples.extend(batch.samples);
        waiting.changes.extend(batch.changes);
        waiting.disagreements.extend(batch.disagreements);
        waiting.bound();
    }

    /// Takes out the next batch to store.
    pub fn next(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let batch = Batch {
            samples: first(&waiting.samples),
            changes: first(&waiting.changes),
            disagreements: first(&waiting.disagreements),
        };
        waiting.samples.drain(..batch.samples.len());
        waiting.changes.drain(..batch.changes.len());
        waiting.disagreements.drain(..batch.disagreements.len());
        (batch != Batch::default()).then_some(batch)
    }

    /// Notes that the database took a batch. Returns an event if it had rejected one before.
    pub fn kept(&self) -> Option<MeasureEvent> {
        let mut waiting = self.waiting.lock();
        let lost = std::mem::take(&mut waiting.lost);
        std::mem::take(&mut waiting.is_stuck).then_some(MeasureEvent::Kept { lost })
    }

    /// Puts back a batch that the database rejected, before all newer entries. Returns an event if this is the first
    /// rejection.
    pub fn put_back(&self, batch: Batch, why: String) -> Option<MeasureEvent> {
        let mut waiting = self.waiting.lock();
        let Batch { samples, changes, disagreements } = batch;
        samples.into_iter().rev().for_each(|sample| waiting.samples.push_front(sample));
        changes.into_iter().rev().for_each(|change| waiting.changes.push_front(change));
        for disagreement in disagreements.into_iter().rev() {
            waiting.disagreements.push_front(disagreement);
        }
        waiting.bound();
        (!std::mem::replace(&mut waiting.is_stuck, true)).then_some(MeasureEvent::Unkept(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NodeState;
    use thalweg_units::{NodeId, WallTime};

    fn batch(numbers: std::ops::Range<u64>) -> Batch {
        let change = |n: u64| NodeChange {
            node: NodeId::from_bytes([1; 32]),
            state: NodeState::Up,
            why: n.to_string(),
            at: WallTime::from_unix_nanos(n),
        };
        Batch { changes: numbers.map(change).collect(), ..Batch::default() }
    }

    #[test]
    fn a_rejected_batch_waits_in_order_and_is_reported_once() {
        let history = HistoryBuffer::default();
        history.add(batch(0..3));
        let taken = history.next().unwrap();
        history.add(batch(3..4));
        assert!(history.put_back(taken, "locked".into()).is_some());
        let taken = history.next().unwrap();
        assert_eq!(taken, batch(0..4));
        assert_eq!(history.put_back(taken, "locked".into()), None, "told already");
        let _ = history.next().unwrap();
        assert_eq!(history.kept(), Some(MeasureEvent::Kept { lost: 0 }));
        assert_eq!((history.kept(), history.next()), (None, None));
    }

    #[test]
    fn beyond_the_bound_the_oldest_entries_are_dropped() {
        let history = HistoryBuffer::default();
        let all = MOST as u64 + 10;
        history.add(batch(0..all));
        let taken = history.next().unwrap();
        assert_eq!(taken.changes.first().unwrap().at.as_unix_nanos(), 10);
        history.put_back(taken, "full".into());
        history.add(batch(all..all + 5));
        assert_eq!(history.next().unwrap().changes[0].at.as_unix_nanos(), 15);
        assert_eq!(history.kept(), Some(MeasureEvent::Kept { lost: 15 }));
    }
}
