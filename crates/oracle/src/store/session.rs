//! A database connection in use.

use super::{DatabaseName, StoreError, pool::Pool};
use sqlx::{Any, AnyConnection, pool::PoolConnection};
use std::time::Duration;
use tokio::time::error::Elapsed;

/// A connection borrowed from the pool. It returns to the pool only if its last query completed and no transaction is
/// open. Otherwise (the caller was dropped, the query timed out or failed) it is closed, which rolls back an
/// uncommitted transaction in either database.
pub(super) struct Session {
    connection: PoolConnection<Any>,
    place: DatabaseName,
    /// The time limit for one query.
    pub limit: Duration,
    open: bool,
    whole: bool,
}

impl Session {
    /// Takes a connection from the pool; waits for a free one.
    pub async fn take(pool: &Pool) -> Result<Self, StoreError> {
        let place = pool.place().clone();
        let taken = pool.ready().await?.acquire().await;
        let connection = taken.map_err(|error| StoreError::of(&place, error))?;
        Ok(Self { connection, place, limit: pool.limit(), open: false, whole: true })
    }

    /// Borrows the connection for one query, whose result must be passed to [`finish`](Self::finish).
    pub fn start(&mut self) -> &mut AnyConnection {
        self.whole = false;
        &mut self.connection
    }

    /// Converts the result of a query, and marks the connection as reusable if it succeeded.
    pub fn finish<T>(&mut self, asked: Result<sqlx::Result<T>, Elapsed>) -> Result<T, StoreError> {
        let answer = asked.map_err(|_| StoreError::silent(&self.place))?;
        let value = answer.map_err(|error| StoreError::of(&self.place, error))?;
        self.whole = !self.open;
        Ok(value)
    }

    /// Runs a statement. Returns the number of changed rows.
    pub async fn run(&mut self, query: super::Query<'_>) -> Result<u64, StoreError> {
        let limit = self.limit;
        let done = tokio::time::timeout(limit, query.execute(self.start())).await;
        self.finish(done).map(|done| done.rows_affected())
    }

    /// Converts an encoding error of a column's value.
    pub fn encoded<T>(&self, encoded: sqlx::Result<T>) -> Result<T, StoreError> {
        encoded.map_err(|error| StoreError::of(&self.place, error))
    }

    /// Begins a transaction.
    pub async fn begin(&mut self) -> Result<(), StoreError> {
        self.open = true;
        self.run(sqlx::query("BEGIN")).await.map(drop)
    }

    /// Commits the transaction.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let done = self.run(sqlx::query("COMMIT")).await;
        self.whole = done.is_ok();
        done.map(drop).map_err(StoreError::at_commit)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.whole {
            self.connection.close_on_drop();
        }
    }
}
