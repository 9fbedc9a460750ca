//! Bounds the memory of listings, for each source and in total, so that no source takes what others need.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use thalweg_files::remote::MOST_LISTED;

/// The memory for all listings, bytes: some ten million files with paths of 100 bytes. The tree laid out from them
/// takes about as much again, which fits a host with 8 GB.
const IN_ALL: u64 = 2 << 30;

/// The memory for all listings. Half of it is divided evenly: each source can use its share whatever the others list.
/// The other half is for sources that need more.
#[derive(Debug)]
pub(super) struct ListingMemory {
    own: u64,
    common: AtomicU64,
}

/// The memory of one source. Its part of the common half is returned when this is dropped without [`keep`](Self::keep).
#[derive(Debug)]
pub(super) struct MemoryShare {
    room: Arc<ListingMemory>,
    taken: u64,
    common: u64,
}

impl ListingMemory {
    /// Creates the memory for this many sources.
    pub fn new(sources: usize) -> Arc<Self> {
        let half = IN_ALL / 2;
        Arc::new(Self { own: half / (sources as u64).max(1), common: half.into() })
    }

    /// Creates the share of one source.
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        MemoryShare { room: Arc::clone(self), taken: 0, common: 0 }
    }
}

impl MemoryShare {
    /// Takes more bytes.
    ///
    /// # Errors
    /// Returns a message with the reason and a remedy if the memory is exhausted.
    pub fn take(&mut self, bytes: u64) -> Result<(), String> {
        let taken = self.taken.saturating_add(bytes);
        if taken > MOST_LISTED {
            let most = MOST_LISTED >> 20;
            return Err(format!(
                "its listing takes more than {most} MiB of memory: collect it in several calls"
            ));
        }
        let common = taken.saturating_sub(self.room.own);
        let more = common - self.common;
        let left = self.room.common.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(more));
        left.map_err(|_| {
            format!(
                "the listings of all sources take more than {} MiB of memory: collect from fewer sources at a time",
                IN_ALL >> 20
            )
        })?;
        (self.taken, self.common) = (taken, common);
        Ok(())
    }

    /// Keeps the memory, because the listing stays.
    pub fn keep(mut self) {
        self.common = 0;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.room.common.fetch_add(self.common, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_source_is_bounded() {
        let mut alone = ListingMemory::new(1).share();
        alone.take(MOST_LISTED - 1).unwrap();
        let why = alone.take(2).unwrap_err();
        assert!(why.contains("1024 MiB") && why.contains("several calls"), "{why}");
        alone.take(1).unwrap();
    }

    #[test]
    fn an_endless_listing_leaves_the_shares_of_others() {
        let room = ListingMemory::new(8);
        let mut liars = [room.share(), room.share()];
        liars[0].take(1000 * MIB).unwrap();
        // Its own 128 MiB, and the rest of the common half.
        liars[1].take(281 * MIB).unwrap_err();
        liars[1].take(280 * MIB).unwrap();
        let mut honest = room.share();
        honest.take(128 * MIB).unwrap();
        let why = honest.take(2 * MIB).unwrap_err();
        assert!(why.contains("2048 MiB") && why.contains("fewer"), "{why}");
        let [first, second] = liars;
        drop(first);
        honest.take(800 * MIB).unwrap();
        second.keep();
        honest.take(73 * MIB).unwrap_err();
        honest.take(72 * MIB).unwrap();
    }
}
