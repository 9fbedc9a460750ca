//! A set of byte ranges.

use std::ops::Range;

/// Disjoint, non-touching, ascending byte ranges (end exclusive).
///
/// Insertion is O(ranges); a download has a few per path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds the bytes of `new`; those already there stay.
    pub fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let from = self.0.partition_point(|r| r.end < new.start);
        let to = self.0.partition_point(|r| r.start <= new.end);
        let touched = &self.0[from..to];
        let start = touched.first().map_or(new.start, |r| r.start.min(new.start));
        let end = touched.last().map_or(new.end, |r| r.end.max(new.end));
        self.0.splice(from..to, std::iter::once(start..end));
    }

    /// The bytes of `0..length` that are not in the set, ascending.
    pub fn missing(&self, length: u64) -> Vec<Range<u64>> {
        let starts = std::iter::once(0).chain(self.0.iter().map(|r| r.end));
        let ends = self.0.iter().map(|r| r.start).chain([length]);
        starts.zip(ends).map(|(a, b)| a..b.min(length)).filter(|r| r.start < r.end).collect()
    }

    /// How many bytes are in the set.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(parts in proptest::collection::vec((0u64..60, 0u64..20), 0..12)) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 80];
            for (start, len) in parts {
                ranges.insert(start..start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            let mut complement = [true; 80];
            for r in ranges.missing(80) {
                prop_assert!(r.start < r.end);
                complement[r.start as usize..r.end as usize].fill(false);
            }
            prop_assert_eq!(bytes, complement);
            prop_assert_eq!(ranges.total(), bytes.iter().filter(|b| **b).count() as u64);
            prop_assert!(ranges.0.windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}
