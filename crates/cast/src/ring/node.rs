//! A node's ring for one cast where the object is held or is coming to be: ring, digests, feed.

use super::{
    book::{PageBook, Proof},
    feed::Feed,
    repairs::Repairs,
    serve::{self, Sheets},
    shared::SharedRing,
    up::Up,
};
use crate::{
    leg::{Leg, parent::Unserved},
    store::Store,
};
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use thalweg_fountain::{ChildId, Share, Shared, SymbolId, digest::SourcePage};
use thalweg_wire::cast::RingTerms;
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
};

/// Who begins to feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The source: all of it.
    Source,
    /// A receiver: what children lack of blocks that it holds, beside what it hands on.
    Receiver,
}

/// One ring with all that belongs to it.
#[derive(Debug)]
pub struct NodeRing {
    /// The object.
    pub store: Arc<Store>,
    /// What goes to children.
    pub ring: Arc<SharedRing>,
    /// The digests of blocks on their way.
    pub book: Arc<PageBook>,
    /// Repair symbols.
    pub repairs: Arc<Repairs>,
    share: Share,
    start: Start,
    above: Mutex<Above>,
    feeding: Mutex<Option<JoinHandle<()>>>,
    broken: watch::Sender<Option<String>>,
}

/// The parent that streams to this node, and the blocks whose sheets it was asked for; those that
/// did not come yet.
#[derive(Debug, Default)]
struct Above {
    up: Weak<Up>,
    asked: BTreeSet<u32>,
    owed: BTreeSet<u32>,
}

impl Drop for NodeRing {
    fn drop(&mut self) {
        let feeding = self.feeding.get_mut().unwrap_or_else(PoisonError::into_inner);
        feeding.take().inspect(JoinHandle::abort);
    }
}

impl NodeRing {
    /// Nobody reads it yet.
    ///
    /// # Errors
    /// A geometry that no ring is for.
    pub fn new(
        store: Arc<Store>,
        repairs: Repairs,
        book: Arc<PageBook>,
        terms: RingTerms,
        start: Start,
    ) -> io::Result<Arc<Self>> {
        let ring = SharedRing::new(&store.known.geometry, terms.bytes, None)?;
        let of = terms.parts.max(1);
        let share = Share { index: terms.part.min(of - 1), of };
        Ok(Arc::new(Self {
            store,
            ring,
            book,
            repairs: Arc::new(repairs),
            share,
            start,
            above: Mutex::default(),
            feeding: Mutex::default(),
            broken: watch::Sender::new(None),
        }))
    }

    /// Serves one child of the ring until it is gone.
    ///
    /// # Errors
    /// [`Unserved`].
    pub async fn serve(self: &Arc<Self>, leg: Leg) -> Result<(), Unserved> {
        self.feed();
        let mut broken = self.broken.subscribe();
        tokio::select! {
            served = serve::serve(&self.ring, self, leg) => Ok(served?),
            why = broken.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| why.clone()).unwrap_or_default();
                Err(Unserved::Disk(io::Error::other(why)))
            }
        }
    }

    /// Sees to it that somebody fills the ring.
    fn feed(self: &Arc<Self>) {
        let mut feeding = self.feeding.lock().unwrap_or_else(PoisonError::into_inner);
        if feeding.as_ref().is_some_and(|feeding| !feeding.is_finished()) {
            return;
        }
        // What could not be read before may be readable now.
        self.broken.send_replace(None);
        let (store, ring) = (Arc::clone(&self.store), Arc::clone(&self.ring));
        let (repairs, book) = (Arc::clone(&self.repairs), Arc::clone(&self.book));
        let is_source = self.start == Start::Source;
        let feed = Feed::new(store, ring, repairs, book, self.share, is_source);
        let broken = self.broken.clone();
        *feeding = Some(tokio::spawn(async move {
            let why = feed.run().await;
            broken.send_replace(Some(why.to_string()));
        }));
    }

    /// A symbol came from a parent and is proven: it is handed on. Of a block of which somebody below
    /// misses something the repair symbols will be made here.
    pub fn hand_on(&self, id: SymbolId, frame: &Shared, proof: &Proof) {
        let missed = self.ring.push(id, frame, proof);
        if let Some(block) = missed.filter(|block| self.book.get(*block, false).is_none()) {
            self.ask_above(block);
        }
    }

    /// A page of source symbols, as children get it.
    pub fn proof_of(&self, page: &Arc<SourcePage>) -> Proof {
        self.book.get(page.block, true).unwrap_or_else(|| {
            let proof = Proof::source(page);
            self.book.put(proof.clone());
            proof
        })
    }

    /// A parent streams to this node from now on: it is asked for sheets.
    pub fn attach(&self, up: &Arc<Up>) {
        *self.above() = Above { up: Arc::downgrade(up), ..Above::default() };
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_above(&self, block: u32) {
        let mut above = self.above();
        if let Some(up) = above.up.upgrade()
            && above.asked.insert(block)
        {
            above.owed.insert(block);
            up.page(block);
        }
    }

    /// Whether sheets that the parent was asked for are on their way, and children wait below.
    pub fn awaits_sheets(&self) -> bool {
        self.ring.has_children() && !self.above().owed.is_empty()
    }

    /// A sheet came from above.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn sheet_came(&self, sheet: Vec<u8>) -> Result<(), String> {
        let proof = self.repairs.learn(&self.store.known, sheet)?;
        self.above().owed.remove(&proof.block());
        self.ring.page_came(&proof);
        Ok(())
    }
}

impl Sheets for Arc<NodeRing> {
    fn needed(&self, child: ChildId, block: u32) {
        if !self.ring.wait_for_page(child, block) {
            return;
        }
        let node = Self::clone(self);
        spawn_blocking(move || match node.repairs.proof(&node.store, block) {
            Ok(Some(proof)) => node.ring.page_came(&proof),
            // It comes from above, or not at all: then it is done without.
            Ok(None) | Err(_) => node.ask_above(block),
        });
    }
}
