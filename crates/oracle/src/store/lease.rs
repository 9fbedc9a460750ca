//! Who schedules: one row, valid by the database's own clock.
//!
//! No host's clock counts: of two oracles whose clocks differ neither takes the lease too
//! early. If the database's clock itself is set back, a lease that would be valid for far longer
//! than any is given for is none.

use super::{Line, Place, Store, StoreError, row::strange};
use sqlx::{AnyConnection, Row as _};
use std::time::Duration;
use thalweg_units::NodeId;
use tokio::time::timeout;

/// Who holds the lease, as far as the database knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The oracle, by its node's key.
    pub holder: NodeId,
    /// Its number: every lease that is given to another, or anew, has a greater one.
    pub term: u64,
    /// How long it is still valid.
    pub left: Duration,
}

/// What became of a request for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// It is given, under this number.
    Won(u64),
    /// Another has it.
    Held(Lease),
}

/// No lease is given for so many times the own one: the database's clock was set back.
const FAR: i64 = 10;

/// The row; times in ms.
struct Found {
    holder: String,
    term: i64,
    expires: i64,
    now: i64,
}

impl Found {
    /// The lease, if it is valid; `valid` is for how long one is given.
    fn lease(&self, valid: i64) -> sqlx::Result<Option<Lease>> {
        let left = self.expires - self.now;
        if self.holder.is_empty() || left <= 0 || left > valid.saturating_mul(FAR) {
            return Ok(None);
        }
        let holder = self.holder.parse().map_err(|_| strange("holder"))?;
        let term = u64::try_from(self.term).map_err(|_| strange("term"))?;
        let left = Duration::from_millis(left.unsigned_abs());
        Ok(Some(Lease { holder, term, left }))
    }

    /// Above every number before, and not below the date in seconds: a database that was
    /// restored from a backup gives none twice.
    fn next_term(&self) -> i64 {
        (self.term + 1).max(self.now / 1000)
    }
}

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

async fn found(db: &mut AnyConnection, date: &'static str) -> sqlx::Result<Found> {
    let now = sqlx::query_scalar(date).fetch_one(&mut *db).await?;
    let statement = "SELECT holder, term, expires FROM lease WHERE id = 1";
    let row = sqlx::query(statement).fetch_one(db).await?;
    let (holder, term) = (row.try_get("holder")?, row.try_get("term")?);
    Ok(Found { holder, term, expires: row.try_get("expires")?, now })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn column(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}
