//! Why the state directory cannot be used.

use crate::RosterError;
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_net::KeyError;
use thiserror::Error;

/// The state directory, or a file in it, cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// There is no such directory: this host never had a part in a mesh.
    #[error(
        "{} does not exist: this host is in no mesh; found one with `thalweg mesh init` or \
         join one with `thalweg mesh join TOKEN`", .0.display()
    )]
    Absent(PathBuf),
    /// The directory is there, and the host in no mesh.
    #[error(
        "this host is in no mesh ({} has no mesh.json); found one with `thalweg mesh init` or \
         join one with `thalweg mesh join TOKEN`", .0.display()
    )]
    NoMesh(PathBuf),
    /// Others may read or change it.
    #[error("{path} is open to others (mode {mode:03o}): `chmod {right:o} {path}`",
        path = path.display())]
    Mode {
        /// The file or directory.
        path: PathBuf,
        /// Its mode's lowest nine bits.
        mode: u32,
        /// What they should be.
        right: u32,
    },
    /// It is another user's.
    #[error("{} belongs to the user with id {owner}, and this is the user with id {me}: run \
        this as its owner, or take another --state DIR", dir.display())]
    Owner {
        /// The directory.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        me: u32,
    },
    /// Another process uses the directory.
    #[error("{} is in use by {}; only one daemon, `init` or `join` can use it at a time",
        dir.display(), process(*pid))]
    Busy {
        /// The directory.
        dir: PathBuf,
        /// The other's process id, if it has said so.
        pid: Option<u32>,
    },
    /// `mesh.json` was altered.
    #[error(
        "{} is damaged: {why}; restore it from a copy, or move it away and join anew \
         with a token (the keys are kept)", file.display()
    )]
    MeshFile {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The roster.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The system's answer.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl StateError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
