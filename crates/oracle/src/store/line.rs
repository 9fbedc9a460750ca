//! A connection in use.

use super::{Place, StoreError, pool::Pool};
use sqlx::{Any, AnyConnection, pool::PoolConnection};
use std::time::Duration;
use tokio::time::error::Elapsed;

/// A connection. It is given back if what was asked of it has ended well, and closed
/// otherwise: its user went away, it was silent for too long, or it failed. A transaction
/// that was not committed is so undone, by whichever database.
pub(super) struct Line {
    connection: PoolConnection<Any>,
    place: Place,
    /// The longest that one question may take.
    pub limit: Duration,
    open: bool,
    whole: bool,
}

impl Line {
    pub async fn take(pool: &Pool) -> Result<Self, StoreError> {
        let place = pool.place().clone();
        let taken = pool.ready().await?.acquire().await;
        let connection = taken.map_err(|error| StoreError::of(&place, error))?;
        Ok(Self { connection, place, limit: pool.limit(), open: false, whole: true })
    }

    /// For one question, whose answer is given to [`told`](Self::told).
    pub fn ask(&mut self) -> &mut AnyConnection {
        self.whole = false;
        &mut self.connection
    }

    /// What became of a question.
    pub fn told<T>(&mut self, asked: Result<sqlx::Result<T>, Elapsed>) -> Result<T, StoreError> {
        let answer = asked.map_err(|_| StoreError::silent(&self.place))?;
        let value = answer.map_err(|error| StoreError::of(&self.place, error))?;
        self.whole = !self.open;
        Ok(value)
    }

    /// Runs a statement: how many rows changed.
    pub async fn run(&mut self, query: super::Query<'_>) -> Result<u64, StoreError> {
        let limit = self.limit;
        let done = tokio::time::timeout(limit, query.execute(self.ask())).await;
        self.told(done).map(|done| done.rows_affected())
    }

    /// A value that was made into a column's.
    pub fn encoded<T>(&self, encoded: sqlx::Result<T>) -> Result<T, StoreError> {
        encoded.map_err(|error| StoreError::of(&self.place, error))
    }

    /// Begins a transaction.
    pub async fn begin(&mut self) -> Result<(), StoreError> {
        self.open = true;
        self.run(sqlx::query("BEGIN")).await.map(drop)
    }

    /// Ends it.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let done = self.run(sqlx::query("COMMIT")).await;
        self.whole = done.is_ok();
        done.map(drop).map_err(StoreError::at_commit)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.whole {
            self.connection.close_on_drop();
        }
    }
}
