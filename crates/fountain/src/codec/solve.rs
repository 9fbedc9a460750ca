//! Solving one block: read, decode, verify, write back.

use super::{
    store::SymbolStore,
    stripes::{DECODE_BYTES, description, stripes},
};
use crate::{
    digest::{SourcePage, SymbolError},
    geometry::{Geometry, SymbolId},
};
use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};
use std::ops::Range;
use thiserror::Error;

/// The outcome of a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolveOutcome {
    /// This many missing source symbols were recovered and written.
    Recovered(u32),
    /// The symbols do not determine the block: one more is needed. With K symbols this happens in about 1 % of cases
    /// (RFC 6330 §5), with each further one far more rarely.
    TooFew,
}

/// Why a solve failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SolveError<E> {
    #[error(transparent)]
    Store(E),
    /// A recovered symbol does not match the block's page: the signer of the repair page signed wrong symbols of this
    /// block.
    #[error("the decoded content of block {} does not match its digests", .0.block())]
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

/// One block to solve, created by [`super::Assembly::solve`]. It may run on another thread while symbols keep arriving.
/// Memory: [`super::DECODE_MEMORY_FACTOR`].
#[derive(Clone, Debug)]
pub struct BlockSolver {
    pub(super) geometry: Geometry,
    pub(super) block: u32,
    /// The ESIs of held source symbols, then of held repair symbols.
    pub(super) held: Vec<u32>,
}

/// A solved stripe: `width` bytes of each source symbol, in the order of ESIs.
struct Stripe {
    width: usize,
    columns: Vec<u8>,
}

impl Stripe {
    fn symbol(&self, esi: u32) -> &[u8] {
        let from = esi as usize * self.width;
        &self.columns[from..from + self.width]
    }
}

impl BlockSolver {
    /// The index of the block in the object.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// The number of symbols that it solves from.
    pub fn symbols(&self) -> u32 {
        self.held.len() as u32
    }

    /// Reads the block's symbols, solves the block, and writes the missing source symbols. Each is verified if the
    /// block's page is given (otherwise the whole object is verified at its end).
    ///
    /// # Errors
    /// [`SolveError`]: the caller must call [`super::Assembly::abandon`].
    pub fn run<S: SymbolStore>(
        &self,
        store: &mut S,
        page: Option<&SourcePage>,
    ) -> Result<SolveOutcome, SolveError<S::Error>> {
        match self.decode(store).map_err(SolveError::Store)? {
            Some(solved) => self.write(store, page, &solved),
            None => Ok(SolveOutcome::TooFew),
        }
    }

    fn id(&self, esi: u32) -> SymbolId {
        SymbolId { block: self.block, esi }
    }

    /// Solves the block in stripes, each with the padded bytes of all source symbols in order.
    fn decode<S: SymbolStore>(&self, store: &mut S) -> Result<Option<Vec<Stripe>>, S::Error> {
        let symbol_bytes = self.geometry.symbol_bytes() as usize;
        let k = self.geometry.source_symbols_of(self.block);
        let mut solved = Vec::new();
        for part in stripes(symbol_bytes, k, DECODE_BYTES) {
            let columns = self.read(store, &part)?;
            let Some(columns) = self.decode_stripe(part.len(), columns) else { return Ok(None) };
            solved.push(Stripe { width: part.len(), columns });
        }
        Ok(Some(solved))
    }

    /// Reads one stripe of the held symbols, padded.
    fn read<S: SymbolStore>(
        &self,
        store: &mut S,
        part: &Range<usize>,
    ) -> Result<Vec<Vec<u8>>, S::Error> {
        let read = |esi: &u32| {
            let mut column = Vec::with_capacity(part.len());
            let length = self.geometry.bytes_in(self.id(*esi)).unwrap_or(0);
            let there = part.start.min(length)..part.end.min(length);
            if !there.is_empty() {
                store.read_part(self.id(*esi), length, there, &mut column)?;
            }
            column.resize(part.len(), 0);
            Ok(column)
        };
        self.held.iter().map(read).collect()
    }

    fn decode_stripe(&self, width: usize, columns: Vec<Vec<u8>>) -> Option<Vec<u8>> {
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
        solved: &[Stripe],
    ) -> Result<SolveOutcome, SolveError<S::Error>> {
        let mut recovered = 0;
        // Symbols are assembled one at a time, which stays in the nearest cache.
        let mut whole = Vec::with_capacity(self.geometry.symbol_bytes() as usize);
        for esi in self.missing() {
            let symbol = match solved {
                [only] => only.symbol(esi),
                stripes => {
                    whole.clear();
                    stripes.iter().for_each(|stripe| whole.extend_from_slice(stripe.symbol(esi)));
                    &whole
                }
            };
            let id = self.id(esi);
            let symbol = &symbol[..self.geometry.bytes_in(id).unwrap_or(0)];
            if let Some(page) = page {
                page.verify(&self.geometry, id, symbol).map_err(SolveError::Forged)?;
            }
            store.write(id, symbol).map_err(SolveError::Store)?;
            recovered += 1;
        }
        Ok(SolveOutcome::Recovered(recovered))
    }

    /// The source symbols of the block that are not held.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let all = 0..self.geometry.source_symbols_of(self.block);
        all.filter(|esi| self.held.binary_search(esi).is_err())
    }
}
