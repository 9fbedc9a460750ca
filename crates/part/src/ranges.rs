//! A set of byte ranges.

use std::ops::Range;

/// Disjoint, non-touching, ascending byte ranges (end exclusive).
///
/// Insertion is O(ranges); a download has a few per path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds the bytes of `new`. Bytes that are in the set already stay.
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

    /// Removes the bytes of `gone`. Bytes that are not in the set are no error.
    pub fn remove(&mut self, gone: &Range<u64>) {
        if !self.overlaps(gone) {
            return;
        }
        let keep = |r: &Range<u64>| [r.start..r.end.min(gone.start), r.start.max(gone.end)..r.end];
        self.0 = self.0.iter().flat_map(keep).filter(|r| r.start < r.end).collect();
    }

    /// Whether any byte of `range` is in the set.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let next = self.0.partition_point(|r| r.end <= range.start);
        !range.is_empty() && self.0.get(next).is_some_and(|r| r.start < range.end)
    }

    /// The bytes of `range` that are not in the set, ascending.
    pub fn missing_of(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let within = |r: Range<u64>| r.start.max(range.start)..r.end.min(range.end);
        let all = self.missing(range.end).into_iter().map(within);
        all.filter(|r| r.start < r.end).collect()
    }

    /// The end of the bytes that follow byte 0 without a gap.
    pub fn prefix(&self) -> u64 {
        self.0.first().filter(|r| r.start == 0).map_or(0, |r| r.end)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of `0..length` that are not in the set, ascending.
    pub fn missing(&self, length: u64) -> Vec<Range<u64>> {
        let starts = std::iter::once(0).chain(self.0.iter().map(|r| r.end));
        let ends = self.0.iter().map(|r| r.start).chain([length]);
        starts.zip(ends).map(|(a, b)| a..b.min(length)).filter(|r| r.start < r.end).collect()
    }

    /// The number of bytes in the set.
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
        fn ranges_are_a_set_of_bytes(
            parts in proptest::collection::vec((0u64..60, 0u64..20, any::<bool>()), 0..12),
            (from, n) in (0u64..60, 0u64..20),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 80];
            for (start, len, add) in parts {
                let range = start..start + len;
                if add { ranges.insert(range) } else { ranges.remove(&range) }
                bytes[start as usize..(start + len) as usize].fill(add);
            }
            let window = &bytes[from as usize..(from + n) as usize];
            prop_assert_eq!(ranges.overlaps(&(from..from + n)), window.contains(&true));
            let gaps: u64 = ranges.missing_of(&(from..from + n)).iter().map(|r| r.end - r.start).sum();
            prop_assert_eq!(gaps, window.iter().filter(|b| !**b).count() as u64);
            let gap = bytes.iter().position(|b| !b).unwrap_or(80);
            prop_assert_eq!(ranges.prefix(), gap as u64);
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
