//! Manifests compared with BLAKE3 itself, and refused chunks and encodings.

use proptest::prelude::*;
use thalweg_wire::{
    DecodeError, Manifest, ManifestBuilder, Signable,
    manifest::{CHUNK_BYTES, ChunkError, MAX_CHUNKS},
};

/// `n` bytes without a period, so that chunks differ.
fn object(n: usize) -> Vec<u8> {
    (0..n as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn manifest_in_pieces(bytes: &[u8], piece: usize) -> Manifest {
    let mut builder = ManifestBuilder::new();
    bytes.chunks(piece).for_each(|p| builder.update(p));
    builder.finish().expect("small enough")
}

fn encoded(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::new();
    manifest.encode(&mut out);
    out
}

const MIB: usize = CHUNK_BYTES as usize;

/// Lengths around each shape of the tree: no chunk, one, two, three (unbalanced), five.
const LENGTHS: [usize; 10] =
    [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 4 * MIB + 7, 5 * MIB];

#[test]
fn the_name_is_the_blake3_hash_and_each_chunk_verifies_at_its_position() {
    for length in LENGTHS {
        let bytes = object(length);
        let manifest = manifest_in_pieces(&bytes, 300_007);
        let hash = blake3::hash(&bytes);
        assert_eq!(manifest.object().as_bytes(), hash.as_bytes(), "{length} bytes");
        assert_eq!(manifest.object().to_string(), hash.to_hex().as_str());
        assert_eq!(manifest.chunks(), length.div_ceil(MIB));
        for (i, chunk) in bytes.chunks(MIB).enumerate() {
            assert_eq!(manifest.verify(i, chunk), Ok(()), "chunk {i} of {length} bytes");
            let range = manifest.range(i).unwrap();
            assert_eq!(&bytes[range.start as usize..range.end as usize], chunk);
        }
        assert_eq!(manifest.range(manifest.chunks()), None);
        assert_eq!(Manifest::decode(&encoded(&manifest)), Ok(manifest));
    }
}

#[test]
fn chunks_with_wrong_bytes_positions_or_lengths_are_refused() {
    let bytes = object(2 * MIB + 5);
    let manifest = manifest_in_pieces(&bytes, MIB);
    let mut flipped = bytes[..MIB].to_vec();
    flipped[MIB - 1] ^= 1;
    assert_eq!(manifest.verify(0, &flipped), Err(ChunkError::Content { index: 0 }));
    assert_eq!(manifest.verify(1, &bytes[..MIB]), Err(ChunkError::Content { index: 1 }));
    let short = ChunkError::Length { index: 2, got: 4, expected: 5 };
    assert_eq!(manifest.verify(2, &bytes[2 * MIB..2 * MIB + 4]), Err(short));
    assert_eq!(manifest.verify(3, &[]), Err(ChunkError::Index { index: 3, chunks: 3 }));
    let end = manifest.verify(usize::MAX, &[]);
    assert_eq!(end, Err(ChunkError::Index { index: usize::MAX, chunks: 3 }));
}

#[test]
fn equal_chunks_at_different_positions_have_different_digests() {
    let manifest = manifest_in_pieces(&vec![7; 2 * MIB], MIB);
    let bytes = encoded(&manifest);
    assert_ne!(bytes[41..73], bytes[73..105]);
}

#[test]
fn inconsistent_manifests_are_refused() {
    let good = encoded(&manifest_in_pieces(&object(3 * MIB), MIB));
    let sum = DecodeError::Invalid("the chunks' digests do not add up to the object's hash");
    let mut swapped = good.clone();
    swapped[41..105].rotate_left(32);
    assert_eq!(Manifest::decode(&swapped), Err(sum.clone()));
    let mut renamed = good.clone();
    renamed[9] ^= 1;
    assert_eq!(Manifest::decode(&renamed), Err(sum));
    assert_eq!(Manifest::decode(&good[..good.len() - 1]), Err(DecodeError::Truncated(1)));
    let longer = [&good[..], b"x"].concat();
    assert_eq!(Manifest::decode(&longer), Err(DecodeError::TooLong(1)));
    let mut newer = good.clone();
    newer[0] = 2;
    assert!(matches!(Manifest::decode(&newer), Err(DecodeError::Invalid(_))));
    // A length out of bounds is refused before anything is read or allocated.
    let mut huge = good;
    huge[1..9].copy_from_slice(&u64::MAX.to_be_bytes());
    let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
    assert_eq!(Manifest::decode(&huge), Err(DecodeError::TooLarge { length: u64::MAX, max }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn pieces_of_any_size_give_the_same_manifest(length in 0..3 * MIB, piece in 1..2 * MIB) {
        let bytes = object(length);
        let manifest = manifest_in_pieces(&bytes, piece);
        prop_assert_eq!(&manifest, &manifest_in_pieces(&bytes, length.max(1)));
        let hash = blake3::hash(&bytes);
        prop_assert_eq!(*manifest.object().as_bytes(), *hash.as_bytes());
    }
}
