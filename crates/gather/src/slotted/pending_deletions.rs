//! Collects entries that are no longer needed, to tell their holders in batches.

use std::collections::{BTreeMap, btree_map::Entry};
use thalweg_wire::object::SpoolId;

/// The maximum number of entries in a message: 30 bytes each, far below the limit of a request.
const BATCH: usize = 4096;

/// The entries that each holder must forget. One message to a holder is under way at a time; entries added meanwhile go
/// with the next. Pure.
#[derive(Debug, Default)]
pub struct PendingDeletions(BTreeMap<u32, Vec<SpoolId>>);

impl PendingDeletions {
    /// Adds an entry. Returns whether no message to this holder is under way, so that the caller must send one.
    pub fn add(&mut self, node: u32, id: SpoolId) -> bool {
        match self.0.entry(node) {
            Entry::Occupied(mut told) => {
                told.get_mut().push(id);
                false
            }
            Entry::Vacant(none) => {
                none.insert(vec![id]);
                true
            }
        }
    }

    /// Returns the next message to a holder. `None`: nothing is left, and whoever adds the next entry must send it.
    pub fn next(&mut self, node: u32) -> Option<Vec<SpoolId>> {
        let waiting = self.0.get_mut(&node)?;
        let batch: Vec<SpoolId> = waiting.drain(..waiting.len().min(BATCH)).collect();
        if batch.is_empty() {
            self.0.remove(&node);
            return None;
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::object::JobId;

    #[test]
    fn one_sender_per_holder_also_sends_entries_added_meanwhile() {
        let mut drops = PendingDeletions::default();
        let id = |number| SpoolId { job: JobId([1; 16]), number };
        assert!(drops.add(2, id(0)) && !drops.add(2, id(1)) && drops.add(3, id(9)));
        assert_eq!(drops.next(2), Some(vec![id(0), id(1)]));
        assert!(!drops.add(2, id(2)), "it is still told");
        assert_eq!((drops.next(2), drops.next(2)), (Some(vec![id(2)]), None));
        assert!(drops.add(2, id(3)));
    }
}
