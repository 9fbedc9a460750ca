//! Who schedules: one row, valid by the database's own clock.
//!
//! No host's clock counts: of two oracles whose clocks differ neither takes the lease too
//! early. If the database's clock itself is set back, a lease that would be valid for far longer
//! than any is given for is none.

use super::row::strange;
use sqlx::{AnyConnection, Row as _};
use std::time::Duration;
use thalweg_units::NodeId;

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
pub(super) struct Found {
    pub(super) holder: String,
    pub(super) term: i64,
    pub(super) expires: i64,
    pub(super) now: i64,
}

impl Found {
    /// The lease, if it is valid; `valid` is for how long one is given.
    pub(super) fn lease(&self, valid: i64) -> sqlx::Result<Option<Lease>> {
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
    pub(super) fn next_term(&self) -> i64 {
        (self.term + 1).max(self.now / 1000)
    }
}

pub(super) async fn found(db: &mut AnyConnection, date: &'static str) -> sqlx::Result<Found> {
    let now = sqlx::query_scalar(date).fetch_one(&mut *db).await?;
    let statement = "SELECT holder, term, expires FROM lease WHERE id = 1";
    let row = sqlx::query(statement).fetch_one(db).await?;
    let (holder, term) = (row.try_get("holder")?, row.try_get("term")?);
    Ok(Found { holder, term, expires: row.try_get("expires")?, now })
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn column(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}
