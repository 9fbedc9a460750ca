//! What goes to the database, beside all else: a buffer that is never waited for.

use super::event::MeasureEvent;
use crate::store::{Batch, Change, Disagreement, Sample};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Entries of each kind that wait, about 10 MB: half a day of a mesh that measures once a
/// second. Beyond that the oldest go.
const MOST: usize = 50_000;

/// Entries of each kind that are kept in one go: a few transactions.
const AT_ONCE: usize = 1000;

/// What waits for the database.
#[derive(Debug, Default)]
pub(super) struct History {
    waiting: Mutex<Waiting>,
    /// Measurements that were kept since the database was last made shorter.
    rows: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    samples: VecDeque<Sample>,
    changes: VecDeque<Change>,
    disagreements: VecDeque<Disagreement>,
    lost: u64,
    /// The database does not take anything for now.
    is_stuck: bool,
}

/// Drops the oldest beyond the bound; how many.
fn bound<T>(entries: &mut VecDeque<T>) -> u64 {
    let beyond = entries.len().saturating_sub(MOST);
    entries.drain(..beyond);
    beyond as u64
}

impl Waiting {
    fn bound(&mut self) {
        self.lost += bound(&mut self.samples);
        self.lost += bound(&mut self.changes);
        self.lost += bound(&mut self.disagreements);
    }
}

fn first<T: Clone>(entries: &VecDeque<T>) -> Vec<T> {
    entries.iter().take(AT_ONCE).cloned().collect()
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Only whole entries are put in.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more measurements are in the database.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// How many since [`History::take_rows`].
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The database is about to be made shorter.
    pub fn take_rows(&self) {
        self.rows.store(0, Ordering::Relaxed);
    }

    /// Adds what is new.
    pub fn add(&self, batch: Batch) {
        let mut waiting = self.lock();
        waiting.samples.extend(batch.samples);
        waiting.changes.extend(batch.changes);
        waiting.disagreements.extend(batch.disagreements);
        waiting.bound();
    }

    /// What is to be kept next, taken out.
    pub fn next(&self) -> Option<Batch> {
        let mut waiting = self.lock();
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

    /// The database took it; what there is to tell.
    pub fn kept(&self) -> Option<MeasureEvent> {
        let mut waiting = self.lock();
        let lost = std::mem::take(&mut waiting.lost);
        std::mem::take(&mut waiting.is_stuck).then_some(MeasureEvent::Kept { lost })
    }

    /// The database did not take it: it waits on, before all that is newer.
    pub fn put_back(&self, batch: Batch, why: String) -> Option<MeasureEvent> {
        let mut waiting = self.lock();
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
    use crate::store::State;
    use thalweg_units::{NodeId, WallTime};

    fn batch(numbers: std::ops::Range<u64>) -> Batch {
        let change = |n: u64| Change {
            node: NodeId::from_bytes([1; 32]),
            state: State::Up,
            why: n.to_string(),
            at: WallTime::from_unix_nanos(n),
        };
        Batch { changes: numbers.map(change).collect(), ..Batch::default() }
    }

    #[test]
    fn what_fails_waits_in_order_and_is_told_of_once() {
        let history = History::default();
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
    fn beyond_the_bound_the_newest_stay() {
        let history = History::default();
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
