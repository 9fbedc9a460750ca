//! What a listing says of a file: what `rsync -a` would keep.

use super::FilePath;
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
    /// When its content last changed, ns since 1970.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// When its content last changed, ns since 1970.
    pub modified_ns: i64,
}
