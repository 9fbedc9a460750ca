//! Repair symbols of blocks that are here, and the sheets that prove them.
//!
//! The source makes a sheet when somebody first needs one, and signs it. Others keep those that
//! come, in a file; with the block they make the same symbols themselves: encoding is deterministic.

use super::book::{PageBook, Proof};
use crate::store::{Known, Store};
use std::{
    collections::VecDeque,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_fountain::{
    Geometry, Shared, SymbolId,
    codec::{BlockEncoder, Plans},
    digest::RepairPage,
};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed,
    cast::{FRAME_HEAD, Frame, RepairSheet, SymbolHead},
};

/// Blocks whose repair symbols are kept: a quarter of a block each.
const KEPT: usize = 4;

/// A signed sheet: signer, signature, length; cast, block, count; before the digests.
const SHEET: u64 = 100 + 24;

/// Gives repair symbols of blocks, with what proves them.
#[derive(Debug)]
pub struct Repairs {
    source: NodeId,
    key: Option<Arc<PrivateKey>>,
    /// Sheets that came, each at its block's place.
    file: Option<File>,
    book: Arc<PageBook>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    plans: Plans,
    /// The last blocks' repair symbols.
    made: VecDeque<Made>,
}

/// The repair symbols of one block.
#[derive(Clone, Debug)]
struct Made {
    block: u32,
    /// Those that were made.
    esis: Range<u32>,
    symbols: Arc<Vec<Vec<u8>>>,
}

impl Repairs {
    /// Of the source, which signs.
    pub fn of_source(key: Arc<PrivateKey>, source: NodeId, book: Arc<PageBook>) -> Self {
        Self { source, key: Some(key), file: None, book, inner: Mutex::default() }
    }

    /// Of another, which keeps what comes in this file.
    pub fn of_receiver(source: NodeId, file: Option<File>, book: Arc<PageBook>) -> Self {
        Self { source, key: None, file, book, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sheet that somebody sent, if it is right.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn learn(&self, known: &Known, sheet: Vec<u8>) -> Result<Proof, String> {
        let proof = Proof::repair(known, &self.source, sheet.clone())?;
        if let Some(file) = &self.file {
            // One that is lost comes again, or what it proves is not made here.
            _ = file.write_all_at(&sheet, place(&known.geometry, proof.block()));
        }
        self.book.put(proof.clone());
        Ok(proof)
    }

    /// What proves a block's repair symbols, if it is here without being made.
    pub fn known(&self, known: &Known, block: u32) -> Option<Proof> {
        if let Some(proof) = self.book.get(block, false) {
            return Some(proof);
        }
        let mut sheet = vec![0; (SHEET + 32 * u64::from(known.geometry.repair_symbols())) as usize];
        self.file.as_ref()?.read_exact_at(&mut sheet, place(&known.geometry, block)).ok()?;
        let proof = Proof::repair(known, &self.source, sheet).ok()?;
        self.book.put(proof.clone());
        (proof.block() == block).then_some(proof)
    }

    /// What proves a block's repair symbols; the source makes it. Blocks for as long as that takes.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn proof(&self, store: &Store, block: u32) -> io::Result<Option<Proof>> {
        if let Some(proof) = self.known(&store.known, block) {
            return Ok(Some(proof));
        }
        let Some(key) = &self.key else { return Ok(None) };
        let geometry = &store.known.geometry;
        let first = geometry.source_symbols_of(block);
        let made = self.made(store, block, first..first + geometry.repair_symbols())?;
        let symbols = made.symbols.iter().map(Vec::as_slice);
        let page = RepairPage::of(geometry, store.known.id.as_bytes(), block, symbols);
        let sheet = RepairSheet { cast: store.known.id, block, digests: page.digests };
        let sheet = Signed::sign(sheet, &**key).encode();
        let proof = Proof::repair(&store.known, &self.source, sheet).map_err(io::Error::other)?;
        self.book.put(proof.clone());
        Ok(Some(proof))
    }

    /// A repair symbol as it is sent, with what proves it; `None` if that is not here. `share`: those
    /// of its block that will be asked for.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn symbol(
        &self,
        store: &Store,
        id: SymbolId,
        share: Range<u32>,
    ) -> io::Result<Option<(Shared, Proof)>> {
        let Some(proof) = self.proof(store, id.block)? else { return Ok(None) };
        let made = self.made(store, id.block, share)?;
        let at = id.esi.checked_sub(made.esis.start);
        let Some(symbol) = at.and_then(|at| made.symbols.get(at as usize)) else { return Ok(None) };
        // Wrong only if what is on the disk is not what it was.
        let is_right = proof.verify(&store.known, id, symbol).is_ok();
        Ok(is_right.then(|| (frame(id, symbol), proof)))
    }

    fn made(&self, store: &Store, block: u32, esis: Range<u32>) -> io::Result<Made> {
        let covers = |made: &&Made| {
            made.block == block && made.esis.start <= esis.start && made.esis.end >= esis.end
        };
        if let Some(made) = self.lock().made.iter().find(covers) {
            return Ok(made.clone());
        }
        let geometry = &store.known.geometry;
        let plan = self.lock().plans.of(geometry.source_symbols_of(block));
        let plan = plan.ok_or_else(|| io::Error::other("a block that has no code"))?;
        let range = geometry.bytes_of(block);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        store.files.read(range.start, &mut bytes)?;
        let encoder =
            BlockEncoder::new(geometry, block, &bytes, &plan).map_err(io::Error::other)?;
        drop(bytes);
        let symbols = Arc::new(encoder.repair(esis.clone()));
        let made = Made { block, esis, symbols };
        let mut inner = self.lock();
        inner.made.retain(|known| known.block != block);
        inner.made.push_front(made.clone());
        inner.made.truncate(KEPT);
        Ok(made)
    }
}

/// A symbol behind its head.
fn frame(id: SymbolId, symbol: &[u8]) -> Shared {
    let head = SymbolHead { block: id.block, esi: id.esi, length: symbol.len() as u32 };
    let head = Frame::Symbol(head).encode();
    let mut frame = Vec::with_capacity(head.len() + symbol.len());
    frame.extend(head);
    frame.extend(symbol);
    Arc::new(frame)
}

/// As [`frame`], of a symbol of so many bytes that is written to its place by `fill`.
///
/// # Errors
/// Its own.
pub fn frame_of(
    id: SymbolId,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<Shared> {
    let head = SymbolHead { block: id.block, esi: id.esi, length: length as u32 };
    let mut frame = vec![0; FRAME_HEAD + length];
    let (its, symbol) = frame.split_at_mut(FRAME_HEAD);
    its.copy_from_slice(&Frame::Symbol(head).encode());
    fill(symbol)?;
    Ok(Arc::new(frame))
}

/// Where a block's sheet lies.
fn place(geometry: &Geometry, block: u32) -> u64 {
    u64::from(block) * (SHEET + 32 * u64::from(geometry.repair_symbols()))
}
