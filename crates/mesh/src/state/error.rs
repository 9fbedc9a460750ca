//! Errors of the state directory.

use crate::RosterError;
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_net::KeyError;
use thiserror::Error;

/// Why the state directory, or a file in it, cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// There is no such directory: this host was never in a mesh.
    #[error(
        "{} does not exist: this host is in no mesh; create one with `thalweg mesh init` or join \
         one with `thalweg mesh join TOKEN`", .0.display()
    )]
    Absent(PathBuf),
    /// The directory exists, but the host is in no mesh.
    #[error(
        "this host is in no mesh ({} has no mesh.json); create one with `thalweg mesh init` or \
         join one with `thalweg mesh join TOKEN`", .0.display()
    )]
    NoMesh(PathBuf),
    /// Others may read or change it.
    #[error("{path} is accessible to other users (mode {mode:03o}); run `chmod {right:o} {path}`",
        path = path.display())]
    Mode {
        /// The file or directory.
        path: PathBuf,
        /// Its mode's lowest nine bits.
        mode: u32,
        /// What they should be.
        right: u32,
    },
    /// It belongs to another user.
    #[error("{} belongs to user id {owner}, but this command runs as user id {me}; run it as the \
             owner, or give another --state DIR", dir.display())]
    Owner {
        dir: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The user id of this process.
        me: u32,
    },
    /// Another process uses the directory.
    #[error("{} is in use by {}; only one daemon, `init`, `join` or `rekey` can use it at a time",
        dir.display(), process(*pid))]
    Busy {
        dir: PathBuf,
        /// The id of the other process, if it has written it.
        pid: Option<u32>,
    },
    #[error(
        "{} is damaged: {why}; restore it from a copy, or move it away and join again with a token \
         (the keys are kept)", file.display()
    )]
    MeshFile { file: PathBuf, why: String },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The roster cannot be used.
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
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
