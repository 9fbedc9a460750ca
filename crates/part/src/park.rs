//! Parts that are closed for a while, so that others can use their descriptors.

use super::{
    Attributes, Batch, Part, PartError, PartKey, Ranges, journal::Record, place::Place,
    runs::Sources,
};
use std::{fs::Metadata, os::unix::fs::MetadataExt, path::Path};
use thalweg_base::job::Job;

/// A closed part whose state is kept in memory. Opening it again reads and hashes nothing, unless its file was changed
/// meanwhile.
pub struct Parked {
    pub(super) job: Job,
    pub(super) key: PartKey,
    pub(super) batch: Batch,
    pub(super) attributes: Option<Attributes>,
    pub(super) holes: Option<Vec<(u64, u64)>>,
    pub(super) journal: Option<[u8; 8]>,
    pub(super) records: Vec<Record>,
    pub(super) durable: Ranges,
    pub(super) sources: Sources,
    pub(super) seen: Seen,
}

/// The state of the file when it was closed.
#[derive(PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl Seen {
    pub(super) fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Parked {
    /// The number of bytes that survive a crash.
    pub fn durable(&self) -> u64 {
        self.durable.total()
    }

    /// Opens the part again, for the same target. If its file was changed meanwhile, it is opened like in a new
    /// session.
    ///
    /// # Errors
    /// As [`Part::open`].
    pub fn open(self, target: &Path) -> Result<Part, PartError> {
        let place = Place::exactly(target)?;
        let file = place.lock()?;
        let now = file.metadata().map_err(PartError::io("stat", &place.part))?;
        if Seen::of(&now) != self.seen {
            drop(file);
            let Self { key, job, batch, attributes, holes, .. } = self;
            return Part::open_sparse(target, key, job, batch, attributes, holes);
        }
        Part::unpark(place, file, self)
    }
}
