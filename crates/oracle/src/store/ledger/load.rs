//! Reading of measurements.

use super::{
    Disagreement, NodeChange, Sample, Summary, WINDOW,
    record::next,
    row::{self, Hosts, RawSample, RawSummary},
};
use crate::store::{Store, StoreError, row::nanos};
use sqlx::{AnyConnection, any::AnyRow};
use std::collections::{BTreeMap, btree_map};
use thalweg_units::WallTime;
use tokio::time::timeout;

/// Measurements per page: a few MB.
const PAGE: i64 = 5000;

/// Entries read from the ledger.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    /// Measurements; from [`Store::load_since`] in the order of recording.
    pub samples: Vec<Sample>,
    /// Changes of nodes, the oldest first.
    pub changes: Vec<NodeChange>,
    /// Disagreements, the oldest first.
    pub disagreements: Vec<Disagreement>,
    /// The position up to which these entries reach; [`Store::load_since`] continues from there.
    pub cursor: i64,
}

/// See [`Store::load_recent`].
pub(crate) async fn load_recent(store: &Store, oldest: WallTime) -> Result<Recent, StoreError> {
    let mut newest = BTreeMap::new();
    let mut all = Recent::default();
    loop {
        let page = load_since(store, all.cursor).await?;
        let is_last = page.samples.is_empty();
        newest.extend(page.samples.into_iter().map(|sample| (sample.topic, sample)));
        all.changes.extend(page.changes.into_iter().filter(|c| c.at >= oldest));
        all.disagreements.extend(page.disagreements.into_iter().filter(|d| d.at >= oldest));
        all.cursor = page.cursor;
        if is_last {
            break;
        }
    }
    add_summaries(store, oldest, &mut newest).await?;
    all.samples = newest.into_values().filter(|sample| sample.measured >= oldest).collect();
    Ok(all)
}

/// See [`Store::load_since`].
pub(crate) async fn load_since(store: &Store, cursor: i64) -> Result<Recent, StoreError> {
    let mut session = store.session().await?;
    let asked = timeout(session.limit, page(session.start(), cursor)).await;
    session.finish(asked)
}

/// Adds the newest summary of each topic that has no sample.
async fn add_summaries(
    store: &Store,
    oldest: WallTime,
    newest: &mut BTreeMap<super::Topic, Sample>,
) -> Result<(), StoreError> {
    let mut session = store.session().await?;
    let asked = timeout(session.limit, windows(session.start(), oldest)).await;
    for start in session.finish(asked)? {
        let asked = timeout(session.limit, summaries(session.start(), start)).await;
        for summary in session.finish(asked)? {
            if let btree_map::Entry::Vacant(place) = newest.entry(summary.topic) {
                place.insert(sample_of_summary(&summary));
            }
        }
    }
    Ok(())
}

/// A sample that represents a summary.
fn sample_of_summary(summary: &Summary) -> Sample {
    let half = u64::try_from(WINDOW.as_nanos() / 2).unwrap_or(u64::MAX);
    Sample {
        topic: summary.topic,
        order: None,
        value: summary.median,
        spread: (summary.count > 1).then_some((summary.most - summary.least) / 2.0),
        bytes: 0,
        measured: WallTime::from_unix_nanos(summary.start.as_unix_nanos().saturating_add(half)),
        seen: None,
    }
}

pub(super) async fn hosts(db: &mut AnyConnection) -> sqlx::Result<Hosts> {
    Hosts::read(&sqlx::query("SELECT id, key FROM hosts").fetch_all(db).await?)
}

async fn page(db: &mut AnyConnection, cursor: i64) -> sqlx::Result<Recent> {
    let end = next(&mut *db).await?;
    let last = end - 1;
    if last <= cursor {
        return Ok(Recent { cursor: last, ..Recent::default() });
    }
    let samples = "SELECT seq, sender, receiver, metric, method, bound, reporter, order_id, \
                   value, spread, bytes, measured, seen FROM measurements \
                   WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3";
    let samples = sqlx::query(samples).bind(cursor).bind(last).bind(PAGE);
    let samples = samples.fetch_all(&mut *db).await?;
    let samples: Vec<_> = samples.iter().map(RawSample::read).collect::<sqlx::Result<_>>()?;
    let last = match samples.last() {
        Some(sample) if samples.len() as i64 >= PAGE => sample.seq,
        _ => last,
    };
    let changes = "SELECT node, state, why, happened FROM changes \
                   WHERE seq > $1 AND seq <= $2 ORDER BY seq";
    let changes = sqlx::query(changes).bind(cursor).bind(last).fetch_all(&mut *db).await?;
    let disagreements = "SELECT sender, receiver, claimant, claimed, seen, believed, happened \
                         FROM disagreements WHERE seq > $1 AND seq <= $2 ORDER BY seq";
    let disagreements = sqlx::query(disagreements).bind(cursor).bind(last);
    let disagreements = disagreements.fetch_all(&mut *db).await?;
    // Read after the rows, so that all their hosts are included.
    let hosts = hosts(db).await?;
    let disagree = |row: &AnyRow| row::disagreement(row, &hosts);
    Ok(Recent {
        samples: samples.iter().map(|s| s.sample(&hosts)).collect::<sqlx::Result<_>>()?,
        changes: changes.iter().map(|c| row::change(c, &hosts)).collect::<sqlx::Result<_>>()?,
        disagreements: disagreements.iter().map(disagree).collect::<sqlx::Result<_>>()?,
        cursor: last,
    })
}

/// The starts of the windows that have summaries, the newest first.
async fn windows(db: &mut AnyConnection, oldest: WallTime) -> sqlx::Result<Vec<i64>> {
    let statement = "SELECT DISTINCT start FROM summaries WHERE start > $1 ORDER BY start DESC";
    let oldest = nanos(oldest).saturating_sub(super::nanos_of(WINDOW));
    sqlx::query_scalar(statement).bind(oldest).fetch_all(db).await
}

async fn summaries(db: &mut AnyConnection, start: i64) -> sqlx::Result<Vec<Summary>> {
    let statement = "SELECT sender, receiver, metric, method, bound, reporter, start, median, \
                     least, most, count FROM summaries WHERE start = $1";
    let found = sqlx::query(statement).bind(start).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found.iter().map(|row| RawSummary::read(row)?.summary(&hosts)).collect()
}
