//! What measuring has come to since the start, for metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Counted where it happens, read without the table's lock.
#[derive(Debug)]
pub(super) struct Tally {
    counts: [AtomicU64; Count::ALL.len()],
    table: AtomicU64,
    legs: AtomicU64,
    rank_micros: AtomicU64,
    /// When the last ranking was made, ms after `start`, plus one; 0: none.
    ranked_at: AtomicU64,
    start: Instant,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Orders that were given.
    Ordered,
    /// Orders of which nothing came in time.
    Expired,
    /// Measurements that both ends told of alike.
    Agreed,
    /// Those of which they told different things.
    Disputed,
    /// Those of which one end alone told.
    Sole,
    /// Those whose rate is a lower bound.
    AtLeast,
    /// Orders that came to nothing.
    Failed,
    /// Reports of users' own transfers.
    Passive,
    /// Reports of available bandwidth.
    Probed,
    /// Reports that had been told before.
    Repeated,
    /// Reports that cannot be.
    Refused,
    /// Bytes that measurements moved.
    Bytes,
}

impl Count {
    /// All, in order.
    const ALL: [Self; 12] = [
        Self::Ordered,
        Self::Expired,
        Self::Agreed,
        Self::Disputed,
        Self::Sole,
        Self::AtLeast,
        Self::Failed,
        Self::Passive,
        Self::Probed,
        Self::Repeated,
        Self::Refused,
        Self::Bytes,
    ];
}

/// What measuring has come to since this process began; see [`crate::Oracle::measured`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasureCounts {
    /// Orders that were given.
    pub ordered: u64,
    /// Orders of which no sender told in time.
    pub expired: u64,
    /// Orders of which a sender told that nothing came of them.
    pub failed: u64,
    /// Measurements that both ends told of, within a quarter of each other.
    pub agreed: u64,
    /// Those of which they told different things: the disagreements.
    pub disputed: u64,
    /// Those of which one end alone told.
    pub sole: u64,
    /// Of all these, those that are lower bounds.
    pub at_least: u64,
    /// Reports of users' own transfers.
    pub passive: u64,
    /// Reports of available bandwidth, found by trains.
    pub probed: u64,
    /// Reports that had been told before.
    pub repeated: u64,
    /// Reports that were refused.
    pub refused: u64,
    /// Bytes that measurements moved, each counted once.
    pub bytes: u64,
    /// Estimates in the table.
    pub estimates: u64,
    /// Legs of the last ranking.
    pub legs: u64,
    /// How long ago the last ranking was made; none: never.
    pub rank_age: Option<Duration>,
    /// How long it took.
    pub rank_took: Duration,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            table: AtomicU64::default(),
            legs: AtomicU64::default(),
            rank_micros: AtomicU64::default(),
            ranked_at: AtomicU64::default(),
            start: Instant::now(),
        }
    }
}

impl Tally {
    /// One more.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// So many more.
    pub fn add(&self, what: Count, many: u64) {
        self.counts[what as usize].fetch_add(many, Ordering::Relaxed);
    }

    /// So many estimates are in the table now.
    pub fn table(&self, estimates: usize) {
        self.table.store(estimates as u64, Ordering::Relaxed);
    }

    /// So many legs were ranked just now, in this time.
    pub fn ranked(&self, legs: usize, took: Duration) {
        self.legs.store(legs as u64, Ordering::Relaxed);
        self.rank_micros.store(took.as_micros() as u64, Ordering::Relaxed);
        let at = self.start.elapsed().as_millis() as u64;
        self.ranked_at.store(at.saturating_add(1), Ordering::Relaxed);
    }

    /// All of it, now.
    pub fn read(&self) -> MeasureCounts {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let count = |what: Count| load(&self.counts[what as usize]);
        let ranked = load(&self.ranked_at).checked_sub(1).map(Duration::from_millis);
        MeasureCounts {
            ordered: count(Count::Ordered),
            expired: count(Count::Expired),
            failed: count(Count::Failed),
            agreed: count(Count::Agreed),
            disputed: count(Count::Disputed),
            sole: count(Count::Sole),
            at_least: count(Count::AtLeast),
            passive: count(Count::Passive),
            probed: count(Count::Probed),
            repeated: count(Count::Repeated),
            refused: count(Count::Refused),
            bytes: count(Count::Bytes),
            estimates: load(&self.table),
            legs: load(&self.legs),
            rank_age: ranked.map(|at| self.start.elapsed().saturating_sub(at)),
            rank_took: Duration::from_micros(load(&self.rank_micros)),
        }
    }
}
