//! What is wrong with the database, and what to do.

use sqlx::migrate::MigrateError;
use std::{
    io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// The database does not do what it should.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another program keeps its lock.
    #[error(
        "the oracle's database {0} is locked by another program; nothing was changed, and the \
         roster is served on: try again, and end that program if it stays"
    )]
    Locked(PathBuf),
    /// Others of this program write.
    #[error("too many changes wait for the oracle's database; nothing was changed: try again")]
    Busy,
    /// No space.
    #[error(
        "the disk of the oracle's database {0} is full; nothing was changed, and the roster is \
         served on: make room and try again"
    )]
    Full(PathBuf),
    /// Not a database, or altered.
    #[error(
        "the oracle's database {file} is damaged ({what}); members go on from their cached \
         roster. Restore it from a backup, or move it (and its -wal and -shm) away: the oracle \
         then begins from the signed roster beside it, without open tokens"
    )]
    Damaged {
        /// The database.
        file: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file.
    #[error("{file}: {source}")]
    File {
        /// The database.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A later version of Thalweg made it, or the schema cannot be brought up.
    #[error("the oracle's database {file} does not have this version's form: {source}")]
    Migration {
        /// The database.
        file: PathBuf,
        /// What failed.
        source: MigrateError,
    },
    /// Something else.
    #[error("the oracle's database {file}: {source}; nothing was changed")]
    Other {
        /// The database.
        file: PathBuf,
        /// What failed.
        source: sqlx::Error,
    },
}

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    pub const BUSY: u32 = 5;
    pub const LOCKED: u32 = 6;
    pub const CORRUPT: u32 = 11;
    pub const FULL: u32 = 13;
    pub const NOT_A_DATABASE: u32 = 26;
}

impl StoreError {
    pub(crate) fn of(file: &Path, error: sqlx::Error) -> Self {
        match primary(&error) {
            Some(code::BUSY | code::LOCKED) => Self::Locked(file.into()),
            Some(code::FULL) => Self::Full(file.into()),
            Some(code::CORRUPT | code::NOT_A_DATABASE) => Self::damaged(file, error.to_string()),
            _ if matches!(error, sqlx::Error::PoolTimedOut) => Self::Locked(file.into()),
            _ => Self::Other { file: file.into(), source: error },
        }
    }

    pub(crate) fn damaged(file: &Path, what: String) -> Self {
        Self::Damaged { file: file.into(), what }
    }

    /// The database holds no mesh.
    pub(crate) fn empty(file: &Path) -> Self {
        Self::damaged(file, "the row about the mesh is missing".into())
    }

    pub(crate) fn migration(file: &Path, error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::of(file, error)
            }
            source => Self::Migration { file: file.into(), source },
        }
    }
}

/// The primary code: the lowest eight bits of an extended one.
fn primary(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
