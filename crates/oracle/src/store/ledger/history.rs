//! The history of one leg, for tests.

use super::{
    Sample, Summary, WINDOW,
    load::hosts,
    row::{RawSample, RawSummary},
};
use crate::store::{Store, StoreError, row::nanos};
use sqlx::AnyConnection;
use thalweg_units::{NodeId, WallTime};
use tokio::time::timeout;

/// The most rows of each kind that [`Store::history`] returns, the newest.
const MOST_ROWS: i64 = 10_000;

/// See [`Store::history`].
pub(crate) async fn history(
    store: &Store,
    from: &NodeId,
    to: &NodeId,
    since: WallTime,
) -> Result<Vec<Summary>, StoreError> {
    let mut session = store.session().await?;
    let leg = (from.to_string(), to.to_string());
    let asked = timeout(session.limit, summarised(session.start(), &leg, nanos(since))).await;
    let mut history = session.finish(asked)?;
    let asked = timeout(session.limit, single(session.start(), &leg, nanos(since))).await;
    history.extend(session.finish(asked)?);
    Ok(history)
}

/// The summaries of one leg.
async fn summarised(
    db: &mut AnyConnection,
    leg: &(String, String),
    since: i64,
) -> sqlx::Result<Vec<Summary>> {
    let statement = "SELECT sender, receiver, metric, method, bound, reporter, start, median, \
                     least, most, count FROM summaries \
                     WHERE sender = (SELECT id FROM hosts WHERE key = $1) \
                     AND receiver = (SELECT id FROM hosts WHERE key = $2) AND start > $3 \
                     ORDER BY start DESC LIMIT $4";
    let since = since.saturating_sub(super::nanos_of(WINDOW));
    let query = sqlx::query(statement).bind(leg.0.clone()).bind(leg.1.clone()).bind(since);
    let found = query.bind(MOST_ROWS).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found.iter().rev().map(|row| RawSummary::read(row)?.summary(&hosts)).collect()
}

/// The single measurements of one leg.
async fn single(
    db: &mut AnyConnection,
    leg: &(String, String),
    since: i64,
) -> sqlx::Result<Vec<Summary>> {
    let statement = "SELECT seq, sender, receiver, metric, method, bound, reporter, order_id, \
                     value, spread, bytes, measured, seen FROM measurements \
                     WHERE sender = (SELECT id FROM hosts WHERE key = $1) \
                     AND receiver = (SELECT id FROM hosts WHERE key = $2) AND measured >= $3 \
                     ORDER BY measured DESC LIMIT $4";
    let query = sqlx::query(statement).bind(leg.0.clone()).bind(leg.1.clone()).bind(since);
    let found = query.bind(MOST_ROWS).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found
        .iter()
        .rev()
        .map(|row| Ok(summary_of_one(RawSample::read(row)?.sample(&hosts)?)))
        .collect()
}

/// A single measurement as a summary of one.
fn summary_of_one(sample: Sample) -> Summary {
    let Sample { topic, value, measured, .. } = sample;
    Summary { topic, start: measured, median: value, least: value, most: value, count: 1 }
}
