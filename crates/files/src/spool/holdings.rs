//! What is held for a member that has forgotten it, as after a crash.

use super::{Spool, entry::Label};
use std::fs::File;
use thalweg_units::NodeId;
use thalweg_wire::object::{Holding, JobId};

/// Bytes of one answer's notes, beside the last; with the longest note it is shorter than a reply may be.
const PAGE: usize = 512 << 10;

/// What an entry takes in an answer beside its note, at most.
const BESIDE: usize = 32;

impl Spool {
    /// The next whole entries of a collection of `owner`'s whose numbers are larger than `after`, in
    /// their order, with what it wrote on them; as many as a reply takes. Reads the disk.
    pub fn holdings(&self, owner: NodeId, job: JobId, after: Option<u64>) -> Vec<Holding> {
        let ids = self.lock().of_job(owner, job);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for id in ids.into_iter().filter(|id| after.is_none_or(|after| id.number > after)) {
            // One that is gone meanwhile, or cannot be read, is of no use to its owner.
            let label = File::open(self.path(owner, id)).and_then(|file| Label::read(&file));
            let Ok(Label { note, .. }) = label else { continue };
            bytes += note.len() + BESIDE;
            page.push(Holding { number: id.number, note });
            if bytes >= PAGE {
                break;
            }
        }
        page
    }
}
