//! A cast's object at a node: its bytes, its digests, and the set of symbols that are present.

pub mod journal;
mod pages;
mod recover;
#[cfg(test)]
pub mod testing;

pub use pages::{Pages, read_page};
pub use recover::recover;

use super::disk::ObjectFiles;
use parking_lot::{Mutex, MutexGuard};
use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_fountain::{
    Geometry, HaveSet,
    digest::{PageError, SourcePage},
};
use thalweg_wire::{
    Manifest,
    cast::{CastId, Offer},
};
use tokio::sync::watch;

/// What a node needs to verify an object: its offer, geometry and digests.
#[derive(Debug)]
pub struct KnownObject {
    pub id: CastId,
    pub offer: Offer,
    /// How the object is divided into symbols and blocks.
    pub geometry: Geometry,
    /// The digests of the object's chunks.
    pub manifest: Arc<Manifest>,
}

/// One object at one node. The source has all of its symbols; a receiver's set grows.
#[derive(Debug)]
pub struct Store {
    /// The offer and the digests of chunks.
    pub known: KnownObject,
    /// The files with the object's bytes.
    pub files: ObjectFiles,
    /// The digests of symbols, as far as they are known.
    pub pages: Pages,
    have: Mutex<HaveSet>,
    changes: watch::Sender<u64>,
    served: AtomicU64,
}

impl Store {
    /// Creates the store of an object; the symbols in `have` are already present.
    pub fn new(known: KnownObject, files: ObjectFiles, pages: Pages, have: HaveSet) -> Arc<Self> {
        let changes = watch::Sender::new(0);
        let (have, served) = (Mutex::new(have), AtomicU64::new(0));
        Arc::new(Self { known, files, pages, have, changes, served })
    }

    /// The symbols that are present. The guard must not be held across an await point.
    pub fn have(&self) -> MutexGuard<'_, HaveSet> {
        self.have.lock()
    }

    /// Bytes of the object that are present.
    pub fn held_bytes(&self) -> u64 {
        let geometry = &self.known.geometry;
        let (count, last) = {
            let have = self.have();
            let last = geometry.symbols().checked_sub(1);
            (have.count(), last.filter(|last| have.contains(*last)))
        };
        let short = last.and_then(|last| geometry.bytes_at(last));
        let symbol = u64::from(geometry.symbol_bytes());
        let lack = short.map_or(0, |bytes| symbol - (bytes.end - bytes.start));
        count * symbol - lack
    }

    /// Notifies of every change of the set of symbols.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until the last symbol is present; `changes` is a receiver of [`Self::changes`].
    pub async fn completed(&self, changes: &mut watch::Receiver<u64>) {
        // The sender is a field of this store, so it cannot be dropped meanwhile.
        _ = changes.wait_for(|_| self.have().is_complete()).await;
    }

    /// Writes a verified symbol. Returns whether it was missing.
    ///
    /// # Errors
    /// I/O errors.
    pub fn put(&self, index: u64, bytes: &[u8]) -> io::Result<bool> {
        let from = index * u64::from(self.known.geometry.symbol_bytes());
        if self.have().contains(index) {
            return Ok(false);
        }
        self.files.write(from, bytes)?;
        let is_new = self.have().insert(index);
        self.changes.send_modify(|count| *count += 1);
        Ok(is_new)
    }

    /// Adds a block that was already on disk, with the page computed from it, if the page is valid.
    ///
    /// # Errors
    /// I/O errors; the inner result says why the page is invalid.
    pub fn add_block(&self, page: SourcePage) -> io::Result<Result<(), PageError>> {
        let symbols = self.known.geometry.symbols_of(page.block);
        if let Err(wrong) = self.pages.learn(&self.known, page)? {
            return Ok(Err(wrong));
        }
        // Cannot fail: a block's symbols are within the object.
        _ = self.have().insert_range(symbols);
        self.changes.send_modify(|count| *count += 1);
        Ok(Ok(()))
    }

    /// Removes symbols whose bytes on disk turned out to be wrong.
    pub fn forget(&self, symbols: Range<u64>) {
        self.have().remove_range(symbols);
        self.changes.send_modify(|count| *count += 1);
    }

    /// The page of a block, if it is known.
    ///
    /// # Errors
    /// I/O errors.
    pub fn page(&self, block: u32) -> io::Result<Option<Arc<SourcePage>>> {
        self.pages.get(&self.known, block)
    }

    /// Bytes of symbols sent to children.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Adds to [`Self::served`].
    pub fn count_served(&self, bytes: u64) {
        self.served.fetch_add(bytes, Ordering::Relaxed);
    }
}
