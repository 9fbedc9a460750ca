//! Sets of bytes as lists of ranges: ascending, disjoint, none empty.

use std::ops::Range;

/// The number of bytes in the ranges.
pub(super) fn total<'a>(ranges: impl IntoIterator<Item = &'a Range<u64>>) -> u64 {
    ranges.into_iter().map(|r| r.end.saturating_sub(r.start)).sum()
}

/// Sorts disjoint ranges and joins neighbours, so that fewer requests are needed.
pub(super) fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.retain(|r| r.start < r.end);
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, kept| {
        let touches = kept.end >= next.start;
        if touches {
            kept.end = kept.end.max(next.end);
        }
        touches
    });
}

/// Removes `gone` from the set. Returns how many of its bytes were there. O(ranges).
pub(super) fn remove(set: &mut Vec<Range<u64>>, gone: &Range<u64>) -> u64 {
    let from = set.partition_point(|r| r.end <= gone.start);
    let to = from + set[from..].partition_point(|r| r.start < gone.end);
    let there = |r: &Range<u64>| r.end.min(gone.end) - r.start.max(gone.start);
    let removed = set[from..to].iter().map(there).sum();
    let rests = match (set.get(from), to.checked_sub(1).and_then(|i| set.get(i))) {
        (Some(first), Some(last)) if from < to => [first.start..gone.start, gone.end..last.end],
        _ => return 0,
    };
    set.splice(from..to, rests.into_iter().filter(|r| r.start < r.end));
    removed
}

/// The bytes that are in both.
pub(super) fn common<'a>(
    set: &[Range<u64>],
    other: impl IntoIterator<Item = &'a Range<u64>>,
) -> Vec<Range<u64>> {
    let meet = |o: &'a Range<u64>| {
        let from = set.partition_point(|r| r.end <= o.start);
        let hits = set[from..].iter().take_while(move |r| r.start < o.end);
        hits.map(move |r| r.start.max(o.start)..r.end.min(o.end))
    };
    let mut both: Vec<_> = other.into_iter().flat_map(meet).collect();
    merge(&mut both);
    both
}

/// The first `n` bytes.
pub(super) fn head(ranges: &[Range<u64>], mut n: u64) -> Vec<Range<u64>> {
    let mut taken = Vec::new();
    for r in ranges {
        if n == 0 {
            break;
        }
        let end = r.end.min(r.start.saturating_add(n));
        n -= end - r.start;
        taken.push(r.start..end);
    }
    taken
}

/// Cuts off the last `n` bytes and returns them.
pub(super) fn cut_tail(ranges: &mut Vec<Range<u64>>, n: u64) -> Vec<Range<u64>> {
    let kept = head(ranges, total(ranges.iter()).saturating_sub(n));
    let mut tail = std::mem::replace(ranges, kept);
    for r in ranges.iter() {
        remove(&mut tail, r);
    }
    tail
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_join_and_empty_ranges_vanish() {
        let mut ranges = vec![8..9, 0..4, 6..6, 4..6];
        merge(&mut ranges);
        assert_eq!(ranges, [0..6, 8..9]);
    }

    #[test]
    fn a_tail_is_cut_across_ranges() {
        let mut ranges = vec![0..4, 6..10];
        assert_eq!(cut_tail(&mut ranges, 5), [3..4, 6..10]);
        assert_eq!(ranges, [0..3]);
        assert_eq!(cut_tail(&mut ranges, 9), [0..3]);
        assert!(ranges.is_empty());
    }

    fn set(ranges: &[Range<u64>]) -> BTreeSet<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn operations_agree_with_sets_of_bytes(
            parts in proptest::collection::vec((0u64..60, 1u64..9), 0..8),
            gone in (0u64..60, 0u64..20),
        ) {
            let mut ranges: Vec<_> = parts.iter().map(|(a, n)| *a..a + n).collect();
            merge(&mut ranges);
            let (before, gone) = (set(&ranges), gone.0..gone.0 + gone.1);
            let hit: BTreeSet<_> = before.iter().copied().filter(|b| gone.contains(b)).collect();
            prop_assert_eq!(set(&common(&ranges, [&gone])), hit.clone());
            prop_assert_eq!(remove(&mut ranges, &gone), hit.len() as u64);
            prop_assert_eq!(set(&ranges), before.difference(&hit).copied().collect());
            prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start || w[0].end == gone.start));
        }
    }
}
