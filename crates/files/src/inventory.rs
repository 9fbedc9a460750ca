//! What is to be fetched.

use std::ops::Range;
use thalweg_wire::object::FileRef;

/// A file's index in [`Inventory::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNo(pub u32);

/// A file that is not (all) here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The source that has it: an index of the participants (`thalweg_paths::overlay::Overlay`).
    pub source: u32,
    /// As it was listed there.
    pub file: FileRef,
    /// The bytes to fetch, ascending; a whole small file is one range. Empty files have none and
    /// are the landing's own business.
    pub missing: Vec<Range<u64>>,
}

/// All that is to be fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// By [`FileNo`].
    pub files: Vec<Wanted>,
}

/// Bytes of one file that are asked for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub file: FileNo,
    /// Which; not empty.
    pub range: Range<u64>,
}

impl Piece {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Inventory {
    /// The file's entry.
    pub fn get(&self, file: FileNo) -> Option<&Wanted> {
        self.files.get(file.0 as usize)
    }

    /// Bytes to fetch from each participant, `participants` of them.
    pub fn amounts(&self, participants: usize) -> Vec<u64> {
        let mut amounts = vec![0; participants];
        for wanted in &self.files {
            if let Some(amount) = amounts.get_mut(wanted.source as usize) {
                // Sizes are the sources' word: sums of them may not fit.
                for range in &wanted.missing {
                    *amount = u64::saturating_add(*amount, range.end - range.start);
                }
            }
        }
        amounts
    }
}
