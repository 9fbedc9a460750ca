//! Which files an object's bytes are.

use crate::object::FilePath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// The longest encoded layout in bytes: half a million files with names of 100 bytes.
pub const MAX_LAYOUT: usize = 64 << 20;

/// The most entries of a layout: each costs its receivers memory, and a place on the disk.
pub const MAX_ENTRIES: usize = 1 << 20;

/// What an object's bytes are: one file, or those of a directory one behind the other.
///
/// An object that is one file has one entry with the empty path. Of a directory the first entry is
/// the directory itself, with the empty path; the rest are below it in the order of their paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// What there is.
    pub entries: Vec<LayoutEntry>,
}

/// A file, a directory or a symbolic link, with what is kept of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutEntry {
    /// Below the object's name.
    pub path: FilePath,
    /// What it is.
    pub kind: LayoutKind,
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// When its content last changed, ns since 1970.
    pub modified_ns: i64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// A file with so many bytes of the object, behind those of the files before it.
    File {
        /// How many.
        length: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link, copied as one.
    Symlink {
        /// Where it points; any bytes but NUL.
        target: Vec<u8>,
    },
}

/// The entries are none that a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Not readable, or there is more behind it.
    #[error("the layout is not readable")]
    Invalid,
    /// More than [`MAX_ENTRIES`].
    #[error("the layout has more than {MAX_ENTRIES} entries")]
    Many,
    /// The first entry is not the object itself.
    #[error("the layout does not begin with the object itself")]
    Root,
    /// A path comes before one that is less, or twice.
    #[error("the layout is not in the order of its paths")]
    Order,
    /// An entry is below something that is no directory of the layout.
    #[error("the layout has an entry below what is no directory in it")]
    Parent,
    /// The files' lengths do not add up to the object's.
    #[error("the layout's files do not add up to the object's length")]
    Length,
    /// A link that points nowhere.
    #[error("the layout has a link whose target holds a NUL byte, or is empty or too long")]
    Target,
}

impl Layout {
    /// As it is sent and hashed.
    pub fn encode(&self) -> Vec<u8> {
        // Writing to a vector fails for no value of these types.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads it, and checks that it is a tree with so many bytes.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn decode(bytes: &[u8], length: u64) -> Result<Self, LayoutError> {
        // Before there are any in memory: the shortest take a tenth of what they are there.
        let (entries, _) =
            postcard::take_from_bytes::<u64>(bytes).map_err(|_| LayoutError::Invalid)?;
        if entries > MAX_ENTRIES as u64 {
            return Err(LayoutError::Many);
        }
        let read = postcard::take_from_bytes::<Self>(bytes);
        let layout = match read {
            Ok((layout, [])) => layout,
            _ => return Err(LayoutError::Invalid),
        };
        layout.check(length)?;
        Ok(layout)
    }

    /// Whether the object is one file.
    pub fn is_file(&self) -> bool {
        matches!(self.entries.first(), Some(LayoutEntry { kind: LayoutKind::File { .. }, .. }))
    }

    fn check(&self, length: u64) -> Result<(), LayoutError> {
        let (first, rest) = self.entries.split_first().ok_or(LayoutError::Root)?;
        let is_link = matches!(first.kind, LayoutKind::Symlink { .. });
        if !first.path.as_bytes().is_empty() || is_link || (self.is_file() && !rest.is_empty()) {
            return Err(LayoutError::Root);
        }
        let mut directories = BTreeSet::from([&b""[..]]);
        let (mut last, mut sum) = (&b""[..], first.bytes());
        for entry in rest {
            let path = entry.path.as_bytes();
            if path <= last {
                return Err(LayoutError::Order);
            }
            let above = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
            if !directories.contains(above) {
                return Err(LayoutError::Parent);
            }
            match &entry.kind {
                LayoutKind::Directory => _ = directories.insert(path),
                LayoutKind::Symlink { target } => check_target(target)?,
                LayoutKind::File { .. } => {}
            }
            last = path;
            sum = sum.and_then(|sum: u64| sum.checked_add(entry.bytes()?));
        }
        if sum == Some(length) { Ok(()) } else { Err(LayoutError::Length) }
    }
}

impl LayoutEntry {
    /// Its bytes of the object.
    fn bytes(&self) -> Option<u64> {
        match self.kind {
            LayoutKind::File { length } => Some(length),
            _ => Some(0),
        }
    }
}

/// `PATH_MAX` of Linux, with its NUL.
fn check_target(target: &[u8]) -> Result<(), LayoutError> {
    let is_sound = !target.is_empty() && target.len() < 4096 && !target.contains(&0);
    if is_sound { Ok(()) } else { Err(LayoutError::Target) }
}
