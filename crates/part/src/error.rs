//! Errors of parts.

use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why a part could not be opened, written, or published.
#[derive(Debug, Error)]
pub enum PartError {
    /// Another process is writing to the same target.
    #[error("another process is already writing {}; wait for it or choose another target", .0.display())]
    Busy(PathBuf),
    /// The target exists and is not a regular file.
    #[error("{} is {what}, not a file that can be replaced", .path.display())]
    NotAFile {
        path: PathBuf,
        /// What the target is instead of a file.
        what: &'static str,
    },
    /// The filesystem has too little room.
    #[error("the disk is full: {} needs {}{}; free some space and run the same command again", .path.display(), how_much(*.needed), but_free(.free))]
    DiskFull {
        /// The file that does not fit.
        path: PathBuf,
        /// The bytes still to be written; 0 if unknown.
        needed: ByteSize,
        /// The free bytes, if the filesystem reports them.
        free: Option<ByteSize>,
    },
    /// The filesystem has no free inodes, although it may have room.
    #[error("no inodes are left: the file system takes no more files{}, so {} cannot be created; \
             remove files there and run the same command again", though_free(.free), .path.display())]
    NoInodes {
        /// The file that cannot be made.
        path: PathBuf,
        /// The free bytes, if the filesystem reports them.
        free: Option<ByteSize>,
    },
    /// The system returned an error.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The operation, a verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// A thread that works on the file died or could not be started.
    #[error("the file could not be written: {0}; run the same command again")]
    Thread(io::Error),
    /// The part should be published but is not complete.
    #[error("{missing} of {} are missing", .path.display())]
    Incomplete {
        path: PathBuf,
        /// The number of missing bytes.
        missing: ByteSize,
    },
    /// Bytes were given beyond the end of the object.
    #[error("bytes past the end of {} were refused", .0.display())]
    PastEnd(PathBuf),
    /// All bytes have arrived, but their digest is wrong.
    #[error("{} does not match the expected hash: expected {expected}, received {found}", .path.display())]
    Digest {
        path: PathBuf,
        /// The expected digest, as the user gave it.
        expected: String,
        /// The computed digest.
        found: String,
    },
    /// All bytes have arrived, but some differ.
    #[error(
        "{} has a wrong hash: piece {number} should be {expected} but is {found}", .path.display()
    )]
    Piece {
        path: PathBuf,
        /// The first piece that differs, counted from 1.
        number: u64,
        /// The given digest.
        expected: Box<str>,
        /// The computed digest.
        found: Box<str>,
    },
    /// The existing file is another program's, and nothing can verify its bytes.
    #[error("{} can only be continued if the hash of the whole file is given and the server \
             reports its length: give --sha256 or --blake3", .0.display())]
    Unproven(PathBuf),
    /// An earlier sync failed. The disk's content is unknown, and a later success of the same call would prove nothing.
    #[error("{} could not be synced earlier in this run; run the same command again", .0.display())]
    Unsynced(PathBuf),
}

impl PartError {
    /// Wraps the error of the operation `what` on `path`, for `map_err`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// Like [`io`](Self::io), but recognizes a full disk or quota; `needed` bytes are still to be written.
    pub(super) fn write(path: &Path, needed: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let space = super::part_files::space_beside(path);
                let free = space.bytes.map(ByteSize::from_bytes);
                let has_room = space.bytes.is_none_or(|bytes| bytes >= needed.max(SMALL_FILE));
                if space.files == Some(0) && has_room {
                    return Self::NoInodes { path: path.to_owned(), free };
                }
                Self::DiskFull { path: path.to_owned(), needed: ByteSize::from_bytes(needed), free }
            }
            _ => Self::Io { what: "write", path: path.to_owned(), source },
        }
    }
}

/// Room for a small file and its journal. A filesystem with less lacks bytes, not inodes.
const SMALL_FILE: u64 = 64 << 10;

fn though_free(free: &Option<ByteSize>) -> String {
    free.map_or_else(String::new, |free| format!(", though {free} are free"))
}

fn how_much(needed: ByteSize) -> String {
    match needed.as_bytes() {
        0 => "more room".to_owned(),
        _ => format!("{needed} more"),
    }
}

fn but_free(free: &Option<ByteSize>) -> String {
    free.map_or_else(String::new, |free| format!(", and {free} are free"))
}
