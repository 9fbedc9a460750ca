//! The election lease: one row, valid by the database's own clock.
//!
//! The hosts' clocks do not matter: an oracle whose clock differs cannot take the lease too early. If the database's
//! own clock is set back, a lease whose remaining validity is far beyond any that is granted counts as expired.

use super::row::unreadable;
use sqlx::{AnyConnection, Row as _};
use std::time::Duration;
use thalweg_units::NodeId;

/// A valid lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The oracle that holds it, by its node's key.
    pub holder: NodeId,
    /// The lease's number. Every later grant, also to the same holder, has a greater one.
    pub term: u64,
    /// The remaining validity.
    pub left: Duration,
}

/// The outcome of a request for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// Granted, with this term.
    Won(u64),
    /// Another oracle has it.
    Held(Lease),
}

/// A lease that is valid for more than this many times the requested validity counts as expired: the database's clock
/// was set back.
const FAR: i64 = 10;

/// The lease's row; times in ms.
pub(super) struct LeaseRow {
    pub(super) holder: String,
    pub(super) term: i64,
    pub(super) expires: i64,
    pub(super) now: i64,
}

impl LeaseRow {
    /// The lease, if it is valid. `valid` is the validity of a new lease, ms.
    pub(super) fn lease(&self, valid: i64) -> sqlx::Result<Option<Lease>> {
        let left = self.expires - self.now;
        if self.holder.is_empty() || left <= 0 || left > valid.saturating_mul(FAR) {
            return Ok(None);
        }
        let holder = self.holder.parse().map_err(|_| unreadable("holder"))?;
        let term = u64::try_from(self.term).map_err(|_| unreadable("term"))?;
        let left = Duration::from_millis(left.unsigned_abs());
        Ok(Some(Lease { holder, term, left }))
    }

    /// A term above all earlier ones, and at least the date in seconds, so that a database restored from a backup does
    /// not grant a term twice.
    pub(super) fn next_term(&self) -> i64 {
        (self.term + 1).max(self.now / 1000)
    }
}

pub(super) async fn read_lease(
    db: &mut AnyConnection,
    date: &'static str,
) -> sqlx::Result<LeaseRow> {
    let now = sqlx::query_scalar(date).fetch_one(&mut *db).await?;
    let statement = "SELECT holder, term, expires FROM lease WHERE id = 1";
    let row = sqlx::query(statement).fetch_one(db).await?;
    let (holder, term) = (row.try_get("holder")?, row.try_get("term")?);
    Ok(LeaseRow { holder, term, expires: row.try_get("expires")?, now })
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn column(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}
