//! The input of a landing.

use std::{fmt, sync::Arc};
use thalweg_base::job::Job;
use thalweg_part::{Batch, Fidelity};
use thalweg_wire::{
    mesh::Name,
    object::{Entry, Failure, FileRef, Owners, TransferHash},
};

/// The listing of a source.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Its index among the participants.
    pub source: u32,
    pub node: Name,
    /// The requested paths, as the user gave them; [`Entry::root`] is an index into them.
    pub roots: Vec<Vec<u8>>,
    /// The items found, parents before their contents.
    pub entries: Vec<Entry>,
    /// Paths that could not be listed; they go to the report.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// The names of the owners that entries refer to by number.
    pub owners: Owners,
}

/// How sources' files are placed below the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All into the same directory: directories are merged; any other items with equal names are refused.
    Flat,
    /// Each node's files below a directory with the node's name.
    ByNode,
}

impl Layout {
    /// The default: with several nodes their files are kept apart.
    pub fn of(nodes: usize) -> Self {
        if nodes > 1 { Self::ByNode } else { Self::Flat }
    }
}

/// Asks a source for hashes of its files' content.
pub trait ChecksumSource: Send + Sync + fmt::Debug {
    /// Returns the hashes of these files of a source, in order. Blocks; takes at most 256 files.
    fn sums(&self, source: u32, files: &[FileRef]) -> Vec<Result<TransferHash, Failure>>;
}

/// The options of a landing.
#[derive(Clone, Debug)]
pub struct Options {
    /// The record of this transfer; replaced by that of an earlier session if this one resumes it.
    pub job: Job,
    /// `None`: chosen by [`Layout::of`] from the number of nodes.
    pub layout: Option<Layout>,
    /// Compare the content of files of equal size instead of their times (`--checksum`).
    pub sums: Option<Arc<dyn ChecksumSource>>,
    /// The metadata to keep.
    pub fidelity: Fidelity,
    /// Only report, without changes.
    pub dry_run: bool,
    /// When the bytes of large files are synced and journaled.
    pub checkpoint: Batch,
}

/// The default of a collection: keeps owners and groups if this process runs as root, as `rsync -a` does.
pub fn as_root() -> Fidelity {
    Fidelity { owner: true, group: true, ..Fidelity::default() }
}

impl Options {
    /// The options of `thalweg gather` without arguments.
    pub fn new(job: Job) -> Self {
        let checkpoint = Batch::default();
        let fidelity = as_root();
        Self { job, layout: None, sums: None, fidelity, dry_run: false, checkpoint }
    }
}
