//! What a landing is told.

use std::{fmt, sync::Arc};
use thalweg_base::job::Job;
use thalweg_part::{Batch, Fidelity};
use thalweg_wire::{
    mesh::Name,
    object::{Check, Entry, Failure, FileRef, Owners},
};

/// What a source has.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its index of the participants.
    pub source: u32,
    /// Its name.
    pub node: Name,
    /// The paths asked for, as the user gave them; [`Entry::root`] counts them.
    pub roots: Vec<Vec<u8>>,
    /// What was found, parents before what is in them.
    pub entries: Vec<Entry>,
    /// Paths that could not be listed: they go to the report.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// Names of the owners that entries number.
    pub owners: Owners,
}

/// Where each source's files go below the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All into the same directory: directories are merged, anything else under one name is refused.
    Flat,
    /// Each node's below a directory of its name.
    ByNode,
}

impl Layout {
    /// What is done if the user does not say: nodes' files must not meet unasked.
    pub fn of(nodes: usize) -> Self {
        if nodes > 1 { Self::ByNode } else { Self::Flat }
    }
}

/// Asks a source for hashes of its files' content.
pub trait Sums: Send + Sync + fmt::Debug {
    /// The hashes of these files of a source, in their order. Blocks; up to 256 at once.
    fn sums(&self, source: u32, files: &[FileRef]) -> Vec<Result<Check, Failure>>;
}

/// How a collection lands.
#[derive(Clone, Debug)]
pub struct Options {
    /// The record of this transfer; an earlier session's takes its place if this goes on with it.
    pub job: Job,
    /// `None`: [`Layout::of`] the number of nodes.
    pub layout: Option<Layout>,
    /// Compare content where the size is the same, and believe no times (`--checksum`).
    pub sums: Option<Arc<dyn Sums>>,
    /// What is kept.
    pub fidelity: Fidelity,
    /// Only look.
    pub dry_run: bool,
    /// When large files' bytes are synced and journaled.
    pub checkpoint: Batch,
}

/// What a collection keeps if the user does not say: root's files belong to whom they belong at their sources.
pub fn as_root() -> Fidelity {
    Fidelity { owner: true, group: true, ..Fidelity::default() }
}

impl Options {
    /// As `thalweg gather` without options does it.
    pub fn new(job: Job) -> Self {
        let checkpoint = Batch::default();
        let fidelity = as_root();
        Self { job, layout: None, sums: None, fidelity, dry_run: false, checkpoint }
    }
}
