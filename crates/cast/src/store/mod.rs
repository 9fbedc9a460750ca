//! A cast's object at a node: its bytes, its digests, and the set of symbols that are present.

pub mod journal;
mod pages;
mod recover;
#[cfg(test)]
pub mod testing;

pub use pages::{Pages, read_page};
pub use recover::recover;

use super::disk::ObjectFiles;
use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_fountain::{Geometry, HaveSet, digest::SourcePage};
use thalweg_wire::{
    Manifest,
    cast::{CastId, Offer},
};
use tokio::sync::watch;

/// What proves an object, and how it is cut.
#[derive(Debug)]
pub struct Known {
    /// The cast.
    pub id: CastId,
    /// What its source offers.
    pub offer: Offer,
    /// How the object is cut.
    pub geometry: Geometry,
    /// The digests of its chunks.
    pub manifest: Arc<Manifest>,
}

/// One object at one node: the source has all of it, a receiver more and more.
#[derive(Debug)]
pub struct Store {
    /// What proves it.
    pub known: Known,
    /// Its bytes.
    pub files: ObjectFiles,
    /// The digests of its symbols, as far as they are here.
    pub pages: Pages,
    have: Mutex<HaveSet>,
    news: watch::Sender<u64>,
    served: AtomicU64,
}

impl Store {
    /// An object of which these symbols are here.
    pub fn new(known: Known, files: ObjectFiles, pages: Pages, have: HaveSet) -> Arc<Self> {
        let news = watch::Sender::new(0);
        let (have, served) = (Mutex::new(have), AtomicU64::new(0));
        Arc::new(Self { known, files, pages, have, news, served })
    }

    /// Which symbols are here; never to be held across a wait.
    pub fn have(&self) -> MutexGuard<'_, HaveSet> {
        // A panic in between leaves a whole set behind.
        self.have.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the object that are here.
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

    /// Told of each symbol that comes, and of the last one that is waited for.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Ends with the last symbol, or not at all; with what [`Self::news`] gave.
    pub async fn completed(&self, news: &mut watch::Receiver<u64>) {
        // The sender is in here.
        _ = news.wait_for(|_| self.have().is_complete()).await;
    }

    /// Writes a proven symbol; whether it was missing.
    ///
    /// # Errors
    /// The system's.
    pub fn put(&self, index: u64, bytes: &[u8]) -> io::Result<bool> {
        let from = index * u64::from(self.known.geometry.symbol_bytes());
        if self.have().contains(index) {
            return Ok(false);
        }
        self.files.write(from, bytes)?;
        let is_new = self.have().insert(index);
        self.news.send_modify(|count| *count += 1);
        Ok(is_new)
    }

    /// What the disk does not hold as it should is not here any more.
    pub fn forget(&self, symbols: Range<u64>) {
        self.have().remove_range(symbols);
        self.news.send_modify(|count| *count += 1);
    }

    /// The page of a block, if it is here.
    ///
    /// # Errors
    /// The system's.
    pub fn page(&self, block: u32) -> io::Result<Option<Arc<SourcePage>>> {
        self.pages.get(&self.known, block)
    }

    /// Bytes of symbols that were given to others.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// So many more were.
    pub fn count_served(&self, bytes: u64) {
        self.served.fetch_add(bytes, Ordering::Relaxed);
    }
}
