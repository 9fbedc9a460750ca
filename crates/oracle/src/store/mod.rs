//! The database. All SQL is in this room, in statements that SQLite and PostgreSQL share.

mod error;
#[allow(dead_code, reason = "the measuring service's")]
mod lease;
#[allow(dead_code, reason = "the measuring service's")]
mod ledger;
mod read;
mod row;
mod write;

pub use error::StoreError;
pub(crate) use row::{KeyRow, MeshRow, TokenRow};
pub(crate) use write::Write;
#[allow(unused_imports, reason = "the measuring service's")]
pub(crate) use {
    lease::Lease,
    ledger::{
        Batch, Change, Compacted, Disagreement, Past, Recent, Recorded, Sample, State, Topic,
    },
};

use sqlx::{
    SqlStr, SqlitePool,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{sync::Mutex, time::timeout};

/// What `sqlx::migrate!` would make, without its build-time machinery.
fn migrations() -> Migrator {
    let mesh = SqlStr::from_static(include_str!("../../migrations/0001_mesh.sql"));
    let mesh = Migration::new(1, "mesh".into(), MigrationType::Simple, mesh, false);
    Migrator::with_migrations(vec![mesh])
}

/// Connections: writers come one at a time, and a few readers beside.
const CONNECTIONS: u32 = 4;

/// How many times its patience with the database's lock a writer has with the writers
/// before it: each takes milliseconds, unless it waits for the lock itself.
const QUEUE: u32 = 3;

/// Where tokens, members and rosters are kept.
#[derive(Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
    file: PathBuf,
    /// Writers of this process wait here, in order, instead of at the database's lock,
    /// which is polled.
    turn: Mutex<()>,
    patience: Duration,
}

impl Store {
    /// A new database in a new file of mode 0600.
    pub async fn create(file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        new.map_err(|source| StoreError::file(file, source))?;
        Self::open(file, patience).await
    }

    /// Opens the file, checks it, and brings it to this version's form.
    pub async fn open(file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let wrong = |error| StoreError::of(file, error);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(patience + Duration::from_secs(1))
            .connect_with(options(file, patience))
            .await
            .map_err(wrong)?;
        let store = Self { pool, file: file.into(), turn: Mutex::new(()), patience };
        store.check().await?;
        let done = migrations().run(&store.pool).await;
        done.map_err(|error| StoreError::migration(file, error))?;
        Ok(store)
    }

    /// Finds damage before anything is built on it.
    async fn check(&self) -> Result<(), StoreError> {
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| StoreError::of(&self.file, error))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(StoreError::damaged(&self.file, found)),
        }
    }

    /// Begins to write, as the only one.
    pub async fn write(&self) -> Result<Write<'_>, StoreError> {
        let turn = timeout(QUEUE * self.patience, self.turn.lock()).await;
        let turn = turn.map_err(|_| StoreError::Busy)?;
        Write::begin(self, turn).await
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

fn options(file: &Path, patience: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(false)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // A version that was published must outlive a power failure.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(patience)
}

impl StoreError {
    fn file(file: &Path, source: io::Error) -> Self {
        Self::File { file: file.into(), source }
    }
}
