//! The destination of fetched bytes, as a trait.

use crate::inventory::FileNo;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::{fmt, io, path::PathBuf};
use thiserror::Error;

/// Bytes could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LandError {
    /// Only this file failed: it is reported, and the transfer goes on.
    #[error("{}: {why}", .file.display())]
    File {
        /// Its path on this host.
        file: PathBuf,
        /// The system's error, and what to try.
        why: String,
    },
    /// Nothing more can be written: the disk is full or gone.
    #[error("{why}")]
    All {
        /// The system's error, and what to try.
        why: String,
        /// The kind of the error.
        kind: io::ErrorKind,
    },
}

/// Writes received bytes, of many files in any order.
///
/// Callers pass only verified bytes of the source, since written bytes cannot be taken back. Bytes that are written
/// twice must be the same. A file is complete when all missing bytes are written, and gets its final name some time
/// later. Writes wait while the disk is behind: the queue is bounded.
pub trait Land: Send + Sync + fmt::Debug {
    /// Writes bytes at the offset `at` of a file.
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>>;

    /// Gives up a file that will not become complete, because it changed or cannot be read. The implementation decides
    /// what it keeps of the file; the file does not get its final name.
    fn give_up(&self, file: FileNo, why: String);
}
