//! Why a roster is not accepted.

use std::{io, path::PathBuf};
use thalweg_units::NodeId;
use thalweg_wire::{SignedError, mesh::AuthorityError};
use thiserror::Error;

/// Why a roster is not accepted. The current one then stays (except after [`RosterError::Keep`]).
#[derive(Debug, Error)]
pub enum RosterError {
    /// It is older than the current one: a rollback.
    #[error("roster version {offered} is older than version {have}, which is kept")]
    Rollback {
        /// The offered version.
        offered: u64,
        /// The current version.
        have: u64,
    },
    /// Another roster has the same version: the mesh's key signs in two places.
    #[error(
        "two different rosters have version {0}; the one received first is kept. Does another \
         oracle run with a copy or a backup of the mesh's key?"
    )]
    Forked(u64),
    /// Its signer may not sign for this mesh.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// It is signed by a key that another one has replaced.
    #[error(
        "the roster is signed by the mesh's key number {offered}, which number {have} has replaced \
         (`thalweg mesh rekey`); rosters of the old key are not accepted"
    )]
    ReplacedKey {
        /// The number of the key that signed it.
        offered: u64,
        /// The number of the present key.
        have: u64,
    },
    /// The stored roster belongs to another mesh.
    #[error(
        "{} is the roster of another mesh: {why}; it was not changed. Move it away if this host is \
         in the mesh {mesh:?}", file.display()
    )]
    Foreign {
        file: PathBuf,
        /// Why its signer may not sign for this mesh.
        why: Box<AuthorityError>,
        /// This mesh's key.
        mesh: NodeId,
    },
    /// It was altered, or is no roster.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// It is in force, but only until this process ends, because it cannot be stored.
    #[error("cannot save the roster to {}: {source}; is the disk full?", file.display())]
    Keep { file: PathBuf, source: io::Error },
    /// The stored roster cannot be read.
    #[error("cannot read the saved roster {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
}
