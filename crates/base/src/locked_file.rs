//! A locked file whose lock ends when it is dropped.

use rustix::fs::{FlockOperation, flock};
use std::{
    fs::File,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd},
};

/// A file with a lock of `flock(2)`.
///
/// Dropping it unlocks the file. Closing alone would leave the lock to a child process that another thread is just
/// starting, until that process executes its program.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Takes over a file, with the lock that it has.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(file)
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock.
        _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_ends_although_another_descriptor_shares_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let lock = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
        let file = File::create(&path).unwrap();
        lock(&file).unwrap();
        let copy = file.try_clone().unwrap();
        let other = File::open(&path).unwrap();
        let locked = LockedFile::new(file);
        assert!(lock(&other).is_err());
        drop(locked);
        lock(&other).unwrap();
        drop(copy);
    }
}
