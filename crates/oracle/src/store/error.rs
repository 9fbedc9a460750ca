//! Errors of the database, with advice for the operator.

use super::DatabaseName;
use sqlx::migrate::MigrateError;
use std::{io, path::PathBuf};
use thiserror::Error;

/// An error of the database. Except for [`Unsure`](Self::Unsure), nothing was changed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another program holds the database's lock.
    #[error(
        "the oracle's database {0} is locked by another program; nothing was changed, and the \
         roster is still served: try again, and end that program if the lock stays"
    )]
    Locked(DatabaseName),
    /// Too many writers of this process wait.
    #[error(
        "too many changes are waiting for the oracle's database; nothing was changed: try again"
    )]
    Busy,
    /// The disk is full.
    #[error(
        "the disk of the oracle's database {0} is full; nothing was changed, and the roster is \
         still served: free space and try again"
    )]
    Full(DatabaseName),
    /// The file is not a database, or damaged.
    #[error("{}", damage(place, what))]
    Damaged {
        place: DatabaseName,
        /// What was found.
        what: String,
    },
    /// The server does not answer.
    #[error(
        "the oracle's database {place} cannot be reached ({why}); nothing was changed, and the \
         roster is still served. Check that its server runs and admits this host; the oracle tries \
         again every second"
    )]
    Unreachable { place: DatabaseName, why: String },
    /// The server refuses the login or the operation.
    #[error(
        "the server of the oracle's database {place} refuses access: {why}. Check the URL, the \
         password (`database_password_file`, PGPASSWORD, ~/.pgpass) and that the user owns the \
         database; nothing was changed, and the roster is still served"
    )]
    Denied {
        place: DatabaseName,
        /// The server's words.
        why: String,
    },
    /// The server is a standby or read-only.
    #[error(
        "the oracle's database {0} is read-only; nothing was changed, and the roster is still \
         served. If it is a standby server, give the URL of the primary; if it is a file, check \
         its permissions"
    )]
    ReadOnly(DatabaseName),
    /// The connection broke during a commit.
    #[error(
        "the connection to the oracle's database {0} broke during a change, which was made either \
         completely or not at all: check with `thalweg mesh members` before you try again"
    )]
    Unsure(DatabaseName),
    /// The file cannot be created.
    #[error("{file}: {source}")]
    File { file: PathBuf, source: io::Error },
    /// A later version of Thalweg has migrated the database.
    #[error(
        "the oracle's database {place} has schema {found}, but this version of Thalweg knows \
         schemas up to {known}: a later version has used the database. Nothing was changed; use \
         that version"
    )]
    Newer {
        place: DatabaseName,
        /// Its schema version.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    #[error("cannot migrate the oracle's database {place} to this version's schema: {source}")]
    Migration { place: DatabaseName, source: MigrateError },
    #[error("the oracle's database {place} failed: {source}; nothing was changed")]
    Other { place: DatabaseName, source: sqlx::Error },
}

fn damage(place: &DatabaseName, what: &str) -> String {
    let begin = format!(
        "the oracle's database {place} is damaged ({what}); members continue with their cached \
         roster."
    );
    match place {
        DatabaseName::File(_) => format!(
            "{begin} Restore it from a backup, or move it (and its -wal and -shm files) away: the \
             oracle then starts from the signed roster in the same directory, without open tokens"
        ),
        DatabaseName::Server(_) => format!(
            "{begin} Restore it from a backup, or give the URL of an empty one: the oracle then \
             starts from the signed roster in its directory, without open tokens"
        ),
    }
}

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    /// Another connection holds a lock that this one needs.
    pub const BUSY: u32 = 5;
    /// A table is locked by another statement.
    pub const LOCKED: u32 = 6;
    /// The file or its directory is not writable.
    pub const READ_ONLY: u32 = 8;
    /// The file is a damaged database.
    pub const CORRUPT: u32 = 11;
    /// The disk is full.
    pub const FULL: u32 = 13;
    /// The file does not begin like a database.
    pub const NOT_A_DATABASE: u32 = 26;
}

impl StoreError {
    pub(crate) fn of(place: &DatabaseName, error: sqlx::Error) -> Self {
        match place {
            DatabaseName::File(_) => Self::of_sqlite(place, error),
            DatabaseName::Server(_) => Self::of_postgres(place, error),
        }
    }

    fn of_sqlite(place: &DatabaseName, error: sqlx::Error) -> Self {
        let place = place.clone();
        match primary(&error) {
            Some(code::BUSY | code::LOCKED) => Self::Locked(place),
            Some(code::READ_ONLY) => Self::ReadOnly(place),
            Some(code::FULL) => Self::Full(place),
            Some(code::CORRUPT | code::NOT_A_DATABASE) => Self::damaged(&place, error.to_string()),
            _ if matches!(error, sqlx::Error::PoolTimedOut) => Self::Locked(place),
            _ => Self::Other { place, source: error },
        }
    }

    /// Classifies by SQLSTATE (PostgreSQL's manual, appendix A).
    fn of_postgres(place: &DatabaseName, error: sqlx::Error) -> Self {
        let place = place.clone();
        let Some(state) = state(&error) else { return Self::of_transport(place, error) };
        let why = error.as_database_error().map(|e| e.message().to_owned()).unwrap_or_default();
        match &*state {
            // Lock not available, statement cancelled, deadlock, serialization failure.
            "55P03" | "57014" | "40P01" | "40001" => Self::Locked(place),
            "53100" => Self::Full(place),
            "25006" => Self::ReadOnly(place),
            "XX001" | "XX002" => Self::Damaged { place, what: why },
            // Wrong user or password, no such database, insufficient privilege.
            "28000" | "28P01" | "3D000" | "42501" => Self::Denied { place, why },
            // Connection failure, shutdown, crash, start-up; insufficient resources; below, idle in a transaction for
            // too long.
            _ if state.starts_with("08") || state.starts_with("57P") || state.starts_with("53") => {
                Self::Unreachable { place, why }
            }
            "25P03" => Self::Unreachable { place, why },
            _ => Self::Other { place, source: error },
        }
    }

    /// Classifies errors of the transport, which are not the server's answer.
    fn of_transport(place: DatabaseName, error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::WorkerCrashed => Self::Unreachable { place, why: error.to_string() },
            source => Self::Other { place, source },
        }
    }

    pub(crate) fn damaged(place: &DatabaseName, what: String) -> Self {
        Self::Damaged { place: place.clone(), what }
    }

    /// The database holds no mesh.
    pub(crate) fn empty(place: &DatabaseName) -> Self {
        Self::damaged(place, "the row about the mesh is missing".into())
    }

    /// The database did not answer in time.
    pub(crate) fn silent(place: &DatabaseName) -> Self {
        Self::Unreachable { place: place.clone(), why: "it does not answer".into() }
    }

    /// Converts an error of a commit: after a broken connection it is not known whether the change was made.
    pub(crate) fn at_commit(self) -> Self {
        match self {
            Self::Unreachable { place, .. } => Self::Unsure(place),
            other => other,
        }
    }

    pub(crate) fn migration(place: &DatabaseName, known: i64, error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::of(place, error)
            }
            MigrateError::VersionMissing(found) if found > known => {
                Self::Newer { place: place.clone(), found, known }
            }
            source => Self::Migration { place: place.clone(), source },
        }
    }

    /// Whether the error may disappear by itself, so that an oracle starts in spite of it.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::Damaged { .. }
                | Self::Newer { .. }
                | Self::Migration { .. }
                | Self::Denied { .. }
        )
    }
}

fn state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// The primary result code: the lowest eight bits of an extended one.
fn primary(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = state(error)?.parse().ok()?;
    Some(code & 0xff)
}
