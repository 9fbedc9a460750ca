//! Geometries of objects of every length.

use proptest::prelude::*;
use thalweg_fountain::{
    CHUNK_BYTES, Geometry, GeometryError, MAX_BLOCK_BYTES, MAX_LENGTH, MAX_SYMBOL_BYTES,
    MAX_SYMBOLS, MIN_SYMBOL_BYTES, SymbolId,
};

#[test]
fn the_default_cut_fits_every_length() {
    let cut = |length| {
        let g = Geometry::for_length(length).expect("exists");
        (g.symbol_bytes(), g.block_symbols(), g.repair_symbols(), g.symbols(), g.blocks())
    };
    assert_eq!(cut(0), (1 << 10, 1024, 8, 0, 0));
    assert_eq!(cut(1), (1 << 10, 1024, 8, 1, 1));
    assert_eq!(cut(1 << 20), (2 << 10, 512, 128, 512, 1));
    assert_eq!(cut((8 << 20) + 1), (16 << 10, 512, 128, 513, 2));
    assert_eq!(cut(20_000_000_000), (16 << 10, 512, 128, 1_220_704, 2385));
    assert_eq!(cut(MAX_LENGTH), (64 << 10, 512, 128, 1 << 26, 1 << 17));
    assert_eq!(Geometry::for_length(MAX_LENGTH + 1), Err(GeometryError::Length(MAX_LENGTH + 1)));
    assert_eq!(Geometry::for_length(u64::MAX), Err(GeometryError::Length(u64::MAX)));
}

#[test]
fn impossible_geometries_are_refused() {
    let new = Geometry::new;
    assert_eq!(new(1, 3000, 1024, 8), Err(GeometryError::SymbolBytes(3000)));
    assert_eq!(new(1, 512, 2048, 8), Err(GeometryError::SymbolBytes(512)));
    assert_eq!(new(1, 1 << 17, 8, 8), Err(GeometryError::SymbolBytes(1 << 17)));
    assert_eq!(new(1, 1 << 14, 0, 8), Err(GeometryError::BlockSymbols(0)));
    assert_eq!(new(1, 1 << 14, 65, 8), Err(GeometryError::BlockSymbols(65)));
    assert_eq!(new(1, 1 << 16, u32::MAX, 8), Err(GeometryError::BlockSymbols(u32::MAX)));
    for bytes in [0, 3_000_000, MAX_BLOCK_BYTES + (1 << 20)] {
        assert_eq!(Geometry::check_block(bytes), Err(GeometryError::BlockBytes(bytes)));
    }
    assert_eq!(Geometry::check_block(MAX_BLOCK_BYTES), Ok(()));
    let said = GeometryError::BlockBytes(3_000_000).to_string();
    assert!(said.contains("blocks of 3 MB") && said.contains("4MiB"), "{said}");
    assert_eq!(new(1, 1 << 14, 64, 1 << 15), Err(GeometryError::RepairSymbols(1 << 15)));
    assert_eq!(new(MAX_LENGTH, 1 << 13, 128, 8), Err(GeometryError::Symbols(2 * MAX_SYMBOLS)));
}

#[test]
fn the_last_symbol_is_short_and_repair_symbols_are_whole() {
    let g = Geometry::new((9 << 20) + 5, 1 << 14, 512, 8).expect("exists");
    assert_eq!((g.blocks(), g.source_symbols_of(1), g.source_symbols_of(2)), (2, 65, 0));
    assert_eq!(g.bytes_in(SymbolId { block: 1, esi: 64 }), Some(5));
    assert_eq!(g.bytes_in(SymbolId { block: 1, esi: 65 }), Some(1 << 14));
    assert_eq!(g.bytes_in(SymbolId { block: 1, esi: 73 }), None);
    assert_eq!(g.bytes_in(SymbolId { block: 2, esi: 0 }), None);
    assert_eq!((g.chunks_of(0), g.chunks_of(1), g.chunks()), (0..8, 8..10, 10));
    assert_eq!(g.bytes_of(1), 8 << 20..(9 << 20) + 5);
    assert!(!g.has(SymbolId { block: u32::MAX, esi: 0 }));
    assert!(g.chunks_of(u32::MAX).is_empty() && g.bytes_of(u32::MAX).is_empty());
}

/// Any valid geometry.
fn any_cut() -> impl Strategy<Value = Geometry> {
    (any::<u64>(), 10..=16_u32, 1..=32_u32, 0..=64_u32).prop_filter_map(
        "too many symbols",
        |(seed, size, blocks, repair)| {
            let length = seed >> (seed % 43).max(22);
            let k = (blocks << (20 - size)).min(1 << 15);
            Geometry::new(length, 1 << size, k, repair).ok()
        },
    )
}

proptest! {
    #[test]
    fn every_byte_lies_in_one_symbol(g in any_cut(), pick in any::<u64>()) {
        let blocks = u64::from(g.blocks());
        prop_assert!(g.block_bytes().is_multiple_of(CHUNK_BYTES));
        prop_assert!((MIN_SYMBOL_BYTES..=MAX_SYMBOL_BYTES).contains(&g.symbol_bytes()));
        if blocks > 0 {
            let last = g.symbols_of(g.blocks() - 1);
            prop_assert_eq!(last.end, g.symbols());
            prop_assert!(!last.is_empty());
            let index = pick % g.symbols();
            let id = g.symbol(index).expect("exists");
            prop_assert_eq!(g.index(id), Some(index));
            let bytes = g.bytes_at(index).expect("exists");
            let block = g.bytes_of(id.block);
            prop_assert!(block.start <= bytes.start && bytes.end <= block.end && !bytes.is_empty());
            prop_assert_eq!(Some((bytes.end - bytes.start) as usize), g.bytes_in(id));
            prop_assert_eq!(g.bytes_at(g.symbols() - 1).expect("exists").end, g.length());
        }
        prop_assert_eq!(g.symbol(g.symbols()), None);
        prop_assert_eq!(g.bytes_at(g.symbols()), None);
        prop_assert_eq!(g.source_symbols_of(g.blocks()), 0);
    }
}
