//! Entries that nobody needs any more, told to their holders a batch at a time.

use std::collections::{BTreeMap, btree_map::Entry};
use thalweg_wire::object::SpoolId;

/// Entries of one message: 30 bytes each, far below what a request may have.
const BATCH: usize = 4096;

/// What each holder is to forget. One message to a holder is under way at a time; what comes up
/// meanwhile goes with the next. Pure.
#[derive(Debug, Default)]
pub struct Drops(BTreeMap<u32, Vec<SpoolId>>);

impl Drops {
    /// Adds an entry; whether nobody tells this holder yet, so that the caller is to.
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

    /// The next message to a holder; `None`: nothing is left, and whoever adds more is to tell it.
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
    fn one_tells_a_holder_and_takes_what_comes_up_with_it() {
        let mut drops = Drops::default();
        let id = |number| SpoolId { job: JobId([1; 16]), number };
        assert!(drops.add(2, id(0)) && !drops.add(2, id(1)) && drops.add(3, id(9)));
        assert_eq!(drops.next(2), Some(vec![id(0), id(1)]));
        assert!(!drops.add(2, id(2)), "it is still told");
        assert_eq!((drops.next(2), drops.next(2)), (Some(vec![id(2)]), None));
        assert!(drops.add(2, id(3)));
    }
}
