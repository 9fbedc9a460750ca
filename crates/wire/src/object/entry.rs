//! What a listing says of a file: what `rsync -a` would keep.

use super::{FilePath, FileTime, More};
use serde::{Deserialize, Serialize};

/// Which content a file had when it was listed: it is another one as soon as anything differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The device's number, of the serving host.
    pub device: u64,
    /// The inode's.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When its content last changed, ns since 1970; before 1677 and after 2262 the end of these, and the next one
    /// tells.
    pub modified_ns: i64,
    /// When the inode last changed, ns since 1970: renames and `touch` show.
    pub changed_ns: i64,
}

/// A thing in a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A file with content.
    File {
        /// Its content's identity.
        snapshot: Snapshot,
    },
    /// A directory.
    Directory,
    /// A symbolic link, copied as one.
    Symlink {
        /// Where it points; any bytes.
        target: Vec<u8>,
    },
    /// A device, socket or fifo: named, never made.
    Special,
}

/// A thing in a file system, with what is kept of it.
///
/// Two files of one listing with the same device and inode are two names of one file (hard links).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Plain", into = "Plain")]
pub struct Entry {
    /// Which of the paths asked for it was found under.
    pub root: u32,
    /// Its path below that; below the [`crate::object::base`] of a pattern. Empty: the thing itself.
    pub path: FilePath,
    /// What it is.
    pub kind: Kind,
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
    /// When its content last changed.
    pub modified: FileTime,
    /// What few have; goes by [`super::Described`] alone.
    pub more: Option<Box<More>>,
}

/// An entry as all nodes know it.
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
        let modified = FileTime::of_nanos(modified_ns);
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
    /// Its extended attributes.
    pub fn xattrs(&self) -> &[super::Xattr] {
        self.more.as_ref().map_or(&[], |more| &more.xattrs)
    }

    /// Its largest holes; `None`: it is not sparse.
    pub fn holes(&self) -> Option<&[(u64, u64)]> {
        self.more.as_ref()?.holes.as_deref()
    }
}
