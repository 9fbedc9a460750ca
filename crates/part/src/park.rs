//! A part that is let go for a while, so that its descriptors serve others.

use super::{
    Attributes, Batch, Part, PartError, PartKey, Ranges, Record,
    journal::{Journal, new_name, read},
    place::Place,
    runs::Sources,
};
use std::{ffi::OsStr, fs::Metadata, os::unix::fs::MetadataExt, path::Path};
use thalweg_base::job::Job;

/// A part that is closed but not forgotten: opening it again reads and hashes nothing, as long as
/// nobody else has touched its file.
pub struct Parked {
    job: Job,
    key: PartKey,
    batch: Batch,
    attributes: Option<Attributes>,
    journal: Option<[u8; 8]>,
    records: Vec<Record>,
    durable: Ranges,
    sources: Sources,
    seen: Seen,
}

/// The file as it was when it was let go.
#[derive(PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Seen {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Part {
    /// Makes a checkpoint and closes the files; the lock goes with them.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn park(mut self) -> Result<Parked, PartError> {
        self.checkpoint()?;
        let seen = self.file.metadata().map_err(PartError::io("look at", &self.place.part))?;
        Ok(Parked {
            seen: Seen::of(&seen),
            journal: self.journal.as_ref().map(Journal::check),
            job: self.job,
            key: self.key,
            batch: self.batch,
            attributes: self.attributes,
            records: self.records,
            durable: self.durable,
            sources: self.sources,
        })
    }
}

impl Part {
    /// Removes what stayed beside a target that is complete, because its session was cut off
    /// between its name and its journal's end.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process is at work on it, or the system's refusal.
    pub fn tidy(target: &Path) -> Result<(), PartError> {
        let place = Place::exactly(target)?;
        let journals = [place.journal.clone(), new_name(&place.journal)];
        if journals.iter().all(|journal| std::fs::symlink_metadata(journal).is_err()) {
            return Ok(());
        }
        let file = place.lock()?;
        place.remove(&file)
    }
}

impl Part {
    /// Removes what a journal of this name and the part beside it keep, if its job and key are `idle`: nobody
    /// will go on with them. Whether it was removed; one that another process is at work on stays.
    ///
    /// # Errors
    /// A journal that cannot be read, or the system's refusal.
    pub fn forget_if(
        directory: &Path,
        name: &OsStr,
        idle: impl FnOnce(&Job, &PartKey) -> bool,
    ) -> Result<bool, PartError> {
        let Some(place) = Place::of_journal(directory, name) else { return Ok(false) };
        let contents = read(&place.journal)?;
        if !contents.is_some_and(|contents| idle(&contents.job, &contents.key)) {
            return Ok(false);
        }
        let file = place.lock()?;
        place.remove(&file)?;
        Ok(true)
    }
}

impl Parked {
    /// Bytes that will survive a crash.
    pub fn durable(&self) -> u64 {
        self.durable.total()
    }

    /// Opens it again, for the same target. If its file was touched meanwhile it is
    /// opened as by a new session.
    ///
    /// # Errors
    /// As [`Part::open`].
    pub fn open(self, target: &Path) -> Result<Part, PartError> {
        let place = Place::exactly(target)?;
        let file = place.lock()?;
        let now = file.metadata().map_err(PartError::io("look at", &place.part))?;
        if Seen::of(&now) != self.seen {
            drop(file);
            return Part::open_exactly(target, self.key, self.job, self.batch, self.attributes);
        }
        let mut part = Part::empty(place, file, self.key, self.job, self.batch);
        let reopen = |check| Journal::reopen(&part.place.journal, check);
        part.journal = self.journal.map(reopen).transpose()?;
        part.attributes = self.attributes;
        part.present = self.durable.clone();
        (part.records, part.durable, part.sources) = (self.records, self.durable, self.sources);
        Ok(part)
    }
}
