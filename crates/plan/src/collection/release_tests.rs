//! Tests of which transfers begin when, on a plan like that of Fig. 3.

use super::*;
use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

const SLOT: Duration = Duration::from_secs(8);

fn path(source: u32, start: u32, via: &[u32]) -> TimedPath {
    TimedPath { source, start, via: via.to_vec(), units: 4 }
}

/// Step 0: S1→D, S2→S3, S2→D, S3→D; step 1: S3→D (second hop), S1→D; step 2: S2→S1; step 3: S1→D (second hop).
fn plan() -> Timetable {
    let paths = vec![
        path(0, 0, &[3]),
        path(1, 0, &[2, 3]),
        path(1, 0, &[3]),
        path(2, 0, &[3]),
        path(0, 1, &[3]),
        path(1, 2, &[0, 3]),
    ];
    Timetable { slots: 4, paths }
}

fn begun(release: &mut Release, now: Duration) -> Vec<(u32, usize)> {
    let due = release.due(now);
    due.iter().map(|index| (release.transfers()[*index].slot, *index)).collect()
}

#[test]
fn full_synchronisation_waits_for_every_transfer_of_the_step() {
    let mut release = Release::new(&plan(), Rule::Sync(1.0));
    let first = begun(&mut release, Duration::ZERO);
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|(slot, _)| *slot == 0));
    first[..3].iter().for_each(|(_, index)| release.done(*index));
    assert_eq!(begun(&mut release, SLOT * 9), []);
    release.done(first[3].1);
    let second = begun(&mut release, SLOT * 9);
    assert_eq!(second.iter().map(|at| at.0).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn partial_synchronisation_continues_except_for_data_that_waits_for_its_hop() {
    let mut release = Release::new(&plan(), Rule::Sync(0.75));
    let first = begun(&mut release, Duration::ZERO);
    // All but S2→S3 complete: its data cannot be forwarded, but the other transfer of step 1 can begin.
    let slow = release.transfers().iter().position(|t| (t.from, t.to) == (1, 2)).unwrap();
    first.iter().filter(|(_, index)| *index != slow).for_each(|(_, i)| release.done(*i));
    let second = begun(&mut release, Duration::ZERO);
    assert_eq!(second.len(), 1);
    assert_eq!(release.transfers()[second[0].1].path, 4);
}

#[test]
fn path_delay_holds_data_only_at_its_source() {
    let mut release = Release::new(&plan(), Rule::Delay(SLOT));
    assert_eq!(begun(&mut release, Duration::ZERO).len(), 4);
    assert_eq!(release.wakes(Duration::ZERO), Some(SLOT));
    let hop = release.transfers().iter().position(|t| (t.from, t.to) == (1, 2)).unwrap();
    release.done(hop);
    // The data is forwarded long before its step.
    assert_eq!(begun(&mut release, Duration::from_secs(1)), [(1, hop + 1)]);
    assert_eq!(begun(&mut release, SLOT), [(1, 5)]);
    assert_eq!(begun(&mut release, SLOT * 2).len(), 1);
    assert_eq!(release.wakes(SLOT * 2), None);
}

#[test]
fn parcels_of_one_host_follow_each_other() {
    let paths = [BestPath { source: 0, via: vec![1, 2], per_slot: 5 }];
    let plan = Timetable::of_best_paths(&paths, &[12]);
    let units: Vec<u64> = plan.paths.iter().map(|path| path.units).collect();
    assert_eq!((plan.slots, units), (4, vec![5, 5, 2]));
    let mut release = Release::new(&plan, Rule::Chain);
    assert_eq!(release.due(Duration::ZERO), [0]);
    release.done(0);
    // The first parcel is forwarded, the second leaves.
    assert_eq!(release.due(Duration::ZERO), [1, 2]);
}

#[test]
fn each_direct_method_begins_its_number_of_hosts() {
    let hosts = || (0..5).collect::<Vec<u32>>();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut first = |method, now| DirectRelease::new(method, hosts()).due(now, &mut rng).len();
    assert_eq!(first(Direct::AllAtOnce, Duration::ZERO), 5);
    assert_eq!(first(Direct::OneByOne, Duration::ZERO), 1);
    assert_eq!(first(Direct::Concurrent(3), Duration::ZERO), 3);
    let spread = Direct::SpreadInTime { group: 2, slot: SLOT };
    assert_eq!(first(spread, Duration::ZERO), 2);
    assert_eq!(first(spread, SLOT), 4);
}

#[test]
fn spread_in_time_does_not_wait_for_the_group_before() {
    let method = Direct::SpreadInTime { group: 2, slot: SLOT };
    let mut release = DirectRelease::new(method, vec![4, 5, 6]);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    assert_eq!(release.due(Duration::ZERO, &mut rng).len(), 2);
    assert_eq!(release.due(SLOT / 2, &mut rng), []);
    assert_eq!(release.wakes(), Some(SLOT));
    assert_eq!(release.due(SLOT, &mut rng).len(), 1);
    (0..3).for_each(|_| release.done());
    assert!(release.is_finished());
}

proptest! {
    /// Each transfer begins exactly once, in whatever order transfers end.
    #[test]
    fn all_transfers_begin_and_end(share in 0.0_f64..=1.0, seed: u64, kind in 0..3) {
        let rule = [Rule::Sync(share), Rule::Delay(SLOT), Rule::Chain][kind as usize];
        let mut release = Release::new(&plan(), rule);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut under_way, mut begun) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            under_way.extend(release.due(SLOT * 50));
            begun = under_way.iter().copied().chain(begun).collect();
            begun.sort_unstable();
            begun.dedup();
            if !under_way.is_empty() {
                let at = crate::draw::below(under_way.len(), &mut rng);
                release.done(under_way.swap_remove(at));
            }
        }
        prop_assert!(release.is_finished());
        prop_assert_eq!(begun.len(), release.transfers().len());
    }
}
