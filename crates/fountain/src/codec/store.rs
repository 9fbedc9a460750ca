//! Storage of received symbols until their block is solved.

use crate::geometry::SymbolId;
use std::{collections::BTreeMap, convert::Infallible, ops::Range};

/// Stores symbols by their ID. The caller implements it on files: source symbols are at their place in the object,
/// repair symbols in a spool beside it.
///
/// Only verified symbols are written, and only written symbols are read.
pub trait SymbolStore {
    /// The error of a failed operation.
    type Error;

    /// Stores a symbol's bytes: S of them, fewer for the object's last source symbol.
    ///
    /// # Errors
    /// Errors of the store.
    fn write(&mut self, id: SymbolId, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads a symbol that was written with `bytes.len()` bytes.
    ///
    /// # Errors
    /// Errors of the store.
    fn read(&mut self, id: SymbolId, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Appends a part of a symbol that was written with `length` bytes.
    ///
    /// Blocks are solved in stripes, so this is called for each of the few stripes of a symbol. The default
    /// implementation reads the whole symbol each time; a store that can read a part should do so.
    ///
    /// # Errors
    /// Errors of the store.
    fn read_part(
        &mut self,
        id: SymbolId,
        length: usize,
        part: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Self::Error> {
        let mut symbol = vec![0; length];
        self.read(id, &mut symbol)?;
        bytes.extend_from_slice(&symbol[part]);
        Ok(())
    }

    /// Discards the repair symbols of this block, which are no longer needed.
    ///
    /// # Errors
    /// Errors of the store.
    fn discard(&mut self, block: u32) -> Result<(), Self::Error>;
}

/// A store in memory, for small objects and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    symbols: BTreeMap<SymbolId, Vec<u8>>,
    discarded: Vec<u32>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A symbol that was written.
    pub fn get(&self, id: SymbolId) -> Option<&[u8]> {
        self.symbols.get(&id).map(Vec::as_slice)
    }

    /// The blocks whose repair symbols were discarded, in that order.
    pub fn discarded(&self) -> &[u32] {
        &self.discarded
    }
}

impl SymbolStore for MemoryStore {
    type Error = Infallible;

    fn write(&mut self, id: SymbolId, bytes: &[u8]) -> Result<(), Infallible> {
        self.symbols.insert(id, bytes.to_vec());
        Ok(())
    }

    /// A symbol that was never written reads as zeros.
    fn read(&mut self, id: SymbolId, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill(0);
        if let Some(known) = self.symbols.get(&id) {
            let length = known.len().min(bytes.len());
            bytes[..length].copy_from_slice(&known[..length]);
        }
        Ok(())
    }

    fn discard(&mut self, block: u32) -> Result<(), Infallible> {
        self.discarded.push(block);
        Ok(())
    }
}
