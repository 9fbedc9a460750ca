//! What can go wrong with a file in the making.

use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why a part could not be opened, written, or published.
#[derive(Debug, Error)]
pub enum PartError {
    /// Another process is at work on the same target.
    #[error("another process is already writing {}; wait for it or choose another target", .0.display())]
    Busy(PathBuf),
    /// The target exists and is no regular file.
    #[error("{} is {what}, not a file that can be replaced", .path.display())]
    NotAFile {
        /// The target.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// No room on the filesystem.
    #[error("the disk is full: {} needs {needed} more{}; free some space and run the same command again", .path.display(), but_free(.free))]
    DiskFull {
        /// The file that does not fit.
        path: PathBuf,
        /// Bytes still to be written, as far as known.
        needed: ByteSize,
        /// Bytes that are free, if the filesystem says.
        free: Option<ByteSize>,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// A verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Publication before all bytes are there.
    #[error("{missing} of {} are missing", .path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// How much.
        missing: ByteSize,
    },
    /// Bytes beyond the end of the object.
    #[error("bytes past the end of {} were refused", .0.display())]
    PastEnd(PathBuf),
    /// All bytes are there and they are the wrong ones.
    #[error("{} is not what was expected: {expected} was asked for and {found} arrived", .path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// As given by the user.
        expected: String,
        /// As computed.
        found: String,
    },
    /// Another program's bytes, and nothing to judge them by.
    #[error("{} can only be gone on with if a digest of the whole is expected, and the server says its length: give --sha256 or --blake3", .0.display())]
    Unproven(PathBuf),
    /// An earlier sync failed: what the disk holds is unknown, and a later
    /// success of the same call would prove nothing.
    #[error("{} could not be synced earlier in this run; run the same command again", .0.display())]
    Unsynced(PathBuf),
}

impl PartError {
    /// For `map_err`: the failure of `what` on `path`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// As [`io`](Self::io), but a full disk or quota is told apart; `needed` bytes are still to come.
    pub(super) fn write(path: &Path, needed: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let free = super::place::free_beside(path).map(ByteSize::from_bytes);
                Self::DiskFull { path: path.to_owned(), needed: ByteSize::from_bytes(needed), free }
            }
            _ => Self::Io { what: "write", path: path.to_owned(), source },
        }
    }
}

fn but_free(free: &Option<ByteSize>) -> String {
    free.map_or_else(String::new, |free| format!(", and {free} are free"))
}
