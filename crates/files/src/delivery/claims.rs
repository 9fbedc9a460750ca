//! Claims on paths: two deliveries that store the same path run one after the other.

use super::path_key::{Keys, PathKey, directory_id};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;

/// All claimed paths.
#[derive(Debug, Default)]
pub(crate) struct PathClaims {
    keys: Mutex<BTreeSet<PathKey>>,
    freed: Condvar,
}

/// A claim on some paths, until it is dropped.
#[derive(Debug)]
pub(super) struct PathClaim<'a> {
    claims: &'a PathClaims,
    keys: Vec<PathKey>,
}

impl PathClaims {
    /// Waits until none of these paths in the accepting directory `place` is claimed, and claims them all at once, so
    /// that deliveries cannot deadlock. Blocks while other deliveries wait for the disk.
    pub(super) fn wait(&self, place: &[u8], paths: &[Vec<u8>]) -> PathClaim<'_> {
        let mut keys = Keys::up_to(place);
        let keys: Vec<PathKey> =
            paths.iter().flat_map(|path| keys.of(path).collect::<Vec<_>>()).collect();
        let mut claimed = self.keys.lock();
        while keys.iter().any(|key| claimed.contains(key)) {
            self.freed.wait(&mut claimed);
        }
        claimed.extend(keys.iter().cloned());
        drop(claimed);
        PathClaim { claims: self, keys }
    }

    /// Returns the claimed names in a directory.
    pub(super) fn names_in(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let mut names = self.paths_below(directory);
        names.retain(|path| !path.contains(&b'/'));
        names
    }

    /// Whether this path is claimed.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        let is_idle = self.keys.lock().is_empty();
        !is_idle && Keys::up_to(b"").of(path).any(|key| self.keys.lock().contains(&key))
    }

    /// Whether a path below this one is claimed.
    pub(crate) fn has_below(&self, path: &[u8]) -> bool {
        !self.paths_below(path).is_empty()
    }

    /// The claimed paths below a directory, relative to it, without duplicates. If the directory was created after the
    /// claim, the claim's key starts at an ancestor.
    fn paths_below(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        if self.keys.lock().is_empty() {
            return Vec::new();
        }
        let itself = directory_id(directory).map(|id| PathKey { directory: id, rest: Vec::new() });
        let starts: Vec<PathKey> = Keys::up_to(b"").of(directory).chain(itself).collect();
        let claimed = self.keys.lock();
        let below = |key: &PathKey| starts.iter().find_map(|start| key.below(start));
        claimed.iter().filter_map(below).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Drop for PathClaim<'_> {
    fn drop(&mut self) {
        let mut claimed = self.claims.keys.lock();
        self.keys.iter().for_each(|key| _ = claimed.remove(key));
        drop(claimed);
        self.claims.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::{ffi::OsStrExt as _, fs::symlink},
        path::Path,
        sync::atomic::{AtomicBool, Ordering},
    };

    fn bytes(path: &Path) -> Vec<u8> {
        path.as_os_str().as_bytes().to_vec()
    }

    #[test]
    fn two_paths_of_one_file_are_one_claim() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inbox")).unwrap();
        symlink("inbox", dir.path().join("alias")).unwrap();
        let [inbox, alias] = ["inbox", "alias"].map(|name| dir.path().join(name));
        let claims = PathClaims::default();
        let file = |place: &Path| bytes(&place.join("new/file"));
        let first = claims.wait(&bytes(&inbox), &[file(&inbox)]);
        fs::create_dir(dir.path().join("inbox/new")).unwrap();
        assert!(claims.has(&file(&inbox)) && claims.has(&file(&alias)));
        assert!(claims.has_below(&bytes(&alias)) && !claims.has(&bytes(&alias.join("file"))));
        // The directory was created after the claim.
        let new = bytes(&alias.join("new"));
        assert!(claims.has_below(&new) && !claims.has_below(&bytes(&alias.join("ne"))));
        assert_eq!(claims.names_in(&new), [b"file".to_vec()]);
        assert_eq!(claims.names_in(&bytes(&inbox)), [] as [Vec<u8>; 0]);
        let freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _claim = claims.wait(&bytes(&alias), &[file(&alias)]);
                freed.load(Ordering::SeqCst)
            });
            freed.store(true, Ordering::SeqCst);
            drop(first);
            assert!(second.join().unwrap(), "both were at work on the file at once");
        });
        assert!(!claims.has(&file(&inbox)));
        let _claim = claims.wait(&bytes(&alias), &[file(&alias)]);
        assert_eq!(claims.names_in(&bytes(&inbox.join("new"))), [b"file".to_vec()]);
    }
}
