//! One pass over an object for its name, its chunks' digests and its symbols'.

use super::{Digest, hasher_at, page::SourcePage, tree};
use crate::geometry::{CHUNK_BYTES, Geometry};
use blake3::{Hasher, hazmat::HasherExt};

/// What one pass over an object found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The object's name: the BLAKE3 hash of its bytes.
    pub object: Digest,
    /// Bytes seen; others than the geometry's if the object changed meanwhile.
    pub length: u64,
    /// The digests of its chunks of 1 MiB, as `wire::Manifest` has them.
    pub chunks: Vec<Digest>,
}

/// Hashes an object in order, in pieces of any size.
///
/// Memory: 32 bytes a chunk, and one block's page. Pages are handed out block by block.
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
    /// For an object cut so.
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

    /// Bytes taken so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes the next bytes; hands out the page of each block they complete, but for the last.
    ///
    /// Bytes beyond the geometry's length are counted and hashed as part of what follows;
    /// the summary then shows another length.
    pub fn update(&mut self, mut bytes: &[u8], pages: &mut impl FnMut(SourcePage)) {
        let size = u64::from(self.geometry.symbol_bytes());
        while !bytes.is_empty() {
            let filled = self.length % size;
            // A symbol is closed when the next one begins: only then it is not the only one.
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

    /// The digest of the chunk that ends with the page's last symbol.
    fn close_chunk(&mut self) {
        let symbols = (CHUNK_BYTES / u64::from(self.geometry.symbol_bytes())) as usize;
        // Blocks are whole chunks, so a chunk's symbols are all in the page.
        let last = self.page.len().saturating_sub(1) / symbols * symbols;
        self.chunks.extend(tree::subtree(&self.page[last..]));
    }

    /// Hands out the last block's page, and sums up.
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
        // There is one: at least two symbols were seen.
        let object = object.unwrap_or_default();
        ObjectSummary { object, length: self.length, chunks: self.chunks }
    }

    /// An object of one symbol or none.
    fn finish_single(self, pages: &mut impl FnMut(SourcePage)) -> ObjectSummary {
        let object = *self.current.finalize().as_bytes();
        let digests = if self.length == 0 { Vec::new() } else { vec![object] };
        if self.length > 0 {
            pages(SourcePage { block: 0, digests: digests.clone() });
        }
        ObjectSummary { object, length: self.length, chunks: digests }
    }
}
