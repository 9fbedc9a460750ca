//! What is wrong with the database, and what to do.

use super::Place;
use sqlx::migrate::MigrateError;
use std::{io, path::PathBuf};
use thiserror::Error;

/// The database does not do what it should. But for [`Unsure`](Self::Unsure), nothing was changed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another program keeps its lock.
    #[error(
        "the oracle's database {0} is locked by another program; nothing was changed, and the \
         roster is served on: try again, and end that program if it stays"
    )]
    Locked(Place),
    /// Others of this program write.
    #[error("too many changes wait for the oracle's database; nothing was changed: try again")]
    Busy,
    /// No space.
    #[error(
        "the disk of the oracle's database {0} is full; nothing was changed, and the roster is \
         served on: make room and try again"
    )]
    Full(Place),
    /// Not a database, or altered.
    #[error("{}", damage(place, what))]
    Damaged {
        /// The database.
        place: Place,
        /// What was found.
        what: String,
    },
    /// No answer.
    #[error(
        "the oracle's database {place} is not reached ({why}); nothing was changed, and the roster \
         is served on. Look whether its server runs and lets this host in; it is tried again \
         each second"
    )]
    Unreachable {
        /// The database.
        place: Place,
        /// What happened.
        why: String,
    },
    /// The server does not let us in, or not do this.
    #[error(
        "the server of the oracle's database {place} refuses: {why}. Look at the URL, the \
         password (`database_password_file`, PGPASSWORD, ~/.pgpass) and whether the user owns the \
         database; nothing was changed, and the roster is served on"
    )]
    Denied {
        /// The database.
        place: Place,
        /// The server's words.
        why: String,
    },
    /// A standby.
    #[error(
        "the oracle's database {0} can only be read: it is a standby, or set so; nothing was \
         changed, and the roster is served on. Give the URL of the one that takes changes"
    )]
    ReadOnly(Place),
    /// The connection broke at the end of a change.
    #[error(
        "the connection to the oracle's database {0} broke while a change was being kept; it was \
         made wholly or not at all: look with `thalweg mesh members` before you try again"
    )]
    Unsure(Place),
    /// The file.
    #[error("{file}: {source}")]
    File {
        /// The database.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A later version of Thalweg made it.
    #[error(
        "the oracle's database {place} has form {found}, and this version of Thalweg knows forms \
         up to {known}: a later version has used it. Nothing was changed; use that version"
    )]
    Newer {
        /// The database.
        place: Place,
        /// Its form.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The schema cannot be brought up.
    #[error("the oracle's database {place} does not have this version's form: {source}")]
    Migration {
        /// The database.
        place: Place,
        /// What failed.
        source: MigrateError,
    },
    /// Something else.
    #[error("the oracle's database {place}: {source}; nothing was changed")]
    Other {
        /// The database.
        place: Place,
        /// What failed.
        source: sqlx::Error,
    },
}

fn damage(place: &Place, what: &str) -> String {
    let begin = format!(
        "the oracle's database {place} is damaged ({what}); members go on from their cached roster."
    );
    match place {
        Place::File(_) => format!(
            "{begin} Restore it from a backup, or move it (and its -wal and -shm) away: the \
             oracle then begins from the signed roster beside it, without open tokens"
        ),
        Place::Server(_) => format!(
            "{begin} Restore it from a backup, or give the URL of an empty one: the oracle then \
             begins from the signed roster in its directory, without open tokens"
        ),
    }
}

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    pub const BUSY: u32 = 5;
    pub const LOCKED: u32 = 6;
    pub const READ_ONLY: u32 = 8;
    pub const CORRUPT: u32 = 11;
    pub const FULL: u32 = 13;
    pub const NOT_A_DATABASE: u32 = 26;
}

impl StoreError {
    pub(crate) fn of(place: &Place, error: sqlx::Error) -> Self {
        match place {
            Place::File(_) => Self::of_sqlite(place, error),
            Place::Server(_) => Self::of_postgres(place, error),
        }
    }

    fn of_sqlite(place: &Place, error: sqlx::Error) -> Self {
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

    /// By SQLSTATE (PostgreSQL's manual, appendix A).
    fn of_postgres(place: &Place, error: sqlx::Error) -> Self {
        let place = place.clone();
        let Some(state) = state(&error) else { return Self::of_way(place, error) };
        let why = error.as_database_error().map(|e| e.message().to_owned()).unwrap_or_default();
        match &*state {
            // Lock not available, statement cancelled, deadlock, serialization.
            "55P03" | "57014" | "40P01" | "40001" => Self::Locked(place),
            "53100" => Self::Full(place),
            "25006" => Self::ReadOnly(place),
            "XX001" | "XX002" => Self::Damaged { place, what: why },
            // Wrong user or password, no such database, no right to.
            "28000" | "28P01" | "3D000" | "42501" => Self::Denied { place, why },
            // Connection trouble, shutdown, crash, start; too many connections; idle for too long.
            _ if state.starts_with("08") || state.starts_with("57P") || state.starts_with("53") => {
                Self::Unreachable { place, why }
            }
            "25P03" => Self::Unreachable { place, why },
            _ => Self::Other { place, source: error },
        }
    }

    /// What is not the server's answer: the way to it.
    fn of_way(place: Place, error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::WorkerCrashed => Self::Unreachable { place, why: error.to_string() },
            source => Self::Other { place, source },
        }
    }

    pub(crate) fn damaged(place: &Place, what: String) -> Self {
        Self::Damaged { place: place.clone(), what }
    }

    /// The database holds no mesh.
    pub(crate) fn empty(place: &Place) -> Self {
        Self::damaged(place, "the row about the mesh is missing".into())
    }

    /// It did not answer in time.
    pub(crate) fn silent(place: &Place) -> Self {
        Self::Unreachable { place: place.clone(), why: "it does not answer".into() }
    }

    /// Whether a connection that breaks there leaves open what became of a change.
    pub(crate) fn at_commit(self) -> Self {
        match self {
            Self::Unreachable { place, .. } => Self::Unsure(place),
            other => other,
        }
    }

    pub(crate) fn migration(place: &Place, known: i64, error: MigrateError) -> Self {
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

    /// Whether it may be over by itself, so that an oracle starts all the same.
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

/// The primary code: the lowest eight bits of an extended one.
fn primary(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = state(error)?.parse().ok()?;
    Some(code & 0xff)
}
