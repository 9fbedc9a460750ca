//! Makes repair symbols of blocks that this node holds, and keeps the sheets that prove them.
//!
//! The source makes and signs a sheet when one is first needed. Other nodes keep received sheets in a file. With the
//! block they can make the same symbols themselves, because encoding is deterministic.

use super::proof_cache::{Proof, ProofCache};
use crate::store::{KnownObject, Store};
use parking_lot::Mutex;
use std::{collections::VecDeque, fs::File, io, ops::Range, os::unix::fs::FileExt as _, sync::Arc};
use thalweg_fountain::{
    Geometry, SharedBytes, SymbolId,
    codec::{BlockEncoder, PlanCache},
    digest::RepairPage,
};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed,
    cast::{FRAME_HEAD, Frame, RepairSheet, SymbolHead},
};

/// The number of blocks whose repair symbols are cached. They take a quarter of a block each by default.
const KEPT: usize = 4;

/// Bytes of a signed sheet before the digests: signer, signature, length (100), then cast, block, count (24).
const SHEET: u64 = 100 + 24;

/// Makes repair symbols of blocks, with their proofs.
#[derive(Debug)]
pub struct RepairEncoder {
    source: NodeId,
    key: Option<Arc<PrivateKey>>,
    /// Received sheets, at an offset given by the block's number.
    file: Option<File>,
    proofs: Arc<ProofCache>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    plans: PlanCache,
    /// The repair symbols of the last blocks.
    made: VecDeque<RepairSymbols>,
}

/// The repair symbols of one block.
#[derive(Clone, Debug)]
struct RepairSymbols {
    block: u32,
    /// The range of symbols made.
    esis: Range<u32>,
    symbols: Arc<Vec<Vec<u8>>>,
}

impl RepairEncoder {
    /// For the source, which signs sheets with `key`.
    pub fn for_source(key: Arc<PrivateKey>, source: NodeId, proofs: Arc<ProofCache>) -> Self {
        Self { source, key: Some(key), file: None, proofs, inner: Mutex::default() }
    }

    /// For other nodes, which keep received sheets in `file`.
    pub fn for_receiver(source: NodeId, file: Option<File>, proofs: Arc<ProofCache>) -> Self {
        Self { source, key: None, file, proofs, inner: Mutex::default() }
    }

    /// Checks a received sheet, and keeps it if it is valid.
    ///
    /// # Errors
    /// Why the sheet is invalid.
    pub fn learn(&self, known: &KnownObject, sheet: Vec<u8>) -> Result<Proof, String> {
        let proof = Proof::repair(known, &self.source, sheet.clone())?;
        if let Some(file) = &self.file {
            // If writing fails the sheet may have to be sent again; without one, no repair symbols are made here.
            _ = file.write_all_at(&sheet, place(&known.geometry, proof.block()));
        }
        self.proofs.put(proof.clone());
        Ok(proof)
    }

    /// The proof of a block's repair symbols, if it is cached or in the file.
    pub fn known(&self, known: &KnownObject, block: u32) -> Option<Proof> {
        if let Some(proof) = self.proofs.get(block, false) {
            return Some(proof);
        }
        let mut sheet = vec![0; (SHEET + 32 * u64::from(known.geometry.repair_symbols())) as usize];
        self.file.as_ref()?.read_exact_at(&mut sheet, place(&known.geometry, block)).ok()?;
        let proof = Proof::repair(known, &self.source, sheet).ok()?;
        self.proofs.put(proof.clone());
        (proof.block() == block).then_some(proof)
    }

    /// The proof of a block's repair symbols. The source makes it if necessary, which blocks the thread.
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
        let made = self.encode(store, block, first..first + geometry.repair_symbols())?;
        let symbols = made.symbols.iter().map(Vec::as_slice);
        let page = RepairPage::compute(geometry, store.known.id.as_bytes(), block, symbols);
        let sheet = RepairSheet { cast: store.known.id, block, digests: page.digests };
        let sheet = Signed::sign(sheet, &**key).encode();
        let proof = Proof::repair(&store.known, &self.source, sheet).map_err(io::Error::other)?;
        self.proofs.put(proof.clone());
        Ok(Some(proof))
    }

    /// A repair symbol as a frame, with its proof; `None` if the proof is not known. All symbols in `share` are
    /// computed together and cached, because they will be requested too.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn symbol(
        &self,
        store: &Store,
        id: SymbolId,
        share: Range<u32>,
    ) -> io::Result<Option<(SharedBytes, Proof)>> {
        let Some(proof) = self.proof(store, id.block)? else { return Ok(None) };
        let made = self.encode(store, id.block, share)?;
        let at = id.esi.checked_sub(made.esis.start);
        let Some(symbol) = at.and_then(|at| made.symbols.get(at as usize)) else { return Ok(None) };
        // A mismatch means that the data on disk has changed.
        let is_right = proof.verify(&store.known, id, symbol).is_ok();
        Ok(is_right.then(|| (frame(id, symbol), proof)))
    }

    fn encode(&self, store: &Store, block: u32, esis: Range<u32>) -> io::Result<RepairSymbols> {
        let covers = |made: &&RepairSymbols| {
            made.block == block && made.esis.start <= esis.start && made.esis.end >= esis.end
        };
        if let Some(made) = self.inner.lock().made.iter().find(covers) {
            return Ok(made.clone());
        }
        let geometry = &store.known.geometry;
        let plan = self.inner.lock().plans.get(geometry.source_symbols_of(block));
        let plan = plan.ok_or_else(|| {
            io::Error::other("the number of symbols of the block is not supported")
        })?;
        let range = geometry.bytes_of(block);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        store.files.read(range.start, &mut bytes)?;
        let encoder =
            BlockEncoder::new(geometry, block, &bytes, &plan).map_err(io::Error::other)?;
        drop(bytes);
        let symbols = Arc::new(encoder.repair(esis.clone()));
        let made = RepairSymbols { block, esis, symbols };
        let mut inner = self.inner.lock();
        inner.made.retain(|known| known.block != block);
        inner.made.push_front(made.clone());
        inner.made.truncate(KEPT);
        Ok(made)
    }
}

/// Encodes a symbol as a frame.
fn frame(id: SymbolId, symbol: &[u8]) -> SharedBytes {
    let head = SymbolHead { block: id.block, esi: id.esi, length: symbol.len() as u32 };
    let head = Frame::Symbol(head).encode();
    let mut frame = Vec::with_capacity(head.len() + symbol.len());
    frame.extend(head);
    frame.extend(symbol);
    Arc::new(frame)
}

/// Like [`frame`], for a symbol of `length` bytes which `fill` writes.
///
/// # Errors
/// The error of `fill`.
pub fn frame_of(
    id: SymbolId,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<SharedBytes> {
    let head = SymbolHead { block: id.block, esi: id.esi, length: length as u32 };
    let mut frame = vec![0; FRAME_HEAD + length];
    let (its, symbol) = frame.split_at_mut(FRAME_HEAD);
    its.copy_from_slice(&Frame::Symbol(head).encode());
    fill(symbol)?;
    Ok(Arc::new(frame))
}

/// The offset of a block's sheet in the file.
fn place(geometry: &Geometry, block: u32) -> u64 {
    u64::from(block) * (SHEET + 32 * u64::from(geometry.repair_symbols()))
}
