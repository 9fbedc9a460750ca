//! What an earlier session left undone, seen from outside.

use super::{Part, PartKey, Ranges, journal, place::Place};
use std::{ops::Range, path::Path};

impl Part {
    /// Whether nothing of an earlier session can be there, as far as two quick looks tell: then
    /// [`gap`](Self::gap) would say `None`.
    pub fn is_untouched(target: &Path) -> bool {
        Place::is_untouched(target)
    }

    /// The first bytes that an earlier session for `target` did not get: where a first question
    /// should begin. Empty if it got all; `None` if there is no such session, if nothing of it
    /// can be used, or if it cannot be told. Only a hint: takes no lock, and compares no byte
    /// with its hash.
    pub fn gap(target: &Path) -> Option<Range<u64>> {
        let contents = journal::read(&Place::of(target).ok()?.journal).ok()??;
        let length = contents.key.length()?;
        if let PartKey::Url { validator: None, digests, .. } = &contents.key
            && digests.is_empty()
        {
            return None;
        }
        let mut there = Ranges::default();
        contents.records.into_iter().for_each(|r| there.insert(r.range));
        Some(there.missing(length).into_iter().next().unwrap_or(length..length))
    }
}
