//! Notes on spool entries that a later session of the same collection understands.
//!
//! A note lies with the data ([`Holding::note`](thalweg_wire::object::Holding)), so that this host needs no record of
//! the data that others hold, which would have to be synced to disk. Files are named by a hash, so a holder learns no
//! file names.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_files::inventory::{FileNo, Inventory, Piece};
use thalweg_wire::{
    mesh::Name,
    object::{FileRef, JobId, decode, encode},
};

/// A hash that names a file of a source as it was listed; each change of the file changes it.
pub type FileMark = [u8; 16];

/// A part of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub file: FileMark,
    /// The offset of the part, bytes.
    pub from: u64,
    /// The length of the part, bytes.
    pub bytes: u64,
}

/// The collection whose files are marked.
#[derive(Clone, Copy, Debug)]
pub struct Marker<'a> {
    /// The job of the collection.
    pub job: JobId,
    /// The participants' names.
    pub names: &'a [Name],
    /// The files of the collection.
    pub inventory: &'a Inventory,
}

impl Marker<'_> {
    /// Returns the note for an entry of these parts.
    pub fn note(&self, parts: &[Piece]) -> Vec<u8> {
        let mut last: Option<(FileNo, FileMark)> = None;
        let mut marks = Vec::with_capacity(parts.len());
        for part in parts {
            let file = match last.filter(|(file, _)| *file == part.file) {
                Some((_, mark)) => mark,
                None => self.file(part.file),
            };
            last = Some((part.file, file));
            marks.push(Mark { file, from: part.range.start, bytes: part.bytes() });
        }
        // Removes the length prefix.
        encode(&marks).split_off(4)
    }

    /// Finds the files of these marks, as far as they are to be fetched now.
    pub fn files(&self, marks: &BTreeSet<FileMark>) -> BTreeMap<FileMark, FileNo> {
        let all = (0..self.inventory.files.len() as u32).map(FileNo);
        all.map(|file| (self.file(file), file)).filter(|(mark, _)| marks.contains(mark)).collect()
    }

    fn file(&self, file: FileNo) -> FileMark {
        let wanted = self.inventory.get(file);
        let source = wanted.and_then(|wanted| self.names.get(wanted.source as usize));
        let of: (JobId, Option<&Name>, Option<&FileRef>) =
            (self.job, source, wanted.map(|wanted| &wanted.file));
        let mut mark = [0; 16];
        mark.copy_from_slice(&blake3::hash(&encode(&of)).as_bytes()[..16]);
        mark
    }
}

/// Parses a note; empty if it is invalid.
pub fn read(note: &[u8]) -> Vec<Mark> {
    decode(note).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_files::inventory::MissingFile;
    use thalweg_wire::object::{FilePath, MAX_NOTE, MAX_PART, MAX_PARTS, Snapshot};

    fn wanted(source: u32, path: &str, changed_ns: i64) -> MissingFile {
        let snapshot = Snapshot { device: 1, inode: 2, size: 9, modified_ns: 3, changed_ns };
        let path = FilePath::new(path.as_bytes().to_vec()).unwrap();
        let file = FileRef { root: b"/data".to_vec(), path, snapshot };
        MissingFile { source, file, missing: std::iter::once(0..9).collect() }
    }

    #[test]
    fn a_mark_depends_on_collection_source_and_content() {
        let names: Vec<Name> = ["fra", "nyc"].map(|name| name.parse().unwrap()).into();
        let files =
            vec![wanted(0, "a", 4), wanted(0, "b", 4), wanted(1, "a", 4), wanted(0, "a", 5)];
        let inventory = Inventory { files };
        let marker = |job| Marker { job: JobId([job; 16]), names: &names, inventory: &inventory };
        let all = |job| (0..4).map(|file| marker(job).file(FileNo(file))).collect::<BTreeSet<_>>();
        assert_eq!(all(1).len(), 4);
        assert!(all(1).is_disjoint(&all(2)));
        let parts: Vec<Piece> = [(2, 0..4), (2, 4..5), (0, 3..9)]
            .map(|(f, range)| Piece { file: FileNo(f), range })
            .into();
        let marks = read(&marker(1).note(&parts));
        // The same collection in a later session, in which the files have other numbers.
        let later = Inventory { files: inventory.files[2..].to_vec() };
        let later = Marker { inventory: &later, ..marker(1) };
        let known = later.files(&marks.iter().map(|mark| mark.file).collect());
        let found: Vec<_> = marks.iter().map(|m| (known.get(&m.file), m.from, m.bytes)).collect();
        assert_eq!(found, [(Some(&FileNo(0)), 0, 4), (Some(&FileNo(0)), 4, 1), (None, 3, 6)]);
    }

    #[test]
    fn the_longest_note_is_allowed() {
        let mark = Mark { file: [255; 16], from: u64::MAX, bytes: MAX_PART };
        assert!(encode(&vec![mark; MAX_PARTS]).len() <= MAX_NOTE);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_as_a_note_or_as_none(bytes: Vec<u8>) {
            let marks = read(&bytes);
            if !marks.is_empty() {
                prop_assert_eq!(read(&encode(&marks)[4..]), marks);
            }
        }
    }
}
