//! Proofs of symbols: digests of source symbols, which combine to the object's hash, and digests of repair symbols,
//! which the source signs.
//!
//! A source symbol's digest is the chaining value of its subtree at its place in BLAKE3's tree (BLAKE3 paper §2.1). So
//! a block's [`SourcePage`] can be checked against the chunk digests of `wire::Manifest`, whoever sent it. If the
//! object is one symbol, its digest is the object's hash itself. Repair symbols are not part of the object; the source
//! signs their [`RepairPage`] (signatures are in `wire`).

mod hasher;
mod page;
mod tree;

pub use hasher::{ObjectHasher, ObjectSummary};
pub use page::{PageError, RepairPage, SourcePage, SymbolError};

use crate::geometry::{Geometry, SymbolId};
use blake3::{Hasher, hazmat::HasherExt};

/// A BLAKE3 hash or chaining value.
pub type Digest = [u8; 32];

/// The context from which the keys of repair digests are derived, with cast, block and ESI.
const REPAIR_CONTEXT: &str = "thalweg 2026 cast repair symbol v1";

/// The digest of the source symbol with this index in the object, over its unpadded bytes (the last may be short).
pub fn source_digest(geometry: &Geometry, index: u64, bytes: &[u8]) -> Digest {
    if bytes.is_empty() || geometry.symbols() <= 1 {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = hasher_at(index * u64::from(geometry.symbol_bytes()));
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The digest of a repair symbol: a keyed hash whose key is derived from the cast, the block and the ESI, so that no
/// symbol passes for another of this or any other cast.
pub fn repair_digest(cast: &[u8; 16], id: SymbolId, bytes: &[u8]) -> Digest {
    let mut place = [0; 24];
    place[..16].copy_from_slice(cast);
    place[16..20].copy_from_slice(&id.block.to_be_bytes());
    place[20..].copy_from_slice(&id.esi.to_be_bytes());
    let key = blake3::derive_key(REPAIR_CONTEXT, &place);
    *blake3::keyed_hash(&key, bytes).as_bytes()
}

/// A hasher of the subtree that begins at this byte of the object, a multiple of 1 KiB.
fn hasher_at(offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher
}
