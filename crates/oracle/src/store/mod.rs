//! The database. All SQL is in this module, in statements that SQLite and PostgreSQL share
//! (decision 0056).

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
pub(crate) use lease::Ballot;
pub(crate) use ledger::{Batch, Change, Disagreement, MOST_SAMPLES, Recent, Sample, State, Topic};
pub(crate) use row::{KeyRow, MeshRow, TokenRow};
pub(crate) use write::Write;

use lease::{Found, column, found, millis};
use ledger::{Compacted, Recorded};
use line::Line;
use pool::Pool;
use read::{key, mesh, token, version};
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

/// Who schedules: one row, valid by the database's own clock.
///
/// No host's clock counts: of two oracles whose clocks differ neither takes the lease too
/// early. If the database's clock itself is set back, a lease that would be valid for far longer
/// than any is given for is none.
impl Store {
    /// Takes the lease for oneself, for so long from now on, unless another has a valid one.
    /// Whoever has it itself gets a new number: it was started anew.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn lease(&self, holder: &NodeId, valid: Duration) -> Result<Ballot, StoreError> {
        let (mut line, found) = self.lock_lease().await?;
        let lease = line.encoded(found.lease(millis(valid)))?;
        if let Some(lease) = lease.filter(|lease| lease.holder != *holder) {
            return Ok(Ballot::Held(lease));
        }
        let term = found.next_term();
        let statement = "UPDATE lease SET holder = $1, term = $2, expires = $3 WHERE id = 1";
        let query = sqlx::query(statement)
            .bind(holder.to_string())
            .bind(term)
            .bind(found.now.saturating_add(millis(valid)));
        line.run(query).await?;
        line.commit().await?;
        Ok(Ballot::Won(term.unsigned_abs()))
    }

    /// Makes one's own lease valid for so long from now on; false: it is another's, or there is
    /// a newer one. An expired one that nobody took goes on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn renew_lease(
        &self,
        holder: &NodeId,
        term: u64,
        valid: Duration,
    ) -> Result<bool, StoreError> {
        let (mut line, found) = self.lock_lease().await?;
        if found.holder != holder.to_string() || found.term != column(term) {
            return Ok(false);
        }
        let statement = "UPDATE lease SET expires = $1 WHERE id = 1";
        let expires = found.now.saturating_add(millis(valid));
        line.run(sqlx::query(statement).bind(expires)).await?;
        line.commit().await?;
        Ok(true)
    }

    /// Gives one's own lease back, so that another oracle need not wait.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn release_lease(&self, holder: &NodeId, term: u64) -> Result<(), StoreError> {
        let statement = "UPDATE lease SET expires = 0 WHERE id = 1 AND holder = $1 AND term = $2";
        let query = sqlx::query(statement).bind(holder.to_string()).bind(column(term));
        self.line().await?.run(query).await.map(drop)
    }

    /// The row, locked until the line is dropped or commits. The date is read with the lock:
    /// whoever waited for it must not count by an older one.
    async fn lock_lease(&self) -> Result<(Line, Found), StoreError> {
        let mut line = self.line().await?;
        line.begin().await?;
        line.run(sqlx::query("UPDATE lease SET id = 1 WHERE id = 1")).await?;
        let asked = timeout(line.limit, found(line.ask(), self.date())).await;
        let found = line.told(asked)?;
        Ok((line, found))
    }

    /// The database's own clock, ms since 1970.
    fn date(&self) -> &'static str {
        match self.place() {
            Place::File(_) => "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS BIGINT)",
            Place::Server(_) => {
                "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
            }
        }
    }
}

/// What is asked of the database; inside a transaction and outside.
impl Store {
    /// The row about the mesh; none in a database that was never filled.
    pub async fn mesh(&self) -> Result<Option<MeshRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, mesh(line.ask())).await;
        line.told(asked)
    }

    /// The newest roster's version; none in a database that was never filled.
    pub async fn version(&self) -> Result<Option<u64>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, version(line.ask())).await;
        line.told(asked)
    }

    /// The key that is or was a member's.
    pub async fn key(&self, id: &NodeId) -> Result<Option<KeyRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, key(line.ask(), id)).await;
        line.told(asked)
    }

    /// The token with this hash.
    pub async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, token(line.ask(), hash)).await;
        line.told(asked)
    }

    /// Keeps a batch, in transactions of 250 rows of a kind. What failed on the way may be
    /// given again as a whole: answers to orders count once.
    ///
    /// # Errors
    /// [`StoreError`]; transactions before it stay.
    pub async fn record(&self, batch: &Batch) -> Result<Recorded, StoreError> {
        ledger::record(self, batch).await
    }

    /// What was recorded last of each topic, if it is not older than `oldest` (a summary's median
    /// where no single one is left, dated at its window's middle); all changes and
    /// disagreements since. A date may be ahead of the clock, if that was set back since.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_recent(&self, oldest: WallTime) -> Result<Recent, StoreError> {
        ledger::load_recent(self, oldest).await
    }

    /// All that was recorded after `cursor`, by whichever oracle, in the order of recording.
    /// A page of 5000 measurements at most, so ask until there are none.
    ///
    /// A database that was restored from a backup may be behind the cursor; it goes back then.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_since(&self, cursor: i64) -> Result<Recent, StoreError> {
        ledger::load_since(self, cursor).await
    }

    /// Makes measurements older than two days one row for each topic and 6 h, forgets what
    /// is older than 60 days, and keeps all tables below their bounds. To be called about
    /// once an hour, by one oracle; by several does no harm. Works in short transactions.
    ///
    /// # Errors
    /// [`StoreError`]; what was done before stays done, and nothing counts twice.
    pub async fn compact(&self, now: WallTime) -> Result<Compacted, StoreError> {
        ledger::compact(self, now).await
    }

    /// What a leg was like since then: summaries, then single measurements, the older first;
    /// of each the newest 10,000.
    ///
    /// # Errors
    /// [`StoreError`].
    #[cfg(test)]
    pub async fn history(
        &self,
        from: &NodeId,
        to: &NodeId,
        since: WallTime,
    ) -> Result<Vec<ledger::Past>, StoreError> {
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
