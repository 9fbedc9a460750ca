//! Counts of measurements since the start, for metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The counters. They are read without the table's lock.
#[derive(Debug)]
pub(super) struct Tally {
    counts: [AtomicU64; Count::ALL.len()],
    table: AtomicU64,
    legs: AtomicU64,
    rank_micros: AtomicU64,
    /// When the last ranking was made, ms after `start` plus one; 0: never.
    ranked_at: AtomicU64,
    start: Instant,
}

/// The counted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Orders that were given.
    Ordered,
    /// Orders without a report in time.
    Expired,
    /// Measurements on which both ends agree.
    Agreed,
    /// Measurements on which the ends disagree.
    Disputed,
    /// Measurements that only one end reported.
    Sole,
    /// Measurements whose rate is a lower bound.
    AtLeast,
    /// Orders that failed.
    Failed,
    /// Reports of users' own transfers.
    Passive,
    /// Reports of available bandwidth.
    Probed,
    /// Reports that were repeated.
    Repeated,
    /// Reports that were refused as invalid.
    Refused,
    /// Bytes that measurements moved.
    Bytes,
}

impl Count {
    /// All kinds, in order.
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

/// Counts of measurements since this process began; see [`crate::Oracle::measured`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasureCounts {
    /// Orders that were given.
    pub ordered: u64,
    /// Orders whose sender did not report in time.
    pub expired: u64,
    /// Orders whose sender reported a failure.
    pub failed: u64,
    /// Measurements that both ends reported, within a quarter of each other.
    pub agreed: u64,
    /// Measurements whose reports differ by more: the disagreements.
    pub disputed: u64,
    /// Measurements that only one end reported.
    pub sole: u64,
    /// The measurements among these that are lower bounds.
    pub at_least: u64,
    /// Reports of users' own transfers.
    pub passive: u64,
    /// Reports of available bandwidth found by trains.
    pub probed: u64,
    /// Reports that were repeated.
    pub repeated: u64,
    /// Reports that were refused.
    pub refused: u64,
    /// Bytes that measurements moved, each counted once.
    pub bytes: u64,
    /// Estimates in the table.
    pub estimates: u64,
    /// Legs of the last ranking.
    pub legs: u64,
    /// How long ago the last ranking was made; `None`: never.
    pub rank_age: Option<Duration>,
    /// How long the last ranking took.
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
    /// Adds one.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `many`.
    pub fn add(&self, what: Count, many: u64) {
        self.counts[what as usize].fetch_add(many, Ordering::Relaxed);
    }

    /// Sets the number of estimates in the table.
    pub fn table(&self, estimates: usize) {
        self.table.store(estimates as u64, Ordering::Relaxed);
    }

    /// Notes that a ranking of this many legs was made, and the time it took.
    pub fn ranked(&self, legs: usize, took: Duration) {
        self.legs.store(legs as u64, Ordering::Relaxed);
        self.rank_micros.store(took.as_micros() as u64, Ordering::Relaxed);
        let at = self.start.elapsed().as_millis() as u64;
        self.ranked_at.store(at.saturating_add(1), Ordering::Relaxed);
    }

    /// Reads all counts.
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
