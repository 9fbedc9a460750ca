//! Blocks that are coded, lose symbols, and are solved out of core.

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use thalweg_fountain::{
    Geometry, HaveSet, SymbolId,
    codec::{
        AcceptError, AcceptOutcome, Assembly, BlockEncoder, BlockSolver, EncodeError, MemoryStore,
        PlanCache, SolveError, SolveOutcome,
    },
    digest::{ObjectHasher, SourcePage},
};

fn bytes_of(length: u64, rng: &mut impl Rng) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn pages(geometry: &Geometry, object: &[u8]) -> Vec<SourcePage> {
    let mut pages = Vec::new();
    let mut hasher = ObjectHasher::new(*geometry);
    hasher.update(object, &mut |page| pages.push(page));
    hasher.finish(&mut |page| pages.push(page));
    pages
}

/// All symbols of a block, source and repair.
fn symbols(geometry: &Geometry, object: &[u8], block: u32) -> Vec<(SymbolId, Vec<u8>)> {
    let range = geometry.bytes_of(block);
    let bytes = &object[range.start as usize..range.end as usize];
    let plan = PlanCache::new().get(geometry.source_symbols_of(block)).expect("a plan");
    let encoder = BlockEncoder::new(geometry, block, bytes, &plan).expect("its bytes");
    let source = bytes.chunks(geometry.symbol_bytes() as usize).map(<[u8]>::to_vec);
    let k = geometry.source_symbols_of(block);
    let repair = encoder.repair(k..geometry.encoding_symbols_of(block));
    (0..).zip(source.chain(repair)).map(|(esi, s)| (SymbolId { block, esi }, s)).collect()
}

fn shuffle<T>(items: &mut [T], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
}

/// Runs a solve on the store and reports its outcome to the assembly.
fn run(
    assembly: &mut Assembly,
    solve: &BlockSolver,
    store: &mut MemoryStore,
    page: &SourcePage,
) -> bool {
    let outcome = solve.run(store, Some(page)).expect("right bytes");
    assembly.record_solve(solve, outcome, store).expect("a store in memory")
}

fn check_content(geometry: &Geometry, object: &[u8], store: &MemoryStore) {
    for index in 0..geometry.symbols() {
        let (id, range) = (geometry.symbol(index), geometry.bytes_at(index).expect("exists"));
        let expected = &object[range.start as usize..range.end as usize];
        assert_eq!(store.get(id.expect("exists")), Some(expected), "symbol {index}");
    }
}

/// Casts an object and loses each symbol with this probability. Returns how many symbols beyond the object's own number
/// were kept.
fn cast(geometry: &Geometry, loss: f64, seed: u64) -> u64 {
    let rng = &mut rng(seed);
    let object = bytes_of(geometry.length(), rng);
    let pages = pages(geometry, &object);
    let (mut assembly, mut store) = (Assembly::new(*geometry), MemoryStore::new());
    let mut sent = Vec::new();
    (0..geometry.blocks()).for_each(|block| sent.extend(symbols(geometry, &object, block)));
    sent.retain(|_| (rng.next_u64() as f64 / u64::MAX as f64) >= loss);
    shuffle(&mut sent, rng);
    let (mut kept, mut useful) = (0, 0);
    for (id, bytes) in sent {
        let wanted = assembly.wants(id);
        let arrival = assembly.accept(id, &bytes, &mut store).expect("a symbol");
        assert_eq!(
            wanted,
            !matches!(arrival, AcceptOutcome::Duplicate | AcceptOutcome::Unneeded),
            "{id:?}"
        );
        kept += u64::from(wanted);
        if arrival == AcceptOutcome::Ready {
            let solve = assembly.solve(id.block).expect("ready");
            run(&mut assembly, &solve, &mut store, &pages[id.block as usize]);
        }
        assert!(assembly.progress().bytes_useful >= useful, "progress falls");
        useful = assembly.progress().bytes_useful;
    }
    assert!(assembly.is_complete(), "seed {seed}: {:?}", assembly.progress());
    assert_eq!((useful, assembly.progress().bytes_held), (geometry.length(), geometry.length()));
    check_content(geometry, &object, &store);
    kept - geometry.symbols()
}

#[test]
fn a_cast_with_losses_is_recovered() {
    // Symbols of 64 KiB are coded as two stripes; the last symbol is short.
    for (length, size, k) in
        [(1, 1 << 10, 1024), ((1 << 20) - 3, 1 << 12, 256), ((5 << 20) + 70_000, 1 << 16, 32)]
    {
        let geometry = Geometry::new(length, size, k, k / 2 + 8).expect("a cut");
        let beyond = cast(&geometry, 0.2, 7);
        assert!(beyond <= 3 * u64::from(geometry.blocks()), "{beyond} symbols too many");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_cast_is_recovered(length in 1..3_000_000_u64, size in 12..=15_u32, seed in any::<u64>()) {
        let k = 1 << (20 - size);
        let geometry = Geometry::new(length, 1 << size, k, 2 * k + 20).expect("a cut");
        cast(&geometry, 0.3, seed);
    }
}

/// A regression: the solve of the last block, whose last symbol is short, needs one more symbol.
#[test]
fn a_repair_symbol_counts_no_more_than_a_short_symbol_it_stands_for() {
    let geometry = Geometry::new(2_620_025, 1 << 14, 64, 148).expect("a cut");
    cast(&geometry, 0.3, 16_220_571_482_389_543_640);
}

#[test]
fn a_block_with_all_source_symbols_is_not_solved() {
    let geometry = Geometry::new(2 << 20, 1 << 14, 64, 8).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(1));
    let (mut assembly, mut store) = (Assembly::new(geometry), MemoryStore::new());
    let (first, second) = (symbols(&geometry, &object, 0), symbols(&geometry, &object, 1));
    // A repair symbol arrives first, then all source symbols.
    assert_eq!(assembly.accept(first[64].0, &first[64].1, &mut store), Ok(AcceptOutcome::Fresh));
    assert_eq!(assembly.lacks(0), 63);
    for (id, bytes) in &first[..63] {
        let last = id.esi == 62;
        let expected = if last { AcceptOutcome::Ready } else { AcceptOutcome::Fresh };
        assert_eq!(assembly.accept(*id, bytes, &mut store), Ok(expected));
    }
    // The block is ready, but its last source symbol arrives before it is solved.
    assert_eq!(assembly.accept(first[63].0, &first[63].1, &mut store), Ok(AcceptOutcome::Complete));
    assert!(assembly.solve(0).is_none());
    assert_eq!(store.discarded(), [0]);
    for (id, bytes) in &second[..64] {
        assembly.accept(*id, bytes, &mut store).expect("a symbol");
    }
    assert!(assembly.is_complete() && assembly.ready().next().is_none());
    assert_eq!(assembly.accept(first[65].0, &first[65].1, &mut store), Ok(AcceptOutcome::Unneeded));
    assert_eq!(assembly.accept(first[5].0, &first[5].1, &mut store), Ok(AcceptOutcome::Duplicate));
}

#[test]
fn encoding_is_the_same_everywhere_and_in_parts() {
    let geometry = Geometry::new(3 << 19, 1 << 16, 16, 40).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(3));
    let plan = PlanCache::new().get(8).expect("a plan");
    let encoder = BlockEncoder::new(&geometry, 1, &object[1 << 20..], &plan).expect("its bytes");
    let whole: Vec<Vec<u8>> =
        symbols(&geometry, &object, 1).into_iter().skip(8).map(|(_, bytes)| bytes).collect();
    assert_eq!(encoder.repair(8..48), whole);
    assert_eq!(encoder.repair(20..25), whole[12..17]);
    assert_eq!(encoder.repair(0..9), whole[..1]);
    assert_eq!(encoder.repair(u32::MAX - 1..u32::MAX).len(), 0);
    let short = EncodeError::Length { block: 1, got: 7, expected: 1 << 19 };
    assert_eq!(BlockEncoder::new(&geometry, 1, &object[..7], &plan).err(), Some(short));
    let other = EncodeError::Plan { block: 0, got: 8, expected: 16 };
    assert_eq!(BlockEncoder::new(&geometry, 0, &object[..1 << 20], &plan).err(), Some(other));
    let absent = EncodeError::Length { block: 2, got: 0, expected: 0 };
    assert_eq!(BlockEncoder::new(&geometry, 2, &[], &plan).err(), Some(absent));
    assert!(PlanCache::new().get(0).is_none() && PlanCache::new().get(60_000).is_none());
}

#[test]
fn symbols_arrive_during_a_solve_and_a_restart_continues() {
    let geometry = Geometry::new(1 << 20, 1 << 14, 64, 16).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(5));
    let (mut assembly, mut store) = (Assembly::new(geometry), MemoryStore::new());
    let all = symbols(&geometry, &object, 0);
    for (id, bytes) in &all[4..68] {
        assembly.accept(*id, bytes, &mut store).expect("a symbol");
    }
    let solve = assembly.solve(0).expect("ready");
    assert!(assembly.solve(0).is_none(), "solved twice at once");
    assert_eq!(assembly.accept(all[70].0, &all[70].1, &mut store), Ok(AcceptOutcome::Unneeded));
    assert_eq!(assembly.accept(all[0].0, &all[0].1, &mut store), Ok(AcceptOutcome::Fresh));
    // The process ends before the solve: the journal contains what was held.
    let have = HaveSet::from_ranges(&geometry, assembly.have().runs()).expect("ranges");
    let repair = (64..68).map(|esi| SymbolId { block: 0, esi });
    let mut resumed = Assembly::resume(geometry, have, repair);
    assert_eq!(resumed.ready().collect::<Vec<_>>(), [0]);
    // The old solve ends, and that of the new assembly as well.
    assembly.abandon(&solve);
    assert!(assembly.solve(0).is_some());
    let solve = resumed.solve(0).expect("ready");
    assert!(run(&mut resumed, &solve, &mut store, &pages(&geometry, &object)[0]));
    assert!(resumed.is_complete());
    check_content(&geometry, &object, &store);
}

#[test]
fn repair_symbols_are_kept_until_a_running_solve_ends() {
    let geometry = Geometry::new(1 << 20, 1 << 14, 64, 16).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(7));
    let all = symbols(&geometry, &object, 0);
    for outcome in [SolveOutcome::Recovered(4), SolveOutcome::TooFew] {
        let (mut assembly, mut store) = (Assembly::new(geometry), MemoryStore::new());
        for (id, bytes) in &all[4..68] {
            assembly.accept(*id, bytes, &mut store).expect("a symbol");
        }
        let solve = assembly.solve(0).expect("ready");
        let late = all[..4].iter().map(|(id, bytes)| assembly.accept(*id, bytes, &mut store));
        assert_eq!(late.last(), Some(Ok(AcceptOutcome::Complete)));
        assert!(store.discarded().is_empty(), "what the solve reads is gone");
        assert_eq!(assembly.record_solve(&solve, outcome, &mut store), Ok(true));
        assert_eq!((store.discarded(), assembly.ready().next()), (&[0][..], None));
    }
}

#[test]
fn a_failed_solve_waits_for_one_more_symbol() {
    let geometry = Geometry::new(1 << 20, 1 << 14, 64, 16).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(6));
    let (mut assembly, mut store) = (Assembly::new(geometry), MemoryStore::new());
    let all = symbols(&geometry, &object, 0);
    for (id, bytes) in &all[1..65] {
        assembly.accept(*id, bytes, &mut store).expect("a symbol");
    }
    let solve = assembly.solve(0).expect("ready");
    assert_eq!(assembly.record_solve(&solve, SolveOutcome::TooFew, &mut store), Ok(false));
    assert_eq!((assembly.lacks(0), assembly.ready().next()), (1, None));
    assert_eq!(assembly.accept(all[66].0, &all[66].1, &mut store), Ok(AcceptOutcome::Ready));
    assert_eq!(assembly.solve(0).expect("ready").symbols(), 65);
}

#[test]
fn absent_and_forged_symbols_are_refused() {
    let geometry = Geometry::new((1 << 20) + 5, 1 << 14, 64, 8).expect("a cut");
    let object = bytes_of(geometry.length(), &mut rng(8));
    let (mut assembly, mut store) = (Assembly::new(geometry), MemoryStore::new());
    let absent = SymbolId { block: 2, esi: 0 };
    assert_eq!(assembly.accept(absent, &[0; 5], &mut store), Err(AcceptError::Absent(absent)));
    assert!(!assembly.wants(absent));
    let id = SymbolId { block: 1, esi: 0 };
    let length = AcceptError::Length { id, got: 4, expected: 5 };
    assert_eq!(assembly.accept(id, &[0; 4], &mut store), Err(length));
    // A wrong repair symbol yields bytes that do not match the page.
    let mut all = symbols(&geometry, &object, 0);
    all[64].1[77] ^= 1;
    for (id, bytes) in &all[1..65] {
        assembly.accept(*id, bytes, &mut store).expect("a symbol");
    }
    let solve = assembly.solve(0).expect("ready");
    let page = &pages(&geometry, &object)[0];
    let outcome = solve.run(&mut store, Some(page));
    assert!(matches!(outcome, Err(SolveError::Forged(_))), "{outcome:?}");
    assembly.forget_repair(0);
    assert_eq!((assembly.lacks(0), assembly.ready().next()), (1, None));
}
