//! From a complete part to a file under its final name.

use super::{Part, PartError, mark, mode, place, show};
use std::{fs::File, io, path::PathBuf};
use thalweg_units::ByteSize;

impl Part {
    /// Compares the complete file with the expected digests, and keeps all whatever comes
    /// out. A success holds until the next write: [`publish`](Self::publish) does not read
    /// the file again.
    ///
    /// `length` is the object's length where the key does not know it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`], [`PartError::Digest`], or why it cannot be read.
    pub fn verify(&mut self, length: u64) -> Result<(), PartError> {
        let length = self.key.length().unwrap_or(length);
        if self.verified == Some(length) {
            return Ok(());
        }
        let missing: u64 = self.present.missing(length).iter().map(|r| r.end - r.start).sum();
        if missing > 0 {
            let path = self.place.target.clone();
            return Err(PartError::Incomplete { path, missing: ByteSize::from_bytes(missing) });
        }
        let read = PartError::io("read", &self.place.part);
        let found = self.whole.finish(&self.file, length).map_err(read)?;
        let mut pairs = self.key.digests().iter().zip(found);
        pairs.try_for_each(|(digest, found)| digest.expect(found, &self.place.target))?;
        self.verified = Some(length);
        Ok(())
    }

    /// Removes what there is.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn discard(mut self) -> Result<(), PartError> {
        // A checkpoint under way would put its journal back. Whether it succeeds is the same.
        _ = self.settle();
        self.remove()
    }

    /// Removes the files beside the target, as far as they are still this part's.
    pub(super) fn remove(&self) -> Result<(), PartError> {
        self.place.remove(&self.file)?;
        match &self.journal {
            Some(journal) if self.place.named => journal.remove(&self.place.journal),
            _ => Ok(()),
        }
    }

    /// Verifies, syncs and renames to the target; returns its name.
    ///
    /// `length` is the object's length where the key does not know it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`]; [`PartError::Digest`], after which nothing is
    /// kept; or the system's refusal, after which everything is kept. The target
    /// is then what it was before, unless only the directory could not be synced.
    pub fn publish(mut self, length: u64) -> Result<PathBuf, PartError> {
        self.prove(length)?;
        self.sync(File::sync_all)?;
        self.show()?;
        place::sync_directory(&self.place.target)?;
        self.forget_journal()
    }

    /// Whether [`prove`](Self::prove) reads nothing and waits for nothing.
    pub(super) fn is_quickly_proven(&self) -> bool {
        self.behind.is_none() && (self.key.digests().is_empty() || self.verified.is_some())
    }

    /// The first step of publication: what is wrong is removed.
    pub(super) fn prove(&mut self, length: u64) -> Result<(), PartError> {
        if !self.place.named {
            let why = io::Error::new(io::ErrorKind::Unsupported, "it has no name");
            return Err(PartError::io("publish", &self.place.target)(why));
        }
        self.settle()?;
        match self.verify(length) {
            Err(wrong @ PartError::Digest { .. }) => Err(self.remove().err().unwrap_or(wrong)),
            Err(other) => Err(other),
            Ok(()) => {
                if self.attributes.is_none() {
                    mode::put(&self.file, &self.place.target);
                }
                mark::put(&self.file, &self.key);
                Ok(())
            }
        }
    }

    /// Gives the synced file its final name. If that fails what there is is journaled.
    pub(super) fn show(&mut self) -> Result<(), PartError> {
        let shown = show::show(&self.place, &self.file, &self.key, self.attributes.as_ref());
        let Err(error) = shown else { return Ok(()) };
        // The journal's name may be another process's, too.
        let ours = place::is_name_of(&self.place.part, &self.file)?;
        Err(if ours { self.record().err().unwrap_or(error) } else { error })
    }

    /// The last step, once the name is durable.
    pub(super) fn forget_journal(self) -> Result<PathBuf, PartError> {
        // Each look for a name that is to go takes the directory's lock.
        if let Some(journal) = &self.journal {
            journal.remove(&self.place.journal)?;
        }
        Ok(self.place.target)
    }
}
