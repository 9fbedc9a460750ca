//! Paths that deliveries are at work on: two senders of one name come one after the other.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// All that are claimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    paths: Mutex<BTreeSet<Vec<u8>>>,
    freed: Condvar,
}

/// Some paths, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    paths: Vec<Vec<u8>>,
}

impl Claims {
    /// Waits until none of these is claimed, and claims them all at once, so that nobody waits in a ring. Blocks
    /// for other deliveries' disk.
    pub(super) fn wait(&self, paths: Vec<Vec<u8>>) -> Claim<'_> {
        let mut claimed = self.lock();
        while paths.iter().any(|path| claimed.contains(path)) {
            claimed = self.freed.wait(claimed).unwrap_or_else(PoisonError::into_inner);
        }
        claimed.extend(paths.iter().cloned());
        drop(claimed);
        Claim { claims: self, paths }
    }

    /// Returns the claimed names in a directory.
    pub(super) fn names_in(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let claimed = self.lock();
        let names = claimed.iter().filter_map(|path| {
            let name = path.strip_prefix(directory)?.strip_prefix(b"/")?;
            (!name.contains(&b'/')).then(|| name.to_vec())
        });
        names.collect()
    }

    /// Whether this path is claimed.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.lock().contains(path)
    }

    /// Whether a path below this one is claimed.
    pub(crate) fn has_below(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let claimed = self.lock();
        claimed.range(below.clone()..).next().is_some_and(|path| path.starts_with(&below))
    }

    /// A thread that panicked in here left a whole set.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claimed = self.claims.lock();
        self.paths.iter().for_each(|path| _ = claimed.remove(path));
        drop(claimed);
        self.claims.freed.notify_all();
    }
}
