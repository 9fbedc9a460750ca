//! Repair symbols of a block.

use super::{
    plans::EncodingPlan,
    stripes::{ENCODE_BYTES, description, stripes},
};
use crate::geometry::{Geometry, MAX_REPAIR_SYMBOLS};
use raptorq::SourceBlockEncoder;
use std::{borrow::Cow, ops::Range};
use thiserror::Error;

/// Why a block cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The bytes are not the block's, or the block does not exist.
    #[error("block {block} has {expected} bytes, not {got}")]
    Length {
        block: u32,
        /// The number of bytes given.
        got: u64,
        /// The length of the block; 0 if it does not exist.
        expected: u64,
    },
    /// The plan is for blocks with another number of symbols.
    #[error("block {block} has {expected} symbols, the plan is for {got}")]
    Plan {
        block: u32,
        /// The plan's number of source symbols.
        got: u32,
        /// The block's number of source symbols.
        expected: u32,
    },
}

/// Makes the repair symbols of one block. They are the same on every host.
///
/// Memory: about 2.2 times the block.
pub struct BlockEncoder {
    source_symbols: u32,
    symbol_bytes: usize,
    stripes: Vec<SourceBlockEncoder>,
}

impl BlockEncoder {
    /// Encodes a block. `bytes` are its bytes in the object; the last symbol may be short and is padded with zeros.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn new(
        geometry: &Geometry,
        block: u32,
        bytes: &[u8],
        plan: &EncodingPlan,
    ) -> Result<Self, EncodeError> {
        let range = geometry.bytes_of(block);
        let (got, expected) = (bytes.len() as u64, range.end - range.start);
        if got != expected || expected == 0 {
            return Err(EncodeError::Length { block, got, expected });
        }
        let source_symbols = geometry.source_symbols_of(block);
        if plan.source_symbols() != source_symbols {
            let got = plan.source_symbols();
            return Err(EncodeError::Plan { block, got, expected: source_symbols });
        }
        let symbol_bytes = geometry.symbol_bytes() as usize;
        let padded = padded(bytes, source_symbols as usize * symbol_bytes);
        let stripes = stripes(symbol_bytes, source_symbols, ENCODE_BYTES)
            .map(|part| encode_stripe(&padded, symbol_bytes, part, plan))
            .collect();
        Ok(Self { source_symbols, symbol_bytes, stripes })
    }

    /// The repair symbols with these ESIs, in order, of S bytes each. ESIs below K, and beyond K +
    /// [`MAX_REPAIR_SYMBOLS`], are left out.
    pub fn repair(&self, esis: Range<u32>) -> Vec<Vec<u8>> {
        let end = esis.end.min(self.source_symbols + MAX_REPAIR_SYMBOLS);
        let start = esis.start.max(self.source_symbols);
        let count = end.saturating_sub(start);
        if count == 0 {
            return Vec::new();
        }
        let mut symbols: Vec<Vec<u8>> = Vec::with_capacity(count as usize);
        for stripe in &self.stripes {
            let packets = stripe.repair_packets(start - self.source_symbols, count);
            for (at, packet) in packets.into_iter().enumerate() {
                let bytes = packet.split().1;
                match symbols.get_mut(at) {
                    Some(symbol) => symbol.extend_from_slice(&bytes),
                    None => symbols.push(self.with_room(bytes)),
                }
            }
        }
        symbols
    }

    /// The first stripe of a symbol, with capacity for the others.
    fn with_room(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reserve_exact(self.symbol_bytes - bytes.len());
        bytes
    }
}

impl std::fmt::Debug for BlockEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockEncoder({} symbols of {} bytes)", self.source_symbols, self.symbol_bytes)
    }
}

fn padded(bytes: &[u8], length: usize) -> Cow<'_, [u8]> {
    if bytes.len() == length {
        return Cow::Borrowed(bytes);
    }
    let mut whole = bytes.to_vec();
    whole.resize(length, 0);
    Cow::Owned(whole)
}

fn encode_stripe(
    block: &[u8],
    symbol_bytes: usize,
    part: Range<usize>,
    plan: &EncodingPlan,
) -> SourceBlockEncoder {
    let config = description(plan.source_symbols(), part.len());
    if part.len() == symbol_bytes {
        return SourceBlockEncoder::with_encoding_plan(0, &config, block, plan.operations());
    }
    let mut columns = Vec::with_capacity(plan.source_symbols() as usize * part.len());
    for symbol in block.chunks_exact(symbol_bytes) {
        columns.extend_from_slice(&symbol[part.clone()]);
    }
    SourceBlockEncoder::with_encoding_plan(0, &config, &columns, plan.operations())
}
