//! The bytes written since the last checkpoint, by the path that delivered them.

use super::{Ranges, journal::Record};
use std::ops::Range;

/// Contiguous bytes delivered by one path.
struct Run {
    by: String,
    range: Range<u64>,
    hasher: Box<blake3::Hasher>,
}

/// The runs that are not journaled yet; usually one for each active path.
#[derive(Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Adds `data`, which begins at `start` and was delivered by `by`.
    pub(super) fn extend(&mut self, by: &str, start: u64, data: &[u8]) {
        let known = self.0.iter().position(|run| run.range.end == start && run.by == by);
        let i = known.unwrap_or_else(|| {
            let hasher = Box::new(blake3::Hasher::new());
            self.0.push(Run { by: by.to_owned(), range: start..start, hasher });
            self.0.len() - 1
        });
        let run = &mut self.0[i];
        run.hasher.update(data);
        run.range.end += data.len() as u64;
    }

    /// The records of the runs.
    pub(super) fn records(&self) -> Vec<Record> {
        let record = |run: &Run| Record {
            range: run.range.clone(),
            blake3: run.hasher.finalize().into(),
            by: run.by.clone(),
        };
        self.0.iter().map(record).collect()
    }

    /// Removes the runs for which `keep` returns false, given their path and range.
    pub(super) fn retain(&mut self, keep: impl Fn(&str, &Range<u64>) -> bool) {
        self.0.retain(|run| keep(&run.by, &run.range));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The bytes that each path has delivered.
#[derive(Default)]
pub(super) struct DeliveredBytes(Vec<(String, Ranges)>);

impl DeliveredBytes {
    /// Adds bytes that were not present before.
    pub(super) fn insert(&mut self, by: &str, range: Range<u64>) {
        match self.0.iter_mut().find(|(name, _)| name == by) {
            Some((_, ranges)) => ranges.insert(range),
            None => {
                let mut ranges = Ranges::default();
                ranges.insert(range);
                self.0.push((by.to_owned(), ranges));
            }
        }
    }

    /// Removes `range` from all paths. Returns the paths that delivered part of it.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Vec<String> {
        let hit = self.0.iter_mut().filter(|(_, ranges)| ranges.overlaps(range));
        hit.map(|(name, ranges)| {
            ranges.remove(range);
            name.clone()
        })
        .collect()
    }

    pub(super) fn delivered_by(&self, by: &str) -> Ranges {
        let known = self.0.iter().find(|(name, _)| name == by);
        known.map(|(_, ranges)| ranges.clone()).unwrap_or_default()
    }
}
