//! Computes the object's hash and the digests of its chunks and symbols in one pass.

use super::{Digest, hasher_at, page::SourcePage, tree};
use crate::geometry::{CHUNK_BYTES, Geometry};
use blake3::{Hasher, hazmat::HasherExt};

/// The result of one pass over an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The object's name: the BLAKE3 hash of its bytes.
    pub object: Digest,
    /// The number of bytes seen; differs from the geometry's length if the object changed meanwhile.
    pub length: u64,
    /// The digests of its chunks of 1 MiB, as in `wire::Manifest`.
    pub chunks: Vec<Digest>,
}

/// Hashes an object in order, in pieces of any size.
///
/// Memory: 32 bytes per chunk, and one block's page. Pages are passed to the caller block by block.
#[derive(Clone, Debug)]
pub struct ObjectHasher {
    geometry: Geometry,
    current: Hasher,
    length: u64,
    page: Vec<Digest>,
    block: u32,
    chunks: Vec<Digest>,
}

impl ObjectHasher {
    /// Creates a hasher for an object of this geometry.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            current: Hasher::new(),
            length: 0,
            page: Vec::new(),
            block: 0,
            chunks: Vec::new(),
        }
    }

    /// The number of bytes taken so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the next bytes, and passes on the page of each completed block except the last.
    ///
    /// Bytes beyond the geometry's length are counted and hashed like others; the summary then has another length.
    pub fn update(&mut self, mut bytes: &[u8], pages: &mut impl FnMut(SourcePage)) {
        let size = u64::from(self.geometry.symbol_bytes());
        while !bytes.is_empty() {
            let filled = self.length % size;
            // A symbol is closed when the next one begins: only then it is known not to be the only one.
            if filled == 0 && self.length > 0 {
                self.close_symbol(pages);
            }
            let room = (size - filled).min(bytes.len() as u64) as usize;
            let (now, later) = bytes.split_at(room);
            self.current.update(now);
            self.length += room as u64;
            bytes = later;
        }
    }

    fn close_symbol(&mut self, pages: &mut impl FnMut(SourcePage)) {
        self.page.push(self.current.finalize_non_root());
        self.current = hasher_at(self.length);
        if self.length.is_multiple_of(CHUNK_BYTES) {
            self.close_chunk();
        }
        if self.page.len() == self.geometry.block_symbols() as usize {
            pages(SourcePage { block: self.block, digests: std::mem::take(&mut self.page) });
            self.block += 1;
        }
    }

    /// Computes the digest of the chunk that ends with the page's last symbol.
    fn close_chunk(&mut self) {
        let symbols = (CHUNK_BYTES / u64::from(self.geometry.symbol_bytes())) as usize;
        // Blocks are whole chunks, so all symbols of a chunk are in the page.
        let last = self.page.len().saturating_sub(1) / symbols * symbols;
        self.chunks.extend(tree::subtree(&self.page[last..]));
    }

    /// Passes on the last block's page, and returns the summary.
    pub fn finish(mut self, pages: &mut impl FnMut(SourcePage)) -> ObjectSummary {
        if self.length <= u64::from(self.geometry.symbol_bytes()) {
            return self.finish_single(pages);
        }
        self.page.push(self.current.finalize_non_root());
        let object = if self.chunks.is_empty() {
            let whole = tree::root(&self.page);
            self.chunks.extend(whole);
            whole
        } else {
            self.close_chunk();
            tree::root(&self.chunks)
        };
        pages(SourcePage { block: self.block, digests: self.page });
        // Exists: at least two symbols were seen.
        let object = object.unwrap_or_default();
        ObjectSummary { object, length: self.length, chunks: self.chunks }
    }

    /// The summary of an object of at most one symbol.
    fn finish_single(self, pages: &mut impl FnMut(SourcePage)) -> ObjectSummary {
        let object = *self.current.finalize().as_bytes();
        let digests = if self.length == 0 { Vec::new() } else { vec![object] };
        if self.length > 0 {
            pages(SourcePage { block: 0, digests: digests.clone() });
        }
        ObjectSummary { object, length: self.length, chunks: digests }
    }
}
