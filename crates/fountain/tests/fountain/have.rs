//! Sets of symbols, compared with the standard library's sets.

use proptest::prelude::*;
use std::{collections::BTreeSet, ops::Range};
use thalweg_fountain::{Geometry, HaveSet, MAX_LENGTH};

/// 3 MiB and a bit in symbols of 16 KiB and blocks of 64: 197 symbols, the last block has 5.
fn cut() -> Geometry {
    Geometry::new((3 << 20) + (4 << 14) + 1, 1 << 14, 64, 8).expect("exists")
}

fn members(runs: impl Iterator<Item = Range<u64>>) -> BTreeSet<u64> {
    runs.flatten().collect()
}

/// Whether runs are ascending, not empty, and do not touch.
fn tidy(runs: &[Range<u64>]) -> bool {
    runs.iter().all(|run| run.start < run.end)
        && runs.windows(2).all(|pair| pair[0].end < pair[1].start)
}

fn steps() -> impl Strategy<Value = Vec<(bool, Range<u64>)>> {
    let range = (0..197_u64, 0..90_u64).prop_map(|(start, len)| start..(start + len).min(197));
    prop::collection::vec((prop::bool::weighted(0.7), range), 0..20)
}

fn build(steps: &[(bool, Range<u64>)]) -> (HaveSet, BTreeSet<u64>) {
    let (mut set, mut plain) = (HaveSet::empty(&cut()), BTreeSet::new());
    for (add, range) in steps {
        if *add {
            let fresh = range.clone().filter(|i| plain.insert(*i)).count() as u64;
            assert_eq!(set.insert_range(range.clone()), Ok(fresh));
        } else {
            let gone = range.clone().filter(|i| plain.remove(i)).count() as u64;
            assert_eq!(set.remove_range(range.clone()), gone);
        }
    }
    (set, plain)
}

proptest! {
    #[test]
    fn a_have_set_behaves_like_a_set(steps in steps(), probe in 0..220_u64) {
        let (mut set, mut plain) = build(&steps);
        prop_assert_eq!(set.count(), plain.len() as u64);
        prop_assert_eq!(set.contains(probe), plain.contains(&probe));
        let runs: Vec<_> = set.runs().collect();
        prop_assert!(tidy(&runs), "{:?}", runs);
        prop_assert_eq!(&members(runs.iter().cloned()), &plain);
        prop_assert_eq!(members(set.missing()), (0..197).filter(|i| !plain.contains(i)).collect());
        prop_assert_eq!(HaveSet::from_ranges(&cut(), runs), Ok(set.clone()));
        let from: Vec<_> = set.runs_from(probe).collect();
        prop_assert!(tidy(&from));
        prop_assert_eq!(members(from.into_iter()), plain.range(probe..).copied().collect());
        prop_assert_eq!(set.count_in(20..probe), plain.range(20.min(probe)..probe).count() as u64);
        for block in 0..4 {
            let count = plain.range(u64::from(block) * 64..u64::from(block + 1) * 64).count();
            prop_assert_eq!(set.count_of(block), count as u32);
            prop_assert_eq!(set.holds_block(block), count == if block == 3 { 5 } else { 64 });
        }
        prop_assert_eq!(set.insert(probe), probe < 197 && plain.insert(probe));
    }

    #[test]
    fn beyond_is_the_set_difference(a in steps(), b in steps(), from in 0..200_u64) {
        let ((a, plain_a), (b, plain_b)) = (build(&a), build(&b));
        let runs: Vec<_> = a.difference(&b, from).collect();
        prop_assert!(tidy(&runs));
        let expected = plain_a.difference(&plain_b).copied().filter(|i| *i >= from).collect();
        prop_assert_eq!(members(runs.into_iter()), expected);
    }
}

#[test]
fn ranges_outside_the_object_are_refused() {
    let mut set = HaveSet::empty(&cut());
    assert!(set.insert_range(100..198).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "as a neighbour may send it")]
    let reversed = 9..3;
    assert!(set.insert_range(reversed).is_err());
    assert!(set.insert_range(u64::MAX - 1..u64::MAX).is_err());
    assert_eq!(set.count(), 0);
    assert_eq!(set.remove_range(150..u64::MAX), 0);
}

#[test]
fn a_set_of_4_tebibytes_is_iterated_by_blocks() {
    let cut = Geometry::for_length(MAX_LENGTH).expect("exists");
    let mut set = HaveSet::all(&cut);
    assert!(set.is_complete());
    assert_eq!(set.runs().collect::<Vec<_>>(), vec![0..1 << 26]);
    assert_eq!(set.remove_range(12_345_678..12_345_679), 1);
    assert_eq!(set.missing().collect::<Vec<_>>(), vec![12_345_678..12_345_679]);
    assert_eq!(set.full_blocks(), (1 << 17) - 1);
    let empty = HaveSet::empty(&Geometry::for_length(0).expect("exists"));
    assert!(empty.is_complete() && empty.runs().next().is_none());
}
