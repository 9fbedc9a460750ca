//! Reads a part while it is being written.

use super::PartError;
use bytes::Bytes;
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Reads a part's file; see [`Part::reader`](super::Part::reader).
#[derive(Debug)]
pub struct PartReader {
    file: File,
    path: PathBuf,
}

impl PartReader {
    pub(super) fn of(file: &File, path: &Path) -> Result<Self, PartError> {
        let file = file.try_clone().map_err(PartError::io("open", path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Reads the bytes `range`, which must be present. Blocks on the disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, PartError> {
        read(&self.file, range, &self.path).map(Bytes::from)
    }
}

pub(super) fn read(file: &File, range: Range<u64>, path: &Path) -> Result<Vec<u8>, PartError> {
    let n = range.end.saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(n).unwrap_or(usize::MAX)];
    let read = file.read_exact_at(&mut bytes, range.start);
    read.map_err(PartError::io("read", path)).map(|()| bytes)
}
