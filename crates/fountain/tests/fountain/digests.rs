//! Digests, compared with BLAKE3 itself, and invalid symbols and pages.

use proptest::prelude::*;
use thalweg_fountain::{
    CHUNK_BYTES, Geometry, SymbolId,
    digest::{
        ObjectHasher, ObjectSummary, PageError, RepairPage, SourcePage, SymbolError, source_digest,
    },
};

const MIB: usize = CHUNK_BYTES as usize;

/// `n` bytes without a period that a symbol could have.
fn object(n: usize) -> Vec<u8> {
    (0..n as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn hashed(geometry: &Geometry, bytes: &[u8], piece: usize) -> (ObjectSummary, Vec<SourcePage>) {
    let mut pages = Vec::new();
    let mut hasher = ObjectHasher::new(*geometry);
    bytes.chunks(piece).for_each(|piece| hasher.update(piece, &mut |page| pages.push(page)));
    let summary = hasher.finish(&mut |page| pages.push(page));
    (summary, pages)
}

fn chunks_of<'a>(geometry: &Geometry, summary: &'a ObjectSummary, block: u32) -> &'a [[u8; 32]] {
    let range = geometry.chunks_of(block);
    &summary.chunks[range.start as usize..range.end as usize]
}

/// The digest of a chunk as in `wire::Manifest`.
fn chunk_digest(bytes: &[u8], index: usize) -> [u8; 32] {
    use blake3::hazmat::HasherExt;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset((index * MIB) as u64);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

fn check_whole(bytes: &[u8], size: u32, k: u32, piece: usize) {
    let geometry = Geometry::new(bytes.len() as u64, size, k, 8).expect("exists");
    let (summary, pages) = hashed(&geometry, bytes, piece);
    assert_eq!(summary.object, *blake3::hash(bytes).as_bytes(), "{} bytes", bytes.len());
    assert_eq!(summary.length, bytes.len() as u64);
    assert_eq!(summary.chunks.len() as u64, geometry.chunks());
    if geometry.chunks() == 1 {
        assert_eq!(summary.chunks[0], summary.object);
    } else {
        for (index, chunk) in bytes.chunks(MIB).enumerate() {
            assert_eq!(summary.chunks[index], chunk_digest(chunk, index));
        }
    }
    assert_eq!(pages.len(), geometry.blocks() as usize);
    for (block, page) in (0..).zip(&pages) {
        assert_eq!(page.block, block);
        assert_eq!(page.check(&geometry, chunks_of(&geometry, &summary, block)), Ok(()));
    }
    for index in 0..geometry.symbols() {
        let id = geometry.symbol(index).expect("exists");
        let range = geometry.bytes_at(index).expect("exists");
        let symbol = &bytes[range.start as usize..range.end as usize];
        assert_eq!(pages[id.block as usize].verify(&geometry, id, symbol), Ok(()));
    }
}

#[test]
fn one_pass_gives_the_digests_of_object_chunks_and_symbols() {
    // Lengths around every shape of the tree: no, part of one, one and several symbols, chunks and blocks.
    let lengths = [0, 1, 1024, 1025, 4096, 4097, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 70_000];
    for length in lengths {
        let bytes = object(length);
        check_whole(&bytes, 1 << 12, 256, 300_007);
        check_whole(&bytes, 1 << 16, 32, 70_001);
    }
    check_whole(&object(5 * MIB + 7), 1 << 14, 128, 999_999);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn objects_of_any_length_are_hashed_in_any_pieces(length in 0..3_000_000_usize, piece in 1000..2_000_000_usize) {
        check_whole(&object(length), 1 << 13, 128, piece);
    }
}

#[test]
fn a_symbol_is_valid_only_at_its_own_place() {
    let bytes = vec![7; 2 * MIB];
    let geometry = Geometry::new(bytes.len() as u64, 1 << 14, 64, 8).expect("exists");
    let (summary, pages) = hashed(&geometry, &bytes, MIB);
    let id = |block, esi| SymbolId { block, esi };
    let symbol = &bytes[..1 << 14];
    assert_eq!(pages[0].verify(&geometry, id(0, 3), symbol), Ok(()));
    // The same bytes at another place have another digest.
    assert_ne!(source_digest(&geometry, 3, symbol), source_digest(&geometry, 4, symbol));
    let mut other = symbol.to_vec();
    other[9000] ^= 1;
    assert_eq!(pages[0].verify(&geometry, id(0, 3), &other), Err(SymbolError::Content(id(0, 3))));
    let short = SymbolError::Length { id: id(0, 3), got: 5, expected: 1 << 14 };
    assert_eq!(pages[0].verify(&geometry, id(0, 3), &bytes[..5]), Err(short));
    for absent in [id(1, 3), id(0, 64), id(9, 0)] {
        assert_eq!(pages[0].verify(&geometry, absent, symbol), Err(SymbolError::Absent(absent)));
    }
    refused_pages(&geometry, &summary, &pages);
}

fn refused_pages(geometry: &Geometry, summary: &ObjectSummary, pages: &[SourcePage]) {
    let chunks = chunks_of(geometry, summary, 1);
    assert_eq!(pages[1].check(geometry, chunks), Ok(()));
    let mut forged = pages[1].clone();
    forged.digests.swap(0, 1);
    assert_eq!(forged.check(geometry, chunks), Err(PageError::Chunk { block: 1, chunk: 1 }));
    assert!(pages[1].check(geometry, chunks_of(geometry, summary, 0)).is_err());
    assert!(pages[1].check(geometry, &[]).is_err());
    forged.digests.pop();
    let short = PageError::Length { block: 1, got: 63, expected: 64 };
    assert_eq!(forged.check(geometry, chunks), Err(short));
    forged.block = 2;
    assert_eq!(forged.check(geometry, chunks), Err(PageError::Block(2)));
}

#[test]
fn a_repair_symbol_is_valid_only_in_its_cast_block_and_place() {
    let geometry = Geometry::new(2 << 20, 1 << 14, 64, 2).expect("exists");
    let (first, second) = (object(1 << 14), vec![0; 1 << 14]);
    let symbols = [first.as_slice(), second.as_slice()];
    let page = RepairPage::compute(&geometry, &[1; 16], 1, symbols);
    assert_eq!(page.check(&geometry), Ok(()));
    let id = |block, esi| SymbolId { block, esi };
    assert_eq!(page.verify(&geometry, &[1; 16], id(1, 64), &first), Ok(()));
    assert_eq!(page.verify(&geometry, &[1; 16], id(1, 65), &second), Ok(()));
    let wrong = |cast: &[u8; 16], id, bytes| page.verify(&geometry, cast, id, bytes);
    assert_eq!(wrong(&[2; 16], id(1, 64), &first), Err(SymbolError::Content(id(1, 64))));
    assert_eq!(wrong(&[1; 16], id(1, 65), &first), Err(SymbolError::Content(id(1, 65))));
    for absent in [id(0, 64), id(1, 63), id(1, 66), id(7, 64)] {
        assert_eq!(wrong(&[1; 16], absent, &first), Err(SymbolError::Absent(absent)));
    }
    // The same symbol in another block has another digest.
    let other = RepairPage::compute(&geometry, &[1; 16], 0, symbols);
    assert_ne!(other.digests, page.digests);
    let page = RepairPage { block: 1, digests: vec![[0; 32]] };
    assert_eq!(page.check(&geometry), Err(PageError::Length { block: 1, got: 1, expected: 2 }));
}
