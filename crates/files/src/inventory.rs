//! The files and byte ranges to fetch, by source.

use std::ops::Range;
use thalweg_wire::object::FileRef;

/// A file's index in [`Inventory::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNo(pub u32);

/// A file that is missing here, wholly or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFile {
    /// The source: an index into the participants (`thalweg_paths::overlay::Overlay`).
    pub source: u32,
    /// The file as the source listed it.
    pub file: FileRef,
    /// The byte ranges to fetch, ascending. A whole small file is one range; an empty file has none and is created by
    /// the landing.
    pub missing: Vec<Range<u64>>,
}

/// All files to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The files, indexed by [`FileNo`].
    pub files: Vec<MissingFile>,
}

/// A range of one file that is requested at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: FileNo,
    /// The range; never empty.
    pub range: Range<u64>,
}

impl Piece {
    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Inventory {
    /// The file with this number.
    pub fn get(&self, file: FileNo) -> Option<&MissingFile> {
        self.files.get(file.0 as usize)
    }

    /// The number of bytes to fetch from each of the `participants`.
    pub fn amounts(&self, participants: usize) -> Vec<u64> {
        let mut amounts = vec![0; participants];
        for wanted in &self.files {
            if let Some(amount) = amounts.get_mut(wanted.source as usize) {
                // Sources report the sizes, so their sum may overflow.
                for range in &wanted.missing {
                    *amount = u64::saturating_add(*amount, range.end - range.start);
                }
            }
        }
        amounts
    }
}
