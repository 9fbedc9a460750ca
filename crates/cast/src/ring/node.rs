//! The ring of a source or receiver for one cast, with its digests and the feed that fills it.

use super::{
    feed::Feed,
    proof_cache::{Proof, ProofCache},
    repairs::RepairEncoder,
    serve::{self, SheetProvider},
    shared::SharedRing,
    upstream_queue::UpstreamQueue,
};
use crate::{
    leg::{Leg, parent::ServeError},
    store::Store,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Weak},
};
use thalweg_fountain::{ChildId, SenderShare, SharedBytes, SymbolId, digest::SourcePage};
use thalweg_wire::cast::RingTerms;
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
};

/// What the node's feed sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedRole {
    /// The source: the whole object.
    Source,
    /// A receiver: symbols that children lack of blocks that it holds. Besides these, it forwards arriving symbols.
    Receiver,
}

/// One ring with everything that belongs to it.
#[derive(Debug)]
pub struct NodeRing {
    pub store: Arc<Store>,
    /// The ring, from which children are served.
    pub ring: Arc<SharedRing>,
    /// Digests of blocks in transit.
    pub proofs: Arc<ProofCache>,
    pub repairs: Arc<RepairEncoder>,
    share: SenderShare,
    role: FeedRole,
    streaming_parent: Mutex<StreamingParent>,
    feeding: Mutex<Option<JoinHandle<()>>>,
    broken: watch::Sender<Option<String>>,
}

/// The parent that streams to this node, the blocks whose sheets were requested from it, and those of them whose sheets
/// have not come yet.
#[derive(Debug, Default)]
struct StreamingParent {
    upstream: Weak<UpstreamQueue>,
    asked: BTreeSet<u32>,
    owed: BTreeSet<u32>,
}

impl Drop for NodeRing {
    fn drop(&mut self) {
        let feeding = self.feeding.get_mut();
        feeding.take().inspect(JoinHandle::abort);
    }
}

impl NodeRing {
    /// Creates the ring, without children.
    ///
    /// # Errors
    /// No ring can hold a symbol of this geometry.
    pub fn new(
        store: Arc<Store>,
        repairs: RepairEncoder,
        proofs: Arc<ProofCache>,
        terms: RingTerms,
        role: FeedRole,
    ) -> io::Result<Arc<Self>> {
        let ring = SharedRing::new(&store.known.geometry, terms.bytes, None)?;
        let of = terms.parts.max(1);
        let share = SenderShare { index: terms.part.min(of - 1), of };
        Ok(Arc::new(Self {
            store,
            ring,
            proofs,
            repairs: Arc::new(repairs),
            share,
            role,
            streaming_parent: Mutex::default(),
            feeding: Mutex::default(),
            broken: watch::Sender::new(None),
        }))
    }

    /// Serves one child of the ring until its leg ends.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn serve(self: &Arc<Self>, leg: Leg) -> Result<(), ServeError> {
        self.feed();
        let mut broken = self.broken.subscribe();
        tokio::select! {
            served = serve::serve(&self.ring, self, leg) => Ok(served?),
            why = broken.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| why.clone()).unwrap_or_default();
                Err(ServeError::Disk(io::Error::other(why)))
            }
        }
    }

    /// Starts the feed unless it runs.
    fn feed(self: &Arc<Self>) {
        let mut feeding = self.feeding.lock();
        if feeding.as_ref().is_some_and(|feeding| !feeding.is_finished()) {
            return;
        }
        // Data that could not be read before may be readable now.
        self.broken.send_replace(None);
        let (store, ring) = (Arc::clone(&self.store), Arc::clone(&self.ring));
        let (repairs, proofs) = (Arc::clone(&self.repairs), Arc::clone(&self.proofs));
        let is_source = self.role == FeedRole::Source;
        let feed = Feed::new(store, ring, repairs, proofs, self.share, is_source);
        let broken = self.broken.clone();
        *feeding = Some(tokio::spawn(async move {
            let why = feed.run().await;
            broken.send_replace(Some(why.to_string()));
        }));
    }

    /// Forwards a verified symbol from a parent. If a child misses a symbol thereby, requests the sheet of that
    /// symbol's block, with which this node can make repair symbols later.
    pub fn forward(&self, id: SymbolId, frame: &SharedBytes, proof: &Proof) {
        let missed = self.ring.push(id, frame, proof);
        if let Some(block) = missed.filter(|block| self.proofs.get(*block, false).is_none()) {
            self.request_sheet(block);
        }
    }

    /// The page of source symbols as a message for children.
    pub fn proof_of(&self, page: &Arc<SourcePage>) -> Proof {
        self.proofs.get(page.block, true).unwrap_or_else(|| {
            let proof = Proof::source(page);
            self.proofs.put(proof.clone());
            proof
        })
    }

    /// Sets the parent that streams to this node from now on; sheets are requested from it.
    pub fn attach(&self, upstream: &Arc<UpstreamQueue>) {
        *self.streaming_parent() =
            StreamingParent { upstream: Arc::downgrade(upstream), ..StreamingParent::default() };
    }

    fn streaming_parent(&self) -> MutexGuard<'_, StreamingParent> {
        self.streaming_parent.lock()
    }

    fn request_sheet(&self, block: u32) {
        let mut streaming_parent = self.streaming_parent();
        if let Some(upstream) = streaming_parent.upstream.upgrade()
            && streaming_parent.asked.insert(block)
        {
            streaming_parent.owed.insert(block);
            upstream.request_page(block);
        }
    }

    /// Whether requested sheets are still missing while there are children.
    pub fn awaits_sheets(&self) -> bool {
        self.ring.has_children() && !self.streaming_parent().owed.is_empty()
    }

    /// Adds a sheet from the parent.
    ///
    /// # Errors
    /// Why the sheet is invalid.
    pub fn receive_sheet(&self, sheet: Vec<u8>) -> Result<(), String> {
        let proof = self.repairs.learn(&self.store.known, sheet)?;
        self.streaming_parent().owed.remove(&proof.block());
        self.ring.deliver_page(&proof);
        Ok(())
    }
}

impl SheetProvider for Arc<NodeRing> {
    fn provide(&self, child: ChildId, block: u32) {
        if !self.ring.wait_for_page(child, block) {
            return;
        }
        let node = Self::clone(self);
        spawn_blocking(move || match node.repairs.proof(&node.store, block) {
            Ok(Some(proof)) => node.ring.deliver_page(&proof),
            // The parent must send it; without it, no repair symbols are used.
            Ok(None) | Err(_) => node.request_sheet(block),
        });
    }
}
