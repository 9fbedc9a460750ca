//! The order of emission, and casts through a ring with children of several rates.

use crate::stream::Cast;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use thalweg_fountain::{Emission, EmissionSettings, Geometry, Share, SymbolId};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// 10 blocks of 64 and one of 3, with 16 repair symbols.
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
    // Rounds of four blocks, each once, in orders that differ.
    let rounds: Vec<Vec<u32>> =
        first[..160].chunks(4).map(|round| round.iter().map(|id| id.block).collect()).collect();
    for round in &rounds {
        assert_eq!(round.iter().copied().collect::<BTreeSet<u32>>(), (0..4).collect());
    }
    assert!(rounds.iter().collect::<BTreeSet<_>>().len() > 8, "rounds are not permuted");
    // Of one block, in order.
    let esis: Vec<u32> = first.iter().filter(|id| id.block == 2).map(|id| id.esi).collect();
    assert_eq!(esis, (0..64).collect::<Vec<_>>());
}

#[test]
fn later_passes_send_repair_and_then_what_is_lacked() {
    let mut emission = Emission::new(cut(), EmissionSettings::default());
    take(&mut emission, cut().symbols(), 1);
    (0..11).filter(|block| *block != 5).for_each(|block| emission.done(block));
    let repair = take(&mut emission, 16, 2);
    let expected: Vec<SymbolId> = (64..80).map(|esi| SymbolId { block: 5, esi }).collect();
    assert_eq!(repair, expected);
    assert_eq!(emission.sent_of(5), 80);
    // Used up: all source symbols, from somewhere on.
    let again: BTreeSet<u32> = take(&mut emission, 64, 3).iter().map(|id| id.esi).collect();
    assert_eq!(again, (0..64).collect());
    assert!(emission.needs_lacked(5) && !emission.needs_lacked(4));
    emission.lacked(5, vec![9, 3, 64, 7]);
    assert!(!emission.needs_lacked(5));
    let lacked: Vec<u32> = take(&mut emission, 3, 4).iter().map(|id| id.esi).collect();
    assert_eq!(lacked, [9, 3, 7]);
    assert!(emission.needs_lacked(5));
    emission.done(5);
    assert!(take(&mut emission, 5, 5).is_empty());
    emission.joined();
    assert_eq!(take(&mut emission, 5, 6).len(), 5);
    assert!(emission.pass() > 1);
    assert_eq!(emission.next(&mut rng(7), |_| false), None);
}

#[test]
fn senders_share_the_repair_symbols() {
    let mut seen = BTreeSet::new();
    for index in 0..3 {
        let share = Share { index, of: 3 };
        let settings = EmissionSettings { width: 1, burst: 100, share };
        let geometry = Geometry::new(1 << 20, 1 << 14, 64, 16).expect("a cut");
        let mut emission = Emission::new(geometry, settings);
        let all = take(&mut emission, 64 + 5, 1);
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
        // The fast ones never need a source symbol again. What waits in the ring when a slow
        // one says what it lacks comes twice; the ring alone is 4 % of this small object.
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
    // And whatever the slow one got was of use to it.
    let slow = &beside[2];
    assert!(slow.symbols > 300, "{} symbols", slow.symbols);
    assert!(slow.useless * 100 <= slow.symbols, "{} of {}", slow.useless, slow.symbols);
}
