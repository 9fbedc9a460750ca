//! Why a roster is not accepted.

use std::{io, path::PathBuf};
use thalweg_units::NodeId;
use thalweg_wire::SignedError;
use thiserror::Error;

/// A roster that is not accepted; the one that was there stays (but see [`RosterError::Keep`]).
#[derive(Debug, Error)]
pub enum RosterError {
    /// Older than the one that is there: a rollback.
    #[error("roster version {offered} is older than version {have}, which is kept")]
    Rollback {
        /// The version offered.
        offered: u64,
        /// The version kept.
        have: u64,
    },
    /// Two rosters with one version: the mesh's key signs in two places.
    #[error(
        "another roster with version {0} exists, and the one that came first is kept; \
         does an oracle run from a copy or a backup of the mesh's key?"
    )]
    Forked(u64),
    /// Not signed by the mesh's key.
    #[error("the roster is signed by {signer:?}, not by this mesh's key {mesh:?}")]
    Signer {
        /// Who signed it.
        signer: NodeId,
        /// Who should have.
        mesh: NodeId,
    },
    /// The kept roster is another mesh's.
    #[error(
        "{} is the roster of another mesh, signed by {signer:?}; it is left alone: move it \
         away if this host is in the mesh {mesh:?}", file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Who signed it.
        signer: NodeId,
        /// This mesh's key.
        mesh: NodeId,
    },
    /// Altered, or no roster.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// It holds, but only until this process ends.
    #[error("cannot keep the roster in {}: {source}; is the disk full?", file.display())]
    Keep {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kept roster cannot be read.
    #[error("cannot read the kept roster {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}
