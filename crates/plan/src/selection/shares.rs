//! Cutting the missing bytes into shares.

use super::ranges;
use std::ops::Range;

/// `count` shares of `missing`, equal to within one byte, in order; the paper's
/// N/(s+1) each when nothing is there yet. So the direct path's share is the first
/// part, which its first request began. O(ranges · count).
pub(super) fn split(missing: &[Range<u64>], count: u32) -> Vec<Vec<Range<u64>>> {
    let mut rest: Vec<_> = missing.iter().filter(|r| r.start < r.end).cloned().collect();
    let all = ranges::total(&rest);
    let quota = |i: u32| (u128::from(all) * u128::from(i) / u128::from(count.max(1))) as u64;
    let mut shares: Vec<_> =
        (0..count).rev().map(|i| ranges::cut_tail(&mut rest, quota(i + 1) - quota(i))).collect();
    shares.reverse();
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_to_a_byte_and_cover_all() {
        let shares = split(&[0..10, 20..27], 3);
        let sizes: Vec<u64> = shares.iter().map(ranges::total).collect();
        assert_eq!(sizes, [5, 6, 6]);
        let mut all: Vec<_> = shares.into_iter().flatten().collect();
        ranges::merge(&mut all);
        assert_eq!(all, [0..10, 20..27]);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn more_shares_than_bytes_leaves_some_empty() {
        let shares = split(&[5..7], 4);
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 2);
        assert_eq!(shares.len(), 4);
    }
}
