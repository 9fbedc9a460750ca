//! Names of files: bytes, as Unix has them.

use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// `PATH_MAX` of Linux.
const MOST_BYTES: usize = 4096;

/// A path relative to what was asked for: parts of bytes, joined by `/`.
///
/// Never absolute, no part empty, `.` or `..`, no NUL: joined to a directory it stays inside.
/// Empty: the thing itself that was asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct FilePath(Vec<u8>);

/// The bytes are no path that stays inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// It leaves the directory, or would have to be read twice to know.
    #[error("the name is absolute, or has an empty part, `.` or `..`")]
    Escapes,
    /// It holds a NUL byte.
    #[error("the name holds a NUL byte")]
    Nul,
    /// It is longer than `PATH_MAX`.
    #[error("the name has {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
}

impl FilePath {
    /// The path of these bytes.
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

    /// Its bytes.
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

/// Made printable: control characters and bytes beyond UTF-8 are escaped.
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
