//! The database. All SQL is in this module, in statements that SQLite and PostgreSQL share.

mod database;
mod error;
mod lease;
mod ledger;
mod line;
mod migrations;
mod pool;
#[cfg(test)]
#[path = "../../tests/mesh/postgres.rs"]
mod postgres;
mod read;
mod row;
#[cfg(test)]
mod tests;
mod write;

pub use database::{Database, Place, Server, UrlError};
pub use error::StoreError;
pub(crate) use row::{KeyRow, MeshRow, TokenRow};
pub(crate) use write::Write;
pub(crate) use {
    lease::Ballot,
    ledger::{Batch, Change, Disagreement, MOST_SAMPLES, Recent, Sample, State, Topic},
};

use line::Line;
use pool::Pool;
use sqlx::{Any, any::AnyArguments};
use std::{
    fmt, fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration,
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

type Query<'q> = sqlx::query::Query<'q, Any, AnyArguments>;

/// How many times its patience with the database's lock a writer has with the writers
/// before it: each takes milliseconds, unless it waits for the lock itself.
const QUEUE: u32 = 3;

/// Where tokens, members, rosters and measurements are kept.
pub(crate) struct Store {
    pool: Pool,
    /// Writers of this process wait here, in order, instead of at the database's lock,
    /// which SQLite polls.
    turn: Mutex<()>,
    /// Those of the ledger, where it has a lock of its own.
    ledger: Mutex<()>,
    patience: Duration,
}

impl Store {
    /// A new database in a new file of mode 0600.
    pub async fn create(file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        new.map_err(|source| StoreError::file(file, source))?;
        let store = Self::at(&Database::File, file, patience)?;
        store.ready().await?;
        Ok(store)
    }

    /// The database, which is not looked at yet; `file` counts for [`Database::File`].
    pub fn at(database: &Database, file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let pool = Pool::of(database, file, patience)?;
        Ok(Self { pool, turn: Mutex::new(()), ledger: Mutex::new(()), patience })
    }

    /// Checks the database, and brings it to this version's form. Without it, whatever comes
    /// first does so.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.pool.ready().await.map(drop)
    }

    /// Begins to change the mesh, as the only one.
    pub async fn write(&self) -> Result<Write<'_>, StoreError> {
        let turn = self.turn(&self.turn).await?;
        Write::begin(self, turn).await
    }

    async fn turn<'a>(&self, of: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>, StoreError> {
        timeout(QUEUE * self.patience, of.lock()).await.map_err(|_| StoreError::Busy)
    }

    /// The turn to write in the ledger: SQLite has one lock for all.
    async fn ledger_turn(&self) -> Result<MutexGuard<'_, ()>, StoreError> {
        match self.place() {
            Place::File(_) => self.turn(&self.turn).await,
            Place::Server(_) => self.turn(&self.ledger).await,
        }
    }

    async fn line(&self) -> Result<Line, StoreError> {
        Line::take(&self.pool).await
    }

    /// The database's name in messages.
    pub fn place(&self) -> &Place {
        self.pool.place()
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.place())
    }
}

impl StoreError {
    fn file(file: &Path, source: io::Error) -> Self {
        Self::File { file: file.into(), source }
    }
}
