//! Pages: the digests of one block's symbols.

use super::{Digest, repair_digest, source_digest, tree};
use crate::geometry::{CHUNK_BYTES, Geometry, SymbolId};
use thiserror::Error;

/// Why a page is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    /// The block does not exist.
    #[error("the page is for block {0}, which does not exist")]
    Block(u32),
    /// There are too few or too many digests.
    #[error("the page of block {block} has {got} digests instead of {expected}")]
    Length {
        block: u32,
        /// The number of digests.
        got: usize,
        /// The right number of digests.
        expected: usize,
    },
    /// The digests do not combine to a chunk digest of the manifest.
    #[error("the digests of block {block} do not match chunk {chunk} of the manifest")]
    Chunk {
        block: u32,
        /// The chunk, counted from the object's beginning.
        chunk: u64,
    },
}

/// Why a symbol does not match its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SymbolError {
    /// The symbol does not exist, or the page is another block's.
    #[error("symbol {} of block {} is not on this page", .0.esi, .0.block)]
    Absent(SymbolId),
    /// The symbol is too short or too long.
    #[error("symbol {} of block {} has {got} bytes instead of {expected}", id.esi, id.block)]
    Length {
        id: SymbolId,
        /// The number of bytes given.
        got: usize,
        /// The right number of bytes.
        expected: usize,
    },
    /// The content does not match the digest.
    #[error("symbol {} of block {} has the wrong content", .0.esi, .0.block)]
    Content(SymbolId),
}

/// The digests of a block's source symbols, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePage {
    pub block: u32,
    /// One digest per source symbol.
    pub digests: Vec<Digest>,
}

impl SourcePage {
    /// Checks the page against the manifest: `chunks` are the digests of the block's chunks ([`Geometry::chunks_of`]).
    ///
    /// # Errors
    /// [`PageError`].
    pub fn check(&self, geometry: &Geometry, chunks: &[Digest]) -> Result<(), PageError> {
        let block = self.block;
        let expected = geometry.source_symbols_of(block) as usize;
        let got = self.digests.len();
        if expected == 0 {
            return Err(PageError::Block(block));
        }
        if got != expected {
            return Err(PageError::Length { block, got, expected });
        }
        let per_chunk = (CHUNK_BYTES / u64::from(geometry.symbol_bytes())) as usize;
        let alone = geometry.chunks() == 1;
        let first = geometry.chunks_of(block).start;
        for (at, symbols) in self.digests.chunks(per_chunk).enumerate() {
            let found = if alone { tree::root(symbols) } else { tree::subtree(symbols) };
            if found.is_none() || found.as_ref() != chunks.get(at) {
                return Err(PageError::Chunk { block, chunk: first + at as u64 });
            }
        }
        Ok(())
    }

    /// Checks the bytes of a source symbol of this block.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn verify(
        &self,
        geometry: &Geometry,
        id: SymbolId,
        bytes: &[u8],
    ) -> Result<(), SymbolError> {
        let absent = SymbolError::Absent(id);
        let index = geometry.index(id).filter(|_| id.block == self.block).ok_or(absent)?;
        let digest = self.digests.get(id.esi as usize).ok_or(absent)?;
        check_length(geometry, id, bytes)?;
        let right = source_digest(geometry, index, bytes) == *digest;
        if right { Ok(()) } else { Err(SymbolError::Content(id)) }
    }
}

/// The digests of a block's repair symbols: ESI K to K + R, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPage {
    pub block: u32,
    /// One digest per repair symbol.
    pub digests: Vec<Digest>,
}

impl RepairPage {
    /// Computes the page of these repair symbols, which begin with ESI K.
    pub fn compute<'a>(
        geometry: &Geometry,
        cast: &[u8; 16],
        block: u32,
        symbols: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let esis = geometry.source_symbols_of(block)..;
        let digest =
            |(esi, bytes): (u32, &[u8])| repair_digest(cast, SymbolId { block, esi }, bytes);
        Self { block, digests: esis.zip(symbols).map(digest).collect() }
    }

    /// Checks the page's length against the geometry. Its signature proves the rest.
    ///
    /// # Errors
    /// [`PageError::Block`], [`PageError::Length`].
    pub fn check(&self, geometry: &Geometry) -> Result<(), PageError> {
        let block = self.block;
        if geometry.source_symbols_of(block) == 0 {
            return Err(PageError::Block(block));
        }
        let (got, expected) = (self.digests.len(), geometry.repair_symbols() as usize);
        if got == expected { Ok(()) } else { Err(PageError::Length { block, got, expected }) }
    }

    /// Checks the bytes of a repair symbol of this block in this cast.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn verify(
        &self,
        geometry: &Geometry,
        cast: &[u8; 16],
        id: SymbolId,
        bytes: &[u8],
    ) -> Result<(), SymbolError> {
        let absent = SymbolError::Absent(id);
        let source = geometry.source_symbols_of(id.block);
        let place = id.esi.checked_sub(source).filter(|_| source > 0 && id.block == self.block);
        let digest = place.and_then(|place| self.digests.get(place as usize)).ok_or(absent)?;
        check_length(geometry, id, bytes)?;
        let right = repair_digest(cast, id, bytes) == *digest;
        if right { Ok(()) } else { Err(SymbolError::Content(id)) }
    }
}

fn check_length(geometry: &Geometry, id: SymbolId, bytes: &[u8]) -> Result<(), SymbolError> {
    let expected = geometry.bytes_in(id).ok_or(SymbolError::Absent(id))?;
    let got = bytes.len();
    if got == expected { Ok(()) } else { Err(SymbolError::Length { id, got, expected }) }
}
