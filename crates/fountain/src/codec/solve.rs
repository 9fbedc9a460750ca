//! Solving one block: read, decoded, verified, written back.

use super::{
    store::SymbolStore,
    stripes::{DECODE_BYTES, description, stripes},
};
use crate::{
    digest::{SourcePage, SymbolError},
    geometry::{Geometry, SymbolId},
};
use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};
use thiserror::Error;

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many missing source symbols were recovered and written.
    Recovered(u32),
    /// The symbols do not determine the block (about 1 % of the times with K of them, RFC
    /// 6330 §5; far rarer with each more): another one is needed.
    TooFew,
}

/// A solve that did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SolveError<E> {
    /// The store failed.
    #[error(transparent)]
    Store(E),
    /// What was recovered is not what the block's page says: whoever signed the repair page
    /// is wrong about this block.
    #[error("block {} was solved to other bytes than its page says", .0.block())]
    Forged(SymbolError),
}

impl SymbolError {
    /// The block of the symbol.
    fn block(&self) -> u32 {
        match self {
            Self::Absent(id) | Self::Content(id) | Self::Length { id, .. } => id.block,
        }
    }
}

/// One block to solve, made by [`super::Assembly::solve`]; may run on another thread while
/// symbols keep coming. Memory: [`super::DECODE_MEMORY_FACTOR`].
#[derive(Clone, Debug)]
pub struct Solve {
    pub(super) geometry: Geometry,
    pub(super) block: u32,
    /// Source symbols held, then repair symbols held, by ESI.
    pub(super) held: Vec<u32>,
}

impl Solve {
    /// The block.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// How many symbols it solves from.
    pub fn symbols(&self) -> u32 {
        self.held.len() as u32
    }

    /// Reads the block's symbols, solves, and writes the missing source symbols, each
    /// verified by the block's page if that is given (else the object is, at its end).
    ///
    /// # Errors
    /// [`SolveError`]: the assembly must be told by [`super::Assembly::abandon`].
    pub fn run<S: SymbolStore>(
        &self,
        store: &mut S,
        page: Option<&SourcePage>,
    ) -> Result<Outcome, SolveError<S::Error>> {
        let symbols = self.read(store).map_err(SolveError::Store)?;
        match self.decode(symbols) {
            Some(block) => self.write(store, page, &block),
            None => Ok(Outcome::TooFew),
        }
    }

    fn id(&self, esi: u32) -> SymbolId {
        SymbolId { block: self.block, esi }
    }

    /// The symbols held, padded to S bytes.
    fn read<S: SymbolStore>(&self, store: &mut S) -> Result<Vec<Vec<u8>>, S::Error> {
        let read = |esi: &u32| {
            let mut symbol = vec![0; self.geometry.symbol_bytes() as usize];
            let length = self.geometry.bytes_in(self.id(*esi)).unwrap_or(0);
            store.read(self.id(*esi), &mut symbol[..length])?;
            Ok(symbol)
        };
        self.held.iter().map(read).collect()
    }

    /// The whole block, padded.
    fn decode(&self, symbols: Vec<Vec<u8>>) -> Option<Vec<u8>> {
        let symbol_bytes = self.geometry.symbol_bytes() as usize;
        let k = self.geometry.source_symbols_of(self.block);
        let mut parts = stripes(symbol_bytes, k, DECODE_BYTES).peekable();
        if parts.peek()?.len() == symbol_bytes {
            return self.decode_stripe(symbol_bytes, symbols.into_iter());
        }
        let mut block = vec![0; k as usize * symbol_bytes];
        for part in parts {
            let columns = symbols.iter().map(|symbol| symbol[part.clone()].to_vec());
            let solved = self.decode_stripe(part.len(), columns)?;
            let places = block.chunks_exact_mut(symbol_bytes);
            for (place, bytes) in places.zip(solved.chunks_exact(part.len())) {
                place[part.clone()].copy_from_slice(bytes);
            }
        }
        Some(block)
    }

    fn decode_stripe(
        &self,
        width: usize,
        columns: impl Iterator<Item = Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let k = self.geometry.source_symbols_of(self.block);
        let config = description(k, width);
        let mut decoder = SourceBlockDecoder::new(0, &config, u64::from(k) * width as u64);
        let esis = self.held.iter();
        let packet = |(esi, bytes): (&u32, _)| EncodingPacket::new(PayloadId::new(0, *esi), bytes);
        decoder.decode(esis.zip(columns).map(packet))
    }

    fn write<S: SymbolStore>(
        &self,
        store: &mut S,
        page: Option<&SourcePage>,
        block: &[u8],
    ) -> Result<Outcome, SolveError<S::Error>> {
        let mut recovered = 0;
        for (esi, symbol) in self.missing(block) {
            let id = self.id(esi);
            if let Some(page) = page {
                page.verify(&self.geometry, id, symbol).map_err(SolveError::Forged)?;
            }
            store.write(id, symbol).map_err(SolveError::Store)?;
            recovered += 1;
        }
        Ok(Outcome::Recovered(recovered))
    }

    /// The source symbols of the block that were not held, with their true length.
    fn missing<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = (u32, &'a [u8])> {
        let symbols = block.chunks_exact(self.geometry.symbol_bytes() as usize);
        (0..).zip(symbols).filter_map(|(esi, symbol)| {
            let missing = self.held.binary_search(&esi).is_err();
            let length = self.geometry.bytes_in(self.id(esi)).filter(|_| missing)?;
            Some((esi, &symbol[..length]))
        })
    }
}
