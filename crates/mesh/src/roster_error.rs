//! Why a roster is not accepted.

use std::{io, path::PathBuf};
use thalweg_units::NodeId;
use thalweg_wire::SignedError;
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
    /// It is not signed by the mesh's key.
    #[error("the roster is signed by {signer:?}, not by this mesh's key {mesh:?}")]
    Signer {
        /// The key that signed it.
        signer: NodeId,
        /// The mesh's key.
        mesh: NodeId,
    },
    /// The stored roster belongs to another mesh.
    #[error(
        "{} is the roster of another mesh, signed by {signer:?}; it was not changed. Move it away \
         if this host is in the mesh {mesh:?}", file.display()
    )]
    Foreign {
        file: PathBuf,
        /// The key that signed it.
        signer: NodeId,
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
