//! Where received symbols lie until their block is solved.

use crate::geometry::SymbolId;
use std::{collections::BTreeMap, convert::Infallible, ops::Range};

/// Keeps symbols by their place. The shell implements it on files: source symbols lie at
/// their place in the object, repair symbols in a spool beside it.
///
/// Only symbols that were verified are written, and only what was written is read.
pub trait SymbolStore {
    /// What can fail.
    type Error;

    /// Keeps a symbol's bytes: S of them, fewer for the object's last source symbol.
    ///
    /// # Errors
    /// Errors of the store.
    fn write(&mut self, id: SymbolId, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Fills `bytes` with a symbol that was written with as many.
    ///
    /// # Errors
    /// Errors of the store.
    fn read(&mut self, id: SymbolId, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Appends a part of a symbol that was written with `length` bytes.
    ///
    /// Blocks are solved in stripes, so it is called for each of the few stripes of a symbol. This one
    /// reads the whole symbol each time; a store that can read a part should.
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

    /// The repair symbols of this block are needed no more.
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
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A symbol that was written.
    pub fn get(&self, id: SymbolId) -> Option<&[u8]> {
        self.symbols.get(&id).map(Vec::as_slice)
    }

    /// The blocks whose repair symbols were given up, in that order.
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
