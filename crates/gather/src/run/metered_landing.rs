//! Counts and limits received bytes before they land.

use super::{super::facts::TransferFacts, progress_reporter::SourceCounters};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::{collections::BTreeMap, ops::Range, sync::Arc};
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    rate_limit::RateLimit,
};
use thalweg_files::{
    inventory::{FileNo, Inventory},
    land::{Land, LandError},
};
use thalweg_part::Ranges;
use thalweg_units::ByteSize;
use tokio::time::sleep;

/// Counts bytes by source, and delays them to keep the rate limit; the delay slows the senders down. Bytes that arrive
/// a second time (copies of slow pieces) count as duplicates.
#[derive(Debug)]
pub(super) struct MeteredLanding {
    land: Arc<dyn Land>,
    /// The source of each file.
    sources: Vec<u32>,
    received: Mutex<ReceivedRanges>,
    counts: Arc<SourceCounters>,
    limit: Option<RateLimit>,
    budget: Arc<Budget>,
    facts: Arc<TransferFacts>,
}

impl MeteredLanding {
    pub(super) fn new(
        land: Arc<dyn Land>,
        inventory: &Inventory,
        counts: Arc<SourceCounters>,
        limit: Option<RateLimit>,
        budget: Arc<Budget>,
        facts: Arc<TransferFacts>,
    ) -> Self {
        let sources = inventory.files.iter().map(|wanted| wanted.source).collect();
        let received = Mutex::new(ReceivedRanges::new(inventory));
        Self { land, sources, received, counts, limit, budget, facts }
    }

    /// The bytes received of these files of the inventory; duplicates count once.
    pub(super) fn received_of(&self, inventory: &Inventory, files: &[u32]) -> u64 {
        let received = self.received.lock();
        let of = |file: &u32| {
            let wanted = inventory.files.get(*file as usize)?;
            let all: u64 = wanted.missing.iter().map(|range| range.end - range.start).sum();
            Some(all - received.left.get(*file as usize)?.min(&all))
        };
        files.iter().filter_map(of).sum()
    }

    fn count(&self, file: FileNo, range: Range<u64>) {
        let Some(source) = self.sources.get(file.0 as usize) else { return };
        let all = range.end - range.start;
        let fresh = self.received.lock().take(file.0, range);
        if fresh > 0 {
            self.counts.add_received(*source, fresh);
        }
        self.counts.add_duplicates(*source, all - fresh);
        for (purpose, bytes) in [(Purpose::Data, fresh), (Purpose::Duplicate, all - fresh)] {
            if bytes > 0 {
                self.budget.charge(Scope::purpose(purpose), ByteSize::from_bytes(bytes));
            }
        }
    }
}

impl Land for MeteredLanding {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        Box::pin(async move {
            let count = bytes.len() as u64;
            if let Some(limit) = &self.limit {
                let _waiting = self.facts.limit.begin();
                sleep(limit.charge(count)).await;
            }
            let waiting = self.facts.disk.begin();
            self.land.write(file, at, bytes).await?;
            drop(waiting);
            self.count(file, at..at.saturating_add(count));
            Ok(())
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.land.give_up(file, why);
    }
}

/// The received ranges of all files.
#[derive(Debug, Default)]
struct ReceivedRanges {
    /// Missing bytes, by file.
    left: Vec<u64>,
    /// Received ranges of files that arrived in part; for complete files `left` is enough.
    parts: BTreeMap<u32, Ranges>,
}

impl ReceivedRanges {
    fn new(inventory: &Inventory) -> Self {
        let bytes = |range: &Range<u64>| range.end - range.start;
        let left = inventory.files.iter().map(|w| w.missing.iter().map(bytes).sum()).collect();
        Self { left, parts: BTreeMap::new() }
    }

    /// Returns the number of new bytes in this range.
    fn take(&mut self, file: u32, range: Range<u64>) -> u64 {
        let Some(left) = self.left.get_mut(file as usize).filter(|left| **left > 0) else {
            return 0;
        };
        let parts = self.parts.entry(file).or_default();
        let before = parts.total();
        parts.insert(range);
        let fresh = parts.total() - before;
        *left = left.saturating_sub(fresh);
        if *left == 0 {
            self.parts.remove(&file);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_received_twice_count_once() {
        let mut came = ReceivedRanges { left: vec![10, 5], parts: BTreeMap::new() };
        assert_eq!(came.take(0, 0..6), 6);
        assert_eq!(came.take(0, 4..8), 2);
        assert_eq!(came.take(0, 0..10), 2);
        assert_eq!(came.take(0, 0..10), 0, "it is whole");
        assert_eq!((came.take(1, 0..5), came.take(1, 0..5), came.take(2, 0..5)), (5, 0, 0));
        assert!(came.parts.is_empty());
    }
}
