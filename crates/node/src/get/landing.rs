//! Downloads of one call that have all their bytes and wait for the disk.
//!
//! A sync takes as long for a hundred small files as for one. If those that wait for it held
//! the places of those that could fetch, groups would be as small as the call is parallel,
//! and the network idle while the disk works.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The most that wait beside those that run. Each holds a file descriptor, of which a process
/// has 1024 by default; half of them are for connections and for those that run.
const MOST: usize = 256;

/// How many wait, and a bell for each that comes.
#[derive(Debug, Default)]
pub(super) struct Landing {
    waiting: AtomicUsize,
    bell: Notify,
}

/// One that waits; it is gone when this is dropped.
pub(super) struct Landed<'a>(&'a Landing);

impl Landing {
    /// One more waits; `None` if there are too many, so that it still counts as running.
    pub(super) fn enter(&self) -> Option<Landed<'_>> {
        let admit = |n| (n < MOST).then_some(n + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, admit).ok()?;
        self.bell.notify_one();
        Some(Landed(self))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Returns when one has come since the last time.
    pub(super) async fn changed(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Landed<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_that_wait_are_counted_up_to_a_bound() {
        let landing = Landing::default();
        let landed: Vec<_> = (0..MOST).map_while(|_| landing.enter()).collect();
        assert_eq!((landed.len(), landing.len()), (MOST, MOST));
        assert!(landing.enter().is_none(), "it keeps its place among those that run");
        landing.changed().await;
        drop(landed);
        assert_eq!(landing.len(), 0);
        assert!(landing.enter().is_some());
    }
}
