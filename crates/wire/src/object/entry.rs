//! Entries of listings: files, directories and links with the metadata that `rsync -a` keeps.

use super::{ExtraMetadata, FilePath, FileTime};
use serde::{Deserialize, Serialize};

/// The identity of a file's content when it was listed: if any field differs, the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The device's number on the serving host.
    pub device: u64,
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the content last changed, ns since 1970. Times before 1677 or after 2262 are clamped; then only
    /// `changed_ns` shows changes.
    pub modified_ns: i64,
    /// When the inode last changed, ns since 1970. Renames and `touch` change it, too.
    pub changed_ns: i64,
}

/// The kind of an entry in a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A file with content.
    File {
        /// The identity of its content.
        snapshot: Snapshot,
    },
    Directory,
    /// A symbolic link, which is copied as a link.
    Symlink {
        /// The target; any bytes.
        target: Vec<u8>,
    },
    /// A device, socket or fifo, which is listed but never created.
    Special,
}

/// An entry in a file system with its metadata.
///
/// Two files of one listing with the same device and inode are hard links to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Plain", into = "Plain")]
pub struct Entry {
    /// The index of the requested path below which it was found.
    pub root: u32,
    /// The path below the requested path, or below the [`crate::object::base`] of a pattern. Empty: the requested path
    /// itself.
    pub path: FilePath,
    pub kind: Kind,
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The owner's numeric id.
    pub owner: u32,
    /// The group's numeric id.
    pub group: u32,
    /// When the content last changed.
    pub modified: FileTime,
    /// Metadata that few entries have. Only [`super::DescribedEntry`] encodes it.
    pub more: Option<Box<ExtraMetadata>>,
}

/// The part of an entry that nodes of all versions decode.
#[derive(Serialize, Deserialize)]
struct Plain {
    root: u32,
    path: FilePath,
    kind: Kind,
    mode: u16,
    owner: u32,
    group: u32,
    modified_ns: i64,
}

impl From<Plain> for Entry {
    fn from(plain: Plain) -> Self {
        let Plain { root, path, kind, mode, owner, group, modified_ns } = plain;
        let modified = FileTime::from_nanos(modified_ns);
        Self { root, path, kind, mode, owner, group, modified, more: None }
    }
}

impl From<Entry> for Plain {
    fn from(entry: Entry) -> Self {
        let Entry { root, path, kind, mode, owner, group, modified, more: _ } = entry;
        Self { root, path, kind, mode, owner, group, modified_ns: modified.as_nanos() }
    }
}

impl Entry {
    /// The extended attributes.
    pub fn xattrs(&self) -> &[super::Xattr] {
        self.more.as_ref().map_or(&[], |more| &more.xattrs)
    }

    /// The largest holes; `None`: the file is not sparse.
    pub fn holes(&self) -> Option<&[(u64, u64)]> {
        self.more.as_ref()?.holes.as_deref()
    }
}
