//! A cache of digests of the blocks in transit.

use crate::store::KnownObject;
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};
use thalweg_fountain::{
    Geometry, SharedBytes, SymbolId,
    digest::{RepairPage, SourcePage, SymbolError},
    pages_known,
};
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed,
    cast::{Frame, ParentMessage, RepairSheet},
};

/// The verified digests of one block's source or repair symbols, with the message that carries them.
#[derive(Clone, Debug)]
pub struct Proof {
    block: u32,
    page: Page,
    /// The encoded message, for children.
    pub message: SharedBytes,
}

#[derive(Clone, Debug)]
enum Page {
    Source(Arc<SourcePage>),
    Repair(Arc<RepairPage>),
}

impl Proof {
    /// Creates the proof from a verified page.
    pub fn source(page: &Arc<SourcePage>) -> Self {
        let (block, digests) = (page.block, page.digests.as_flattened().to_vec());
        let message = Arc::new(Frame::encode_message(&ParentMessage::Page { block, digests }));
        Self { block, page: Page::Source(Arc::clone(page)), message }
    }

    /// Creates the proof from a signed sheet, if the source signed it for this cast.
    ///
    /// # Errors
    /// Why the sheet is invalid.
    pub fn repair(known: &KnownObject, source: &NodeId, sheet: Vec<u8>) -> Result<Self, String> {
        let signed = Signed::<RepairSheet>::open(&sheet, &Ed25519).map_err(|e| e.to_string())?;
        let is_its = signed.signer() == *source && signed.value().cast == known.id;
        let RepairSheet { block, digests, .. } = signed.into_value();
        let page = RepairPage { block, digests };
        page.check(&known.geometry).map_err(|e| e.to_string())?;
        if !is_its {
            return Err(format!(
                "the repair digests of block {block} are not signed by the source, or belong to \
                 another cast"
            ));
        }
        let message =
            Arc::new(Frame::encode_message(&ParentMessage::RepairPage { block, page: sheet }));
        Ok(Self { block, page: Page::Repair(Arc::new(page)), message })
    }

    /// The index of the block in the object.
    pub fn block(&self) -> u32 {
        self.block
    }

    fn is_source(&self) -> bool {
        matches!(self.page, Page::Source(_))
    }

    /// Checks a symbol's bytes against its digest.
    ///
    /// # Errors
    /// Why the symbol is invalid.
    pub fn verify(
        &self,
        known: &KnownObject,
        id: SymbolId,
        bytes: &[u8],
    ) -> Result<(), SymbolError> {
        match &self.page {
            Page::Source(page) => page.verify(&known.geometry, id, bytes),
            Page::Repair(page) => page.verify(&known.geometry, known.id.as_bytes(), id, bytes),
        }
    }
}

/// Keeps the newest proofs: twice as many as a parent assumes its child to remember.
#[derive(Debug)]
pub struct ProofCache {
    most: usize,
    proofs: Mutex<VecDeque<Proof>>,
}

impl ProofCache {
    /// Creates an empty cache.
    pub fn new(geometry: &Geometry) -> Self {
        Self { most: Self::capacity(geometry), proofs: Mutex::default() }
    }

    /// The capacity, in proofs.
    pub fn capacity(geometry: &Geometry) -> usize {
        2 * pages_known(geometry)
    }

    /// The digests of a block's source symbols or, if `is_source` is false, of its repair symbols.
    pub fn get(&self, block: u32, is_source: bool) -> Option<Proof> {
        let proofs = self.proofs.lock();
        let is_it = |proof: &&Proof| proof.block == block && proof.is_source() == is_source;
        proofs.iter().find(is_it).cloned()
    }

    /// Adds a proof as the newest; removes the oldest if the cache is full.
    pub fn put(&self, proof: Proof) {
        let mut proofs = self.proofs.lock();
        proofs.retain(|p| p.block != proof.block || p.is_source() != proof.is_source());
        proofs.push_front(proof);
        proofs.truncate(self.most);
    }
}
