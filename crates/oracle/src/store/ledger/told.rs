//! What was kept of one leg, as tests look at it.

use super::{
    Past, Sample, WINDOW,
    load::hosts,
    row::{RawPast, RawSample},
};
use crate::store::{Store, StoreError, row::nanos};
use sqlx::AnyConnection;
use thalweg_units::{NodeId, WallTime};
use tokio::time::timeout;

/// The most rows of each kind that [`Store::history`] gives, the newest.
const TOLD: i64 = 10_000;

impl Store {
    /// What a leg was like since then: summaries, then single measurements, the older first;
    /// of each the newest 10,000.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn history(
        &self,
        from: &NodeId,
        to: &NodeId,
        since: WallTime,
    ) -> Result<Vec<Past>, StoreError> {
        let mut line = self.line().await?;
        let leg = (from.to_string(), to.to_string());
        let asked = timeout(line.limit, summarised(line.ask(), &leg, nanos(since))).await;
        let mut told = line.told(asked)?;
        let asked = timeout(line.limit, single(line.ask(), &leg, nanos(since))).await;
        told.extend(line.told(asked)?);
        Ok(told)
    }
}

/// The summaries of one leg.
async fn summarised(
    db: &mut AnyConnection,
    leg: &(String, String),
    since: i64,
) -> sqlx::Result<Vec<Past>> {
    let statement = "SELECT sender, receiver, metric, method, bound, reporter, start, median, \
                     least, most, count FROM summaries \
                     WHERE sender = (SELECT id FROM hosts WHERE key = $1) \
                     AND receiver = (SELECT id FROM hosts WHERE key = $2) AND start > $3 \
                     ORDER BY start DESC LIMIT $4";
    let since = since.saturating_sub(super::nanos_of(WINDOW));
    let query = sqlx::query(statement).bind(leg.0.clone()).bind(leg.1.clone()).bind(since);
    let found = query.bind(TOLD).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found.iter().rev().map(|row| RawPast::read(row)?.past(&hosts)).collect()
}

/// The single measurements of one leg.
async fn single(
    db: &mut AnyConnection,
    leg: &(String, String),
    since: i64,
) -> sqlx::Result<Vec<Past>> {
    let statement = "SELECT seq, sender, receiver, metric, method, bound, reporter, order_id, \
                     value, spread, bytes, measured, seen FROM measurements \
                     WHERE sender = (SELECT id FROM hosts WHERE key = $1) \
                     AND receiver = (SELECT id FROM hosts WHERE key = $2) AND measured >= $3 \
                     ORDER BY measured DESC LIMIT $4";
    let query = sqlx::query(statement).bind(leg.0.clone()).bind(leg.1.clone()).bind(since);
    let found = query.bind(TOLD).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found.iter().rev().map(|row| Ok(alone(RawSample::read(row)?.sample(&hosts)?))).collect()
}

/// A measurement that stands for itself.
fn alone(sample: Sample) -> Past {
    let Sample { topic, value, measured, .. } = sample;
    Past { topic, start: measured, median: value, least: value, most: value, count: 1 }
}
