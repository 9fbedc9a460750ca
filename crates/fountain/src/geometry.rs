//! How an object is divided into symbols and blocks.

use std::ops::Range;
use thalweg_units::ByteSize;
use thiserror::Error;

/// Bytes of a chunk of `wire::Manifest`. A block consists of whole chunks.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// The minimum symbol size: one leaf of BLAKE3.
pub const MIN_SYMBOL_BYTES: u32 = 1 << 10;

/// The maximum symbol size.
pub const MAX_SYMBOL_BYTES: u32 = 1 << 16;

/// The maximum length of an object, that of `wire::Manifest`: 4 TiB.
pub const MAX_LENGTH: u64 = 1 << 42;

/// The maximum block size; it bounds the memory of decoding ([`crate::codec::DECODE_MEMORY_FACTOR`]).
pub const MAX_BLOCK_BYTES: u64 = 32 << 20;

/// The maximum number of source symbols in a block, so that its page of digests is at most 1 MiB. RFC 6330 §4.4.1.2
/// allows 56,403.
pub const MAX_BLOCK_SYMBOLS: u32 = 1 << 15;

/// The maximum number of repair symbols of a block, so that their page is at most 512 KiB.
pub const MAX_REPAIR_SYMBOLS: u32 = 1 << 14;

/// The maximum number of source symbols in an object, so that a set of them is at most 32 MiB of bits.
pub const MAX_SYMBOLS: u64 = 1 << 28;

/// The default symbol size, for objects that are long enough.
const DEFAULT_SYMBOL_BYTES: u32 = 1 << 14;

/// The default number of source symbols in a block. Also the minimum number of symbols of a small object, down to
/// symbols of [`MIN_SYMBOL_BYTES`].
const DEFAULT_BLOCK_SYMBOLS: u32 = 512;

/// The minimum number of repair symbols by default.
const MIN_REPAIR: u32 = 8;

/// One symbol of the code: its block, and its encoding symbol identifier (ESI, RFC 6330 §3.3).
///
/// With K source symbols in the block, an ESI below K is a source symbol, and one from K on a repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SymbolId {
    /// The number of the block, from 0.
    pub block: u32,
    /// The ESI in the block.
    pub esi: u32,
}

/// A division that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// The object is too long.
    #[error("an object of {0} bytes is too large: at most {MAX_LENGTH} bytes can be cast")]
    Length(u64),
    /// The symbol size is not a power of two, too small or too large.
    #[error(
        "symbols of {0} bytes are not possible: the size must be a power of two from {MIN_SYMBOL_BYTES} to \
         {MAX_SYMBOL_BYTES}"
    )]
    SymbolBytes(u32),
    /// A block is not a whole number of chunks, is empty, or is too large.
    #[error(
        "blocks of {0} symbols are not possible: a block must be a whole number of MiB, at most {most} MiB \
         and {MAX_BLOCK_SYMBOLS} symbols",
        most = MAX_BLOCK_BYTES >> 20
    )]
    BlockSymbols(u32),
    /// Like [`Self::BlockSymbols`], for a requested block size in bytes.
    #[error(
        "blocks of {size} are not possible: a block must be a whole number of MiB, at most {most} MiB, \
         e.g. 4MiB",
        size = ByteSize::from_bytes(*.0),
        most = MAX_BLOCK_BYTES >> 20
    )]
    BlockBytes(u64),
    /// There are too many repair symbols.
    #[error("{0} repair symbols per block are too many: at most {MAX_REPAIR_SYMBOLS} are possible")]
    RepairSymbols(u32),
    /// The symbols are too small for the length of the object.
    #[error("{0} symbols are too many: at most {MAX_SYMBOLS} are possible; use larger symbols")]
    Symbols(u64),
}

/// How one object is divided: its length, the symbol size S, the number K of source symbols in every block but the
/// last, and the number R of repair symbols of every block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    length: u64,
    symbol_bytes: u32,
    block_symbols: u32,
    repair_symbols: u32,
}

impl Geometry {
    /// Creates a geometry from these numbers.
    ///
    /// # Errors
    /// [`GeometryError`] if the numbers are invalid. Computing with a valid geometry is safe, even if a peer sent it.
    pub fn new(
        length: u64,
        symbol_bytes: u32,
        block_symbols: u32,
        repair_symbols: u32,
    ) -> Result<Self, GeometryError> {
        let sizes = MIN_SYMBOL_BYTES..=MAX_SYMBOL_BYTES;
        if !symbol_bytes.is_power_of_two() || !sizes.contains(&symbol_bytes) {
            return Err(GeometryError::SymbolBytes(symbol_bytes));
        }
        if length > MAX_LENGTH {
            return Err(GeometryError::Length(length));
        }
        let block_bytes = u64::from(symbol_bytes) * u64::from(block_symbols);
        if Self::check_block(block_bytes).is_err() || block_symbols > MAX_BLOCK_SYMBOLS {
            return Err(GeometryError::BlockSymbols(block_symbols));
        }
        if repair_symbols > MAX_REPAIR_SYMBOLS {
            return Err(GeometryError::RepairSymbols(repair_symbols));
        }
        let symbols = length.div_ceil(u64::from(symbol_bytes));
        if symbols > MAX_SYMBOLS {
            return Err(GeometryError::Symbols(symbols));
        }
        Ok(Self { length, symbol_bytes, block_symbols, repair_symbols })
    }

    /// Checks a block size in bytes, regardless of the symbol size.
    ///
    /// # Errors
    /// [`GeometryError::BlockBytes`].
    pub fn check_block(bytes: u64) -> Result<(), GeometryError> {
        let is_whole = bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES);
        let fits = is_whole && bytes <= MAX_BLOCK_BYTES;
        fits.then_some(()).ok_or(GeometryError::BlockBytes(bytes))
    }

    /// The default geometry for an object of this length.
    ///
    /// Symbols of 16 KiB and blocks of 8 MiB (K = 512). Objects below 8 MiB have smaller symbols, down to 1 KiB.
    /// Objects beyond 1 TiB have larger ones, up to 64 KiB (and blocks of 32 MiB) at 4 TiB, so that sets of symbols
    /// stay small. R is a quarter of K, at least 8.
    ///
    /// # Errors
    /// [`GeometryError::Length`].
    pub fn for_length(length: u64) -> Result<Self, GeometryError> {
        if length > MAX_LENGTH {
            return Err(GeometryError::Length(length));
        }
        let symbol_bytes = default_symbol_bytes(length);
        let whole_chunks = (CHUNK_BYTES / u64::from(symbol_bytes)) as u32;
        let block_symbols = DEFAULT_BLOCK_SYMBOLS.max(whole_chunks);
        let symbols = length.div_ceil(u64::from(symbol_bytes));
        // Fits: at most `block_symbols`.
        let largest = symbols.min(u64::from(block_symbols)) as u32;
        Self::new(length, symbol_bytes, block_symbols, (largest / 4).max(MIN_REPAIR))
    }

    /// Bytes of the object.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// S: bytes of a symbol.
    pub fn symbol_bytes(&self) -> u32 {
        self.symbol_bytes
    }

    /// K: source symbols of every block but the last.
    pub fn block_symbols(&self) -> u32 {
        self.block_symbols
    }

    /// R: repair symbols of every block.
    pub fn repair_symbols(&self) -> u32 {
        self.repair_symbols
    }

    /// Source symbols of the object; 0 if it is empty.
    pub fn symbols(&self) -> u64 {
        self.length.div_ceil(u64::from(self.symbol_bytes))
    }

    /// Blocks of the object; 0 if it is empty.
    pub fn blocks(&self) -> u32 {
        // Fits: a block has at least 1 MiB, an object at most 2^42 bytes.
        self.symbols().div_ceil(u64::from(self.block_symbols)) as u32
    }

    /// Chunks of the object, as `wire::Manifest` counts them.
    pub fn chunks(&self) -> u64 {
        self.length.div_ceil(CHUNK_BYTES)
    }

    /// Bytes of every block but the last.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.symbol_bytes) * u64::from(self.block_symbols)
    }

    /// The number of source symbols of this block; 0 if the block does not exist.
    pub fn source_symbols_of(&self, block: u32) -> u32 {
        let symbols = self.symbols_of(block);
        (symbols.end - symbols.start) as u32
    }

    /// The number of all symbols of this block, repair included: its ESIs are below this. 0 if the block does not
    /// exist.
    pub fn encoding_symbols_of(&self, block: u32) -> u32 {
        match self.source_symbols_of(block) {
            0 => 0,
            source => source + self.repair_symbols,
        }
    }

    /// The indices in the object of a block's source symbols; empty if the block does not exist.
    pub fn symbols_of(&self, block: u32) -> Range<u64> {
        let start = u64::from(block) * u64::from(self.block_symbols);
        let end = (start + u64::from(self.block_symbols)).min(self.symbols());
        start.min(end)..end
    }

    /// The chunks of a block; empty if the block does not exist.
    pub fn chunks_of(&self, block: u32) -> Range<u64> {
        let bytes = self.bytes_of(block);
        bytes.start.div_ceil(CHUNK_BYTES)..bytes.end.div_ceil(CHUNK_BYTES)
    }

    /// The byte range of a block in the object; empty if the block does not exist.
    pub fn bytes_of(&self, block: u32) -> Range<u64> {
        let start = u64::from(block).saturating_mul(self.block_bytes()).min(self.length);
        start..(start + self.block_bytes()).min(self.length)
    }

    /// The source symbol with this index in the object, if it exists.
    pub fn symbol(&self, index: u64) -> Option<SymbolId> {
        let k = u64::from(self.block_symbols);
        // Fits: `blocks` and K do.
        (index < self.symbols())
            .then(|| SymbolId { block: (index / k) as u32, esi: (index % k) as u32 })
    }

    /// The index of a source symbol in the object; `None` for repair symbols and symbols that do not exist.
    pub fn index(&self, id: SymbolId) -> Option<u64> {
        let symbols = self.symbols_of(id.block);
        Some(symbols.start + u64::from(id.esi)).filter(|index| *index < symbols.end)
    }

    /// Whether the symbol exists, as a source or repair symbol.
    pub fn has(&self, id: SymbolId) -> bool {
        id.esi < self.encoding_symbols_of(id.block)
    }

    /// Whether it is a source symbol.
    pub fn is_source(&self, id: SymbolId) -> bool {
        id.esi < self.source_symbols_of(id.block)
    }

    /// The byte range in the object of the source symbol with this index; the last may be short. `None` if it does not
    /// exist.
    pub fn bytes_at(&self, index: u64) -> Option<Range<u64>> {
        let start = index.checked_mul(u64::from(self.symbol_bytes)).filter(|s| *s < self.length)?;
        Some(start..(start + u64::from(self.symbol_bytes)).min(self.length))
    }

    /// The length of a symbol on the wire: S, except for the object's last source symbol. `None` if it does not exist.
    pub fn bytes_in(&self, id: SymbolId) -> Option<usize> {
        match self.index(id) {
            Some(index) => self.bytes_at(index).map(|bytes| (bytes.end - bytes.start) as usize),
            None => self.has(id).then_some(self.symbol_bytes as usize),
        }
    }
}

fn default_symbol_bytes(length: u64) -> u32 {
    let wanted = match length {
        // Fits: at most 16 KiB.
        0..=0x80_0000 => (length / u64::from(DEFAULT_BLOCK_SYMBOLS)).next_power_of_two() as u32,
        // Up to 1 TiB, 2 TiB and beyond.
        0x80_0001..=0x100_0000_0000 => DEFAULT_SYMBOL_BYTES,
        0x100_0000_0001..=0x200_0000_0000 => 2 * DEFAULT_SYMBOL_BYTES,
        _ => MAX_SYMBOL_BYTES,
    };
    wanted.clamp(MIN_SYMBOL_BYTES, MAX_SYMBOL_BYTES)
}
