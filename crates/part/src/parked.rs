//! Parts that are closed for a while, so that others can use their descriptors.

use super::{
    Attributes, Batch, Part, PartError, PartKey, Ranges, journal::Record, part_files::PartFiles,
    runs::DeliveredBytes,
};
use std::{fs::Metadata, os::unix::fs::MetadataExt, path::Path};
use thalweg_base::job::Job;

/// A closed part whose state is kept in memory. Opening it again reads and hashes nothing, unless its file was changed
/// meanwhile.
pub struct ParkedPart {
    pub(super) job: Job,
    pub(super) key: PartKey,
    pub(super) batch: Batch,
    pub(super) attributes: Option<Attributes>,
    pub(super) holes: Option<Vec<(u64, u64)>>,
    pub(super) journal: Option<[u8; 8]>,
    pub(super) records: Vec<Record>,
    pub(super) durable: Ranges,
    pub(super) sources: DeliveredBytes,
    pub(super) seen: FileState,
}

/// The state of the file when it was closed.
#[derive(PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl FileState {
    pub(super) fn from_metadata(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl ParkedPart {
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
        let files = PartFiles::without_following(target)?;
        let file = files.lock()?;
        let now = file.metadata().map_err(PartError::io("stat", &files.part))?;
        if FileState::from_metadata(&now) != self.seen {
            drop(file);
            let Self { key, job, batch, attributes, holes, .. } = self;
            return Part::open_sparse(target, key, job, batch, attributes, holes);
        }
        Part::unpark(files, file, self)
    }
}
