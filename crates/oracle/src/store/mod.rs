//! The database. All SQL is in this module, in statements that SQLite and PostgreSQL share
//! (decision 0056).

mod database;
mod error;
mod lease;
mod ledger;
mod migrations;
mod pool;
#[cfg(test)]
#[path = "../../tests/mesh/postgres.rs"]
mod postgres;
mod read;
mod row;
mod session;
#[cfg(test)]
mod tests;
mod write;

pub use database::{Database, DatabaseName, Server, UrlError};
pub use error::StoreError;
pub(crate) use lease::Ballot;
pub(crate) use ledger::{
    Batch, Disagreement, MOST_SAMPLES, NodeChange, NodeState, Recent, Sample, Topic,
};
pub(crate) use row::{KeyRow, MeshRow, TokenRow};
pub(crate) use write::Write;

use lease::{LeaseRow, column, millis, read_lease};
use ledger::{Compacted, Recorded};
use pool::Pool;
use read::{key, mesh, token, version};
use session::Session;
use sqlx::{Any, any::AnyArguments};
use std::{
    fmt, fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration,
};
use thalweg_units::{NodeId, WallTime};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

type Query<'q> = sqlx::query::Query<'q, Any, AnyArguments>;

/// How long a writer waits for earlier writers, in multiples of the patience with the database's lock. Each write takes
/// milliseconds, unless it waits for that lock itself.
const QUEUE: u32 = 3;

/// The database of tokens, members, rosters and measurements.
pub(crate) struct Store {
    pool: Pool,
    /// Writers of this process queue here in order rather than at the database's lock, which SQLite polls.
    turn: Mutex<()>,
    /// Writers of the ledger queue here if the ledger has its own lock.
    ledger: Mutex<()>,
    patience: Duration,
}

impl Store {
    /// Creates a database in a new file of mode 0600.
    pub async fn create(file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        new.map_err(|source| StoreError::file(file, source))?;
        let store = Self::at(&Database::File, file, patience)?;
        store.ready().await?;
        Ok(store)
    }

    /// Refers to a database without opening it. `file` applies to [`Database::File`].
    pub fn at(database: &Database, file: &Path, patience: Duration) -> Result<Self, StoreError> {
        let pool = Pool::of(database, file, patience)?;
        Ok(Self { pool, turn: Mutex::new(()), ledger: Mutex::new(()), patience })
    }

    /// Opens, checks and migrates the database. Optional, because the first operation does it otherwise.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.pool.ready().await.map(drop)
    }

    /// Begins a write transaction on the mesh. Only one runs at a time.
    pub async fn write(&self) -> Result<Write<'_>, StoreError> {
        let turn = self.turn(&self.turn).await?;
        Write::begin(self, turn).await
    }

    async fn turn<'a>(&self, of: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>, StoreError> {
        timeout(QUEUE * self.patience, of.lock()).await.map_err(|_| StoreError::Busy)
    }

    /// Waits for the turn to write in the ledger. SQLite has one lock for all tables.
    async fn ledger_turn(&self) -> Result<MutexGuard<'_, ()>, StoreError> {
        match self.place() {
            DatabaseName::File(_) => self.turn(&self.turn).await,
            DatabaseName::Server(_) => self.turn(&self.ledger).await,
        }
    }

    async fn session(&self) -> Result<Session, StoreError> {
        Session::take(&self.pool).await
    }

    /// The database's name in messages.
    pub fn place(&self) -> &DatabaseName {
        self.pool.place()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// The election lease: one row, valid by the database's own clock.
///
/// The hosts' clocks do not matter: an oracle whose clock differs cannot take the lease too early. If the database's
/// own clock is set back, a lease whose remaining validity is far beyond any that is granted counts as expired.
impl Store {
    /// Takes the lease for `valid` from now, unless another oracle has a valid one. A holder that takes its own lease
    /// again gets a new term, because it was restarted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn lease(&self, holder: &NodeId, valid: Duration) -> Result<Ballot, StoreError> {
        let (mut session, found) = self.lock_lease().await?;
        let lease = session.encoded(found.lease(millis(valid)))?;
        if let Some(lease) = lease.filter(|lease| lease.holder != *holder) {
            return Ok(Ballot::Held(lease));
        }
        let term = found.next_term();
        let statement = "UPDATE lease SET holder = $1, term = $2, expires = $3 WHERE id = 1";
        let query = sqlx::query(statement)
            .bind(holder.to_string())
            .bind(term)
            .bind(found.now.saturating_add(millis(valid)));
        session.run(query).await?;
        session.commit().await?;
        Ok(Ballot::Won(term.unsigned_abs()))
    }

    /// Extends one's own lease to `valid` from now. Returns false if another oracle holds the lease or there is a newer
    /// term. An expired lease that no other oracle took can be extended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn renew_lease(
        &self,
        holder: &NodeId,
        term: u64,
        valid: Duration,
    ) -> Result<bool, StoreError> {
        let (mut session, found) = self.lock_lease().await?;
        if found.holder != holder.to_string() || found.term != column(term) {
            return Ok(false);
        }
        let statement = "UPDATE lease SET expires = $1 WHERE id = 1";
        let expires = found.now.saturating_add(millis(valid));
        session.run(sqlx::query(statement).bind(expires)).await?;
        session.commit().await?;
        Ok(true)
    }

    /// Releases one's own lease, so that another oracle need not wait.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn release_lease(&self, holder: &NodeId, term: u64) -> Result<(), StoreError> {
        let statement = "UPDATE lease SET expires = 0 WHERE id = 1 AND holder = $1 AND term = $2";
        let query = sqlx::query(statement).bind(holder.to_string()).bind(column(term));
        self.session().await?.run(query).await.map(drop)
    }

    /// Reads and locks the lease's row until the session is dropped or commits. The date is read after locking, because
    /// waiting for the lock takes time.
    async fn lock_lease(&self) -> Result<(Session, LeaseRow), StoreError> {
        let mut session = self.session().await?;
        session.begin().await?;
        session.run(sqlx::query("UPDATE lease SET id = 1 WHERE id = 1")).await?;
        let asked = timeout(session.limit, read_lease(session.start(), self.date())).await;
        let found = session.finish(asked)?;
        Ok((session, found))
    }

    /// The statement that reads the database's clock, ms since 1970.
    fn date(&self) -> &'static str {
        match self.place() {
            DatabaseName::File(_) => {
                "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS BIGINT)"
            }
            DatabaseName::Server(_) => {
                "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
            }
        }
    }
}

/// Reads outside a write transaction.
impl Store {
    /// The row about the mesh; `None` in a database without a mesh.
    pub async fn mesh(&self) -> Result<Option<MeshRow>, StoreError> {
        let mut session = self.session().await?;
        let asked = timeout(session.limit, mesh(session.start())).await;
        session.finish(asked)
    }

    /// The newest roster's version; `None` in a database without a mesh.
    pub async fn version(&self) -> Result<Option<u64>, StoreError> {
        let mut session = self.session().await?;
        let asked = timeout(session.limit, version(session.start())).await;
        session.finish(asked)
    }

    /// The row of a present or former member's key.
    pub async fn key(&self, id: &NodeId) -> Result<Option<KeyRow>, StoreError> {
        let mut session = self.session().await?;
        let asked = timeout(session.limit, key(session.start(), id)).await;
        session.finish(asked)
    }

    /// The token with this hash.
    pub async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        let mut session = self.session().await?;
        let asked = timeout(session.limit, token(session.start(), hash)).await;
        session.finish(asked)
    }

    /// Stores a batch, in transactions of 250 rows of each kind. After an error the whole batch may be recorded again:
    /// an answer to an order counts only once.
    ///
    /// # Errors
    /// [`StoreError`]; earlier transactions persist.
    pub async fn record(&self, batch: &Batch) -> Result<Recorded, StoreError> {
        ledger::record(self, batch).await
    }

    /// The last recorded sample of each topic, if it is not older than `oldest`, or where no sample is left the median
    /// of a summary, dated at the middle of its window; and all changes and disagreements since `oldest`. A date may be
    /// ahead of the clock, if that was set back.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_recent(&self, oldest: WallTime) -> Result<Recent, StoreError> {
        ledger::load_recent(self, oldest).await
    }

    /// Everything recorded after `cursor` by any oracle, in the order of recording. At most 5000 measurements per call,
    /// so repeat until there are none.
    ///
    /// A database restored from a backup may be behind the cursor; the returned cursor is then lower.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_since(&self, cursor: i64) -> Result<Recent, StoreError> {
        ledger::load_since(self, cursor).await
    }

    /// Merges measurements older than two days into one row for each topic and 6 h, deletes rows older than 60 days,
    /// and keeps all tables below their bounds. Call it about once an hour from one oracle; concurrent calls do no
    /// harm. Works in short transactions.
    ///
    /// # Errors
    /// [`StoreError`]; completed steps persist, and nothing counts twice.
    pub async fn compact(&self, now: WallTime) -> Result<Compacted, StoreError> {
        ledger::compact(self, now).await
    }

    /// The history of a leg since a date: summaries, then single measurements, each from old to new, and at most the
    /// newest 10,000.
    ///
    /// # Errors
    /// [`StoreError`].
    #[cfg(test)]
    pub async fn history(
        &self,
        from: &NodeId,
        to: &NodeId,
        since: WallTime,
    ) -> Result<Vec<ledger::Summary>, StoreError> {
        ledger::history(self, from, to, since).await
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
