//! Lists the entries of a job for an owner that has lost track of them, for example after a crash.

use super::{Spool, entry::Label};
use std::fs::File;
use thalweg_units::NodeId;
use thalweg_wire::object::{Holding, JobId};

/// The bytes of notes after which an answer ends. Even with one more note of the greatest length, it is shorter than
/// the longest reply.
const MAX_PAGE: usize = 512 << 10;

/// The most bytes of an entry in an answer beside its note.
const ENTRY_OVERHEAD: usize = 32;

impl Spool {
    /// Returns the next complete entries of a job of `owner`, those with numbers above `after`, in ascending order and
    /// with the owner's notes; as many as fit into a reply. Reads the disk.
    pub fn holdings(&self, owner: NodeId, job: JobId, after: Option<u64>) -> Vec<Holding> {
        let ids = self.lock().entries_of_job(owner, job);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for id in ids.into_iter().filter(|id| after.is_none_or(|after| id.number > after)) {
            // An entry that was removed meanwhile, or cannot be read, is of no use to its owner.
            let label = File::open(self.path(owner, id)).and_then(|file| Label::read(&file));
            let Ok(Label { note, .. }) = label else { continue };
            bytes += note.len() + ENTRY_OVERHEAD;
            page.push(Holding { number: id.number, note });
            if bytes >= MAX_PAGE {
                break;
            }
        }
        page
    }
}
