//! Paths of files: bytes, as on Unix.

use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// `PATH_MAX` of Linux.
const MOST_BYTES: usize = 4096;

/// A path relative to the requested path: components of bytes, joined by `/`.
///
/// It is never absolute, has no empty component, `.` or `..`, and no NUL, so that it stays inside the directory that it
/// is joined to. Empty: the requested path itself.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct FilePath(Vec<u8>);

/// Why bytes are not such a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path leaves the directory, or is not normalised.
    #[error("the name is absolute, or has an empty part, `.` or `..`")]
    Escapes,
    /// The path contains a NUL byte.
    #[error("the name holds a NUL byte")]
    Nul,
    /// The path is longer than `PATH_MAX`.
    #[error("the name has {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
}

/// Whether the name of a directory's entry is reserved for Thalweg: for the record of a collection or of a cast, a
/// partial file, or its journal. They are not user data, and no command transfers them.
pub fn is_reserved(name: &[u8]) -> bool {
    const ENDS: [&[u8]; 4] =
        [b".thalweg-part", b".thalweg-journal", b".thalweg-journal.new", b".thalweg-stream"];
    name.starts_with(b".thalweg-")
        || name.starts_with(b".")
            && ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

impl FilePath {
    /// Creates a path from bytes.
    ///
    /// # Errors
    ///
    /// [`PathError`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, PathError> {
        let outside = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
        if bytes.len() > MOST_BYTES {
            return Err(PathError::TooLong(bytes.len()));
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        if !bytes.is_empty() && bytes.split(|b| *b == b'/').any(outside) {
            return Err(PathError::Escapes);
        }
        Ok(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for FilePath {
    type Error = PathError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, PathError> {
        Self::new(bytes)
    }
}

impl From<FilePath> for Vec<u8> {
    fn from(path: FilePath) -> Self {
        path.0
    }
}

/// Escapes control characters and bytes that are not UTF-8.
impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if letter.is_control() {
                    write!(f, "{}", letter.escape_default())?
                } else {
                    write!(f, "{letter}")?
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
