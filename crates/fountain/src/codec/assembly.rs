//! A receiver's symbols of an object, and which blocks can be solved.

use super::{
    solve::{BlockSolver, SolveOutcome},
    store::SymbolStore,
};
use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The result of an accepted symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// It is new and was stored.
    Fresh,
    /// It is new, and its block can be solved now: [`Assembly::solve`].
    Ready,
    /// It is new, and completes its block.
    Complete,
    /// It was already held.
    Duplicate,
    /// Its block is complete or has enough symbols.
    Unneeded,
}

/// Why a symbol was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AcceptError<E> {
    /// The symbol does not exist.
    #[error("symbol {} of block {} does not exist", .0.esi, .0.block)]
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
    /// The store failed, and the symbol is not held.
    #[error(transparent)]
    Store(E),
}

/// The progress of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblyProgress {
    pub blocks_done: u32,
    /// Blocks of the object.
    pub blocks: u32,
    /// Bytes of the object that are held.
    pub bytes_held: u64,
    /// Bytes that are held, or will be solved from held repair symbols. Falls only when repair symbols are forgotten.
    pub bytes_useful: u64,
    /// Bytes of the object.
    pub bytes: u64,
}

/// The repair symbols of an incomplete block.
#[derive(Clone, Debug)]
struct SpooledBlock {
    repair: BTreeSet<u32>,
    /// The number of symbols, source or repair, that the next solve needs.
    needed: u32,
    solving: bool,
}

/// A receiver's view of an object: held source symbols and spooled repair symbols.
///
/// It takes verified symbols, writes them to the store, and tells when a block can be solved. A block of which all
/// source symbols arrived is complete without solving. The assembly itself contains no symbols, only the set of held
/// ones and the numbers of spooled ones.
#[derive(Clone, Debug)]
pub struct Assembly {
    geometry: Geometry,
    have: HaveSet,
    spooled: BTreeMap<u32, SpooledBlock>,
}

impl Assembly {
    /// Creates an assembly without symbols.
    pub fn new(geometry: Geometry) -> Self {
        Self::resume(geometry, HaveSet::empty(&geometry), [])
    }

    /// Creates an assembly from a journal: held source symbols, and repair symbols in the spool. Repair symbols that do
    /// not exist or are not needed are left out.
    pub fn resume(
        geometry: Geometry,
        have: HaveSet,
        repair: impl IntoIterator<Item = SymbolId>,
    ) -> Self {
        let mut assembly = Self { geometry, have, spooled: BTreeMap::new() };
        for id in repair {
            if geometry.has(id) && !geometry.is_source(id) && !assembly.have.holds_block(id.block) {
                assembly.spooled_of(id.block).repair.insert(id.esi);
            }
        }
        assembly
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The held source symbols.
    pub fn have(&self) -> &HaveSet {
        &self.have
    }

    /// Whether the whole object is held.
    pub fn is_complete(&self) -> bool {
        self.have.is_complete()
    }

    /// Whether a symbol would be of use. If not, it need not be read or verified.
    pub fn wants(&self, id: SymbolId) -> bool {
        match self.geometry.index(id) {
            Some(index) => !self.have.contains(index),
            None => self.geometry.has(id) && self.judge_repair(id).is_none(),
        }
    }

    /// Takes a verified symbol, and writes it to the store if it is of use.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept<S: SymbolStore>(
        &mut self,
        id: SymbolId,
        bytes: &[u8],
        store: &mut S,
    ) -> Result<AcceptOutcome, AcceptError<S::Error>> {
        let expected = self.geometry.bytes_in(id).ok_or(AcceptError::Absent(id))?;
        if bytes.len() != expected {
            return Err(AcceptError::Length { id, got: bytes.len(), expected });
        }
        let arrival = match self.geometry.index(id) {
            Some(index) => self.accept_source(id, index, bytes, store),
            None => self.accept_repair(id, bytes, store),
        };
        arrival.map_err(AcceptError::Store)
    }

    fn accept_source<S: SymbolStore>(
        &mut self,
        id: SymbolId,
        index: u64,
        bytes: &[u8],
        store: &mut S,
    ) -> Result<AcceptOutcome, S::Error> {
        if self.have.contains(index) {
            return Ok(AcceptOutcome::Duplicate);
        }
        store.write(id, bytes)?;
        self.have.insert(index);
        self.close_or_judge(id.block, store)
    }

    fn accept_repair<S: SymbolStore>(
        &mut self,
        id: SymbolId,
        bytes: &[u8],
        store: &mut S,
    ) -> Result<AcceptOutcome, S::Error> {
        if let Some(useless) = self.judge_repair(id) {
            return Ok(useless);
        }
        store.write(id, bytes)?;
        self.spooled_of(id.block).repair.insert(id.esi);
        self.close_or_judge(id.block, store)
    }

    /// Why a repair symbol is of no use, if so.
    fn judge_repair(&self, id: SymbolId) -> Option<AcceptOutcome> {
        if self.have.holds_block(id.block) {
            return Some(AcceptOutcome::Unneeded);
        }
        let spooled = self.spooled.get(&id.block)?;
        if spooled.repair.contains(&id.esi) {
            return Some(AcceptOutcome::Duplicate);
        }
        (self.held_of(id.block) >= spooled.needed).then_some(AcceptOutcome::Unneeded)
    }

    /// Updates a block after a symbol was added.
    fn close_or_judge<S: SymbolStore>(
        &mut self,
        block: u32,
        store: &mut S,
    ) -> Result<AcceptOutcome, S::Error> {
        if self.have.holds_block(block) {
            // A running solve still reads the repair symbols: they are discarded at its end.
            if self.spooled.get(&block).is_some_and(|spooled| !spooled.solving) {
                self.spooled.remove(&block);
                store.discard(block)?;
            }
            return Ok(AcceptOutcome::Complete);
        }
        Ok(if self.is_ready(block) { AcceptOutcome::Ready } else { AcceptOutcome::Fresh })
    }

    /// The number of held symbols of a block, source and repair.
    fn held_of(&self, block: u32) -> u32 {
        let repair = self.spooled.get(&block).map_or(0, |spooled| spooled.repair.len() as u32);
        self.have.count_of(block) + repair
    }

    fn is_ready(&self, block: u32) -> bool {
        let spooled = self.spooled.get(&block);
        spooled.is_some_and(|s| !s.solving && self.held_of(block) >= s.needed)
    }

    fn spooled_of(&mut self, block: u32) -> &mut SpooledBlock {
        let needed = self.geometry.source_symbols_of(block);
        let new = || SpooledBlock { repair: BTreeSet::new(), needed, solving: false };
        self.spooled.entry(block).or_insert_with(new)
    }

    /// The blocks that can be solved now, including those from before a resume.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        self.spooled.keys().copied().filter(|block| self.is_ready(*block))
    }

    /// Starts the solve of a block; `None` if it cannot be solved. It ends with [`Self::record_solve`] or
    /// [`Self::abandon`]; until then the block is not ready again.
    pub fn solve(&mut self, block: u32) -> Option<BlockSolver> {
        if !self.is_ready(block) {
            return None;
        }
        let symbols = self.geometry.symbols_of(block);
        let spooled = self.spooled.get_mut(&block)?;
        spooled.solving = true;
        let have = &self.have;
        // Fits: indices in a block.
        let source = symbols.clone().filter(|index| have.contains(*index));
        let source = source.map(|index| (index - symbols.start) as u32);
        let held = source.chain(spooled.repair.iter().copied()).collect();
        Some(BlockSolver { geometry: self.geometry, block, held })
    }

    /// Records the outcome of a solve: the block is complete, or needs one more symbol. Returns whether it is complete.
    ///
    /// # Errors
    /// Errors of the store when it discards the block's repair symbols; the block is complete nevertheless.
    pub fn record_solve<S: SymbolStore>(
        &mut self,
        solve: &BlockSolver,
        outcome: SolveOutcome,
        store: &mut S,
    ) -> Result<bool, S::Error> {
        if outcome == SolveOutcome::TooFew && !self.have.holds_block(solve.block) {
            if let Some(spooled) = self.spooled.get_mut(&solve.block) {
                spooled.solving = false;
                spooled.needed = solve.symbols() + 1;
            }
            return Ok(false);
        }
        for index in self.geometry.symbols_of(solve.block) {
            self.have.insert(index);
        }
        if self.spooled.remove(&solve.block).is_some() {
            store.discard(solve.block)?;
        }
        Ok(true)
    }

    /// Records that a solve failed; the block may be solved again.
    pub fn abandon(&mut self, solve: &BlockSolver) {
        if let Some(spooled) = self.spooled.get_mut(&solve.block) {
            spooled.solving = false;
        }
    }

    /// Forgets the repair symbols of a block, because the spool lost them or they were forged. Missing symbols must
    /// come otherwise.
    pub fn forget_repair(&mut self, block: u32) {
        self.spooled.remove(&block);
    }

    /// The number of symbols that a block lacks until it is complete or can be solved.
    pub fn lacks(&self, block: u32) -> u32 {
        if self.have.holds_block(block) {
            return 0;
        }
        let needed = self.spooled.get(&block).map(|spooled| spooled.needed);
        let needed = needed.unwrap_or_else(|| self.geometry.source_symbols_of(block));
        needed.saturating_sub(self.held_of(block))
    }

    /// The progress. Takes time in proportion to the blocks that have repair symbols.
    pub fn progress(&self) -> AssemblyProgress {
        let bytes_held = self.bytes_held();
        let spooled: u64 = self.spooled.iter().map(|(block, s)| self.worth(*block, s)).sum();
        AssemblyProgress {
            blocks_done: self.have.full_blocks(),
            blocks: self.geometry.blocks(),
            bytes_held,
            bytes_useful: bytes_held + spooled,
            bytes: self.geometry.length(),
        }
    }

    /// The number of missing bytes of a block that its spooled symbols stand for. Each stands for one symbol; the last
    /// symbol of the object may be short.
    fn worth(&self, block: u32, spooled: &SpooledBlock) -> u64 {
        let size = u64::from(self.geometry.symbol_bytes());
        let missing = self.geometry.source_symbols_of(block) - self.have.count_of(block);
        let lacks_last = block + 1 == self.geometry.blocks() && !self.holds_last();
        let padding = if lacks_last { self.padding() } else { 0 };
        (u64::from(missing) * size - padding).min(spooled.repair.len() as u64 * size)
    }

    fn bytes_held(&self) -> u64 {
        let size = u64::from(self.geometry.symbol_bytes());
        self.have.count() * size - if self.holds_last() { self.padding() } else { 0 }
    }

    fn holds_last(&self) -> bool {
        self.geometry.symbols().checked_sub(1).is_some_and(|last| self.have.contains(last))
    }

    /// The number of bytes by which the last symbol of the object is shorter than the others.
    fn padding(&self) -> u64 {
        let size = u64::from(self.geometry.symbol_bytes());
        self.geometry.symbols() * size - self.geometry.length()
    }
}
