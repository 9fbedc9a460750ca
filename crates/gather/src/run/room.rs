//! Memory for what sources list: bounded for each and for all, so that none takes what others need.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use thalweg_files::remote::MOST_LISTED;

/// Memory for all listings: some ten million files with paths of 100 bytes. The tree that is laid
/// out of them takes about as much again, which a host with 8 GB has.
const IN_ALL: u64 = 2 << 30;

/// Half of the memory is shared out evenly: whatever others list, this much is a source's own. The
/// other half is for whoever has more.
#[derive(Debug)]
pub(super) struct Room {
    own: u64,
    common: AtomicU64,
}

/// What a source has of it. What it has of the common half goes back when this is dropped before it
/// is [kept](Self::keep).
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    taken: u64,
    common: u64,
}

impl Room {
    /// For so many sources.
    pub fn new(sources: usize) -> Arc<Self> {
        let half = IN_ALL / 2;
        Arc::new(Self { own: half / (sources as u64).max(1), common: half.into() })
    }

    /// For one of them.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { room: Arc::clone(self), taken: 0, common: 0 }
    }
}

impl Share {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// Why there are none, and what to try.
    pub fn take(&mut self, bytes: u64) -> Result<(), String> {
        let taken = self.taken.saturating_add(bytes);
        if taken > MOST_LISTED {
            let most = MOST_LISTED >> 20;
            return Err(format!(
                "what it lists takes more than {most} MiB of memory: collect it in several calls"
            ));
        }
        let common = taken.saturating_sub(self.room.own);
        let more = common - self.common;
        let left = self.room.common.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(more));
        left.map_err(|_| {
            format!(
                "all sources together list more than fits into {} MiB of memory: collect from \
                 fewer of them at a time",
                IN_ALL >> 20
            )
        })?;
        (self.taken, self.common) = (taken, common);
        Ok(())
    }

    /// The listing stays.
    pub fn keep(mut self) {
        self.common = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.common.fetch_add(self.common, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_source_has_so_much_and_no_more() {
        let mut alone = Room::new(1).share();
        alone.take(MOST_LISTED - 1).unwrap();
        let why = alone.take(2).unwrap_err();
        assert!(why.contains("1024 MiB") && why.contains("several calls"), "{why}");
        alone.take(1).unwrap();
    }

    #[test]
    fn who_lists_without_end_takes_nothing_of_the_others_own() {
        let room = Room::new(8);
        let mut liars = [room.share(), room.share()];
        liars[0].take(1000 * MIB).unwrap();
        // Its own 128, and what the first one left of the common half.
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
