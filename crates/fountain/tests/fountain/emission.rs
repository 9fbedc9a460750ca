//! The order of emission, and casts through a ring to children of several rates.

use crate::stream::Cast;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use thalweg_fountain::{Emission, EmissionSettings, Geometry, SenderShare, SymbolId};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// 10 blocks of 64 symbols and one of 3, with 16 repair symbols.
fn cut() -> Geometry {
    Geometry::new((10 << 20) + 40_000, 1 << 14, 64, 16).expect("a cut")
}

fn take(emission: &mut Emission, n: u64, seed: u64) -> Vec<SymbolId> {
    let rng = &mut rng(seed);
    (0..n).filter_map(|_| emission.next(rng, |_| true)).collect()
}

#[test]
fn the_first_pass_sends_each_source_symbol_once_with_several_blocks_open() {
    let mut emission = Emission::new(cut(), EmissionSettings::default());
    let first = take(&mut emission, cut().symbols(), 1);
    let distinct: BTreeSet<SymbolId> = first.iter().copied().collect();
    assert_eq!(distinct.len() as u64, cut().symbols());
    assert!(first.iter().all(|id| cut().is_source(*id)));
    // Rounds of four blocks, each once, in different orders.
    let rounds: Vec<Vec<u32>> =
        first[..160].chunks(4).map(|round| round.iter().map(|id| id.block).collect()).collect();
    for round in &rounds {
        assert_eq!(round.iter().copied().collect::<BTreeSet<u32>>(), (0..4).collect());
    }
    assert!(rounds.iter().collect::<BTreeSet<_>>().len() > 8, "rounds are not permuted");
    // Within one block, symbols are in order.
    let esis: Vec<u32> = first.iter().filter(|id| id.block == 2).map(|id| id.esi).collect();
    assert_eq!(esis, (0..64).collect::<Vec<_>>());
}

#[test]
fn spent_blocks_get_repair_symbols_and_then_the_missing_ones() {
    let mut emission = Emission::new(cut(), EmissionSettings::default());
    take(&mut emission, cut().symbols(), 1);
    assert_eq!(emission.spent().collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
    assert!(take(&mut emission, 5, 2).is_empty(), "nobody said that anything is lacking");
    (0..11).filter(|block| *block != 5).for_each(|block| emission.finish(block));
    let esis = |ids: Vec<SymbolId>| ids.iter().map(|id| (id.block, id.esi)).collect::<Vec<_>>();
    // Of two answers, the larger need counts.
    emission.lacks(5, 2, [9, 3].into_iter());
    emission.lacks(5, 3, [1, 2, 3].into_iter());
    emission.lacks(4, 3, [1, 2, 3].into_iter());
    assert_eq!(esis(take(&mut emission, 9, 2)), [(5, 64), (5, 65), (5, 66)]);
    assert_eq!(emission.spent().collect::<Vec<_>>(), [5]);
    emission.lacks(5, 13, 0..13);
    assert_eq!(take(&mut emission, 99, 3).len(), 13);
    // Repair symbols are used up: the missing symbols themselves follow, as many as needed, none twice.
    emission.lacks(5, 2, [9, 3, 64].into_iter());
    emission.lacks(5, 2, [3, 7].into_iter());
    assert_eq!(esis(take(&mut emission, 9, 4)), [(5, 9), (5, 3), (5, 7)]);
    emission.finish(5);
    assert_eq!(emission.spent().count(), 0);
    emission.reopen_blocks();
    assert_eq!(emission.spent().count(), 11);
    emission.lacks(7, 64, 0..64);
    let ids = take(&mut emission, 99, 6);
    assert_eq!((ids.len(), ids.iter().all(|id| id.block == 7 && id.esi < 64)), (64, true));
    assert_eq!(emission.next(&mut rng(7), |_| false), None);
}

#[test]
fn a_forwarding_node_sends_only_missing_symbols_of_blocks_it_holds() {
    let share = SenderShare { index: 1, of: 2 };
    let mut emission = Emission::for_forwarder(cut(), EmissionSettings { width: 4, share });
    assert!(take(&mut emission, 5, 1).is_empty() && emission.spent().count() == 0);
    emission.hold(3);
    assert_eq!(emission.spent().collect::<Vec<_>>(), [3]);
    emission.lacks(3, 2, [5, 6].into_iter());
    assert_eq!(take(&mut emission, 5, 1).iter().map(|id| id.esi).collect::<Vec<_>>(), [72, 73]);
    // There is no proof of the other repair symbols.
    emission.lacks(3, 2, [5, 6].into_iter());
    emission.skip_repair(3);
    assert_eq!(emission.spent().collect::<Vec<_>>(), [3]);
    emission.lacks(3, 2, [5, 6].into_iter());
    assert_eq!(take(&mut emission, 5, 1).iter().map(|id| id.esi).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn symbols_that_nobody_can_take_now_are_sent_later() {
    let mut emission = Emission::new(cut(), EmissionSettings::default());
    let rng = &mut rng(1);
    let odd: Vec<SymbolId> =
        std::iter::from_fn(|| emission.next(rng, |block| block % 2 == 1)).collect();
    assert_eq!(odd.len(), 5 * 64);
    let rest: BTreeSet<SymbolId> = std::iter::from_fn(|| emission.next(rng, |_| true)).collect();
    assert_eq!(rest.len(), 5 * 64 + 3);
    assert!(rest.iter().all(|id| id.block % 2 == 0 && cut().is_source(*id)));
}

#[test]
fn senders_share_the_repair_symbols() {
    let mut seen = BTreeSet::new();
    for index in 0..3 {
        let share = SenderShare { index, of: 3 };
        let settings = EmissionSettings { width: 1, share };
        let geometry = Geometry::new(1 << 20, 1 << 14, 64, 16).expect("a cut");
        let mut emission = Emission::new(geometry, settings);
        let mut all = take(&mut emission, 64, 1);
        emission.lacks(0, 5, 0..5);
        all.extend(take(&mut emission, 64, 1));
        assert_eq!(all[0].esi, [0, 21, 42][index as usize]);
        let repair = all.iter().filter(|id| id.esi >= 64).map(|id| id.esi);
        repair.for_each(|esi| assert!(seen.insert(esi), "ESI {esi} is sent by two"));
    }
    assert_eq!(seen.len(), 15);
    assert!(
        take(
            &mut Emission::new(
                Geometry::for_length(0).expect("empty"),
                EmissionSettings::default()
            ),
            3,
            1
        )
        .is_empty()
    );
}

/// 24 MiB in symbols of 1 KiB.
fn object() -> Geometry {
    Geometry::new(24 << 20, 1 << 10, 1024, 256).expect("a cut")
}

#[test]
fn every_child_gets_its_own_rate() {
    let rates = [40_000, 40_000, 20_000, 12_000];
    let children = Cast::new(object(), &rates, 1).run(100_000);
    for (child, rate) in children.iter().zip(rates) {
        let best = object().symbols() * (1024 + 12) / rate;
        let finished = child.finished.expect("ends");
        assert!(finished as f64 <= best as f64 * 1.03, "at {rate}: {finished} instead of {best}");
        // Fast children need no source symbol again. Symbols that are in the ring when a slow child reports what it
        // lacks arrive twice; the ring alone is 4 % of this small object.
        let percent = if rate == 40_000 { 1 } else { 3 };
        let useless = child.useless * 100 / child.symbols;
        assert!(useless < percent, "at {rate}: {} of {}", child.useless, child.symbols);
    }
}

#[test]
fn a_crawling_child_changes_nothing_for_others() {
    let alone = Cast::new(object(), &[40_000, 20_000], 2).run(100_000);
    let beside = Cast::new(object(), &[40_000, 20_000, 400], 2).run(1500);
    for (alone, beside) in alone.iter().zip(&beside) {
        let (alone, beside) = (alone.finished.expect("ends"), beside.finished.expect("ends"));
        assert!(beside as f64 <= alone as f64 * 1.02, "{beside} instead of {alone}");
    }
    // Nearly all symbols that the slow child got were of use to it.
    let slow = &beside[2];
    assert!(slow.symbols > 300, "{} symbols", slow.symbols);
    assert!(slow.useless * 100 <= slow.symbols, "{} of {}", slow.useless, slow.symbols);
}
