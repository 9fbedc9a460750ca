//! Where bytes go at the destination.

use crate::inventory::FileNo;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::{fmt, io, path::PathBuf};
use thiserror::Error;

/// Bytes could not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LandError {
    /// This file only: it is reported, and the rest goes on.
    #[error("{}: {why}", .file.display())]
    File {
        /// Its path here.
        file: PathBuf,
        /// What the system says, and what to try.
        why: String,
    },
    /// Nothing more can be kept: the disk is full, or gone.
    #[error("{why}")]
    All {
        /// What the system says, and what to try.
        why: String,
        /// Of which sort.
        kind: io::ErrorKind,
    },
}

/// Takes the bytes of pieces as they come, of many files in any order.
///
/// Only bytes that are proven to be the source's are written: nothing takes them back.
/// What is written twice is the same bytes; a file is complete when all that was missing is written, and
/// gets its name some time after. Waits while the disk is behind: its queue is bounded.
pub trait Land: Send + Sync + fmt::Debug {
    /// Takes bytes `at` a place of a file.
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>>;

    /// A file will not become complete: it changed, or cannot be read. What is kept of it is the
    /// landing's choice; it is not shown under its name.
    fn give_up(&self, file: FileNo, why: String);
}
