//! Cutting the missing bytes into shares, and putting remainders together.

use std::{collections::VecDeque, ops::Range};

/// One path's share: ranges in ascending order.
pub(super) type Share = VecDeque<Range<u64>>;

/// `count` shares of `missing`, equal to within one byte, in order; the paper's
/// N/(s+1) each when nothing is there yet. O(ranges + count).
pub(super) fn split(missing: &[Range<u64>], count: u32) -> Vec<Share> {
    let total: u64 = missing.iter().map(|r| r.end.saturating_sub(r.start)).sum();
    let quota = |i: u32| (u128::from(total) * u128::from(i) / u128::from(count.max(1))) as u64;
    let mut rest: Share = missing.iter().filter(|r| r.start < r.end).cloned().collect();
    (0..count).map(|i| take(&mut rest, quota(i + 1) - quota(i))).collect()
}

/// The first `n` bytes of `rest`.
fn take(rest: &mut Share, mut n: u64) -> Share {
    let mut share = Share::new();
    while n > 0 {
        let Some(range) = rest.pop_front() else { break };
        let cut = range.end.min(range.start + n);
        n -= cut - range.start;
        share.push_back(range.start..cut);
        if cut < range.end {
            rest.push_front(cut..range.end);
        }
    }
    share
}

/// Sorts disjoint ranges and joins neighbours, so that fewer requests are needed.
pub(super) fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.retain(|r| r.start < r.end);
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, kept| {
        let touches = kept.end == next.start;
        if touches {
            kept.end = next.end;
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_to_a_byte_and_cover_all() {
        let shares = split(&[0..10, 20..27], 3);
        let sizes: Vec<u64> =
            shares.iter().map(|s| s.iter().map(|r| r.end - r.start).sum()).collect();
        assert_eq!(sizes, [5, 6, 6]);
        let mut all: Vec<_> = shares.into_iter().flatten().collect();
        merge(&mut all);
        assert_eq!(all, [0..10, 20..27]);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn more_shares_than_bytes_leaves_some_empty() {
        let shares = split(&[5..7], 4);
        assert_eq!(shares.iter().map(VecDeque::len).sum::<usize>(), 2);
        assert_eq!(shares.len(), 4);
    }

    #[test]
    fn neighbours_join_and_empty_ranges_vanish() {
        let mut ranges = vec![8..9, 0..4, 6..6, 4..6];
        merge(&mut ranges);
        assert_eq!(ranges, [0..6, 8..9]);
    }
}
