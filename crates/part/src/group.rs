//! Publication in steps, for who syncs many files at once: complete, synced, shown, forgotten.

use super::{Part, PartError};
use std::{fs::File, os::fd::AsFd, os::fd::BorrowedFd};

/// A part all of whose bytes are there and proven. Dropping it is like a crash: it is resumed as far
/// as it was journaled.
pub struct Complete(Part);

impl std::fmt::Debug for Complete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Complete").field(&self.0.target()).finish()
    }
}

/// A part that has its final name.
pub struct Shown(Part);

impl Part {
    /// The first step of publication: proves that all bytes are there.
    ///
    /// # Errors
    /// As [`Part::publish`].
    pub fn complete(mut self, length: u64) -> Result<Complete, PartError> {
        self.prove(length)?;
        Ok(Complete(self))
    }
}

impl Complete {
    /// Syncs this one alone, where no `syncfs` did.
    ///
    /// # Errors
    /// The system's refusal; then it must not be shown.
    pub fn sync(&mut self) -> Result<(), PartError> {
        self.0.sync(File::sync_all)
    }

    /// The second step, once its bytes are on the disk: the final name. It is durable with
    /// the next sync.
    ///
    /// # Errors
    /// If the system refuses; all is kept.
    pub fn show(mut self) -> Result<Shown, PartError> {
        self.0.show()?;
        Ok(Shown(self.0))
    }

    /// Lets go without showing it; a later session finds it complete.
    ///
    /// # Errors
    /// As [`Part::close`].
    pub fn close(self) -> Result<(), PartError> {
        self.0.close()
    }
}

impl AsFd for Complete {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl Shown {
    /// The last step, once the name is durable: the journal is removed.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn forget(self) -> Result<(), PartError> {
        self.0.forget_journal().map(drop)
    }
}
