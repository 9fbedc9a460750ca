//! Reading measurements again.

use super::{
    Change, Disagreement, Past, Sample, WINDOW,
    record::next,
    row::{self, Hosts, RawPast, RawSample},
};
use crate::store::{Store, StoreError, row::nanos};
use sqlx::{AnyConnection, any::AnyRow};
use std::collections::{BTreeMap, btree_map};
use thalweg_units::WallTime;
use tokio::time::timeout;

/// Measurements that are read in one go: some MB.
const PAGE: i64 = 5000;

/// What is known, or new.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    /// Measurements; what is new in the order of recording.
    pub samples: Vec<Sample>,
    /// Changes of nodes, the older first.
    pub changes: Vec<Change>,
    /// Disagreements, the older first.
    pub disagreements: Vec<Disagreement>,
    /// Up to where this is; [`Store::load_since`] goes on from there.
    pub cursor: i64,
}

impl Store {
    /// What was recorded last of each topic, if it is not older than `oldest` (a summary's median
    /// where no single one is left, dated at its window's middle); all changes and
    /// disagreements since. A date may be ahead of the clock, if that was set back since.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_recent(&self, oldest: WallTime) -> Result<Recent, StoreError> {
        let mut newest = BTreeMap::new();
        let mut all = Recent::default();
        loop {
            let page = self.load_since(all.cursor).await?;
            let is_last = page.samples.is_empty();
            newest.extend(page.samples.into_iter().map(|sample| (sample.topic, sample)));
            all.changes.extend(page.changes.into_iter().filter(|c| c.at >= oldest));
            all.disagreements.extend(page.disagreements.into_iter().filter(|d| d.at >= oldest));
            all.cursor = page.cursor;
            if is_last {
                break;
            }
        }
        self.add_summaries(oldest, &mut newest).await?;
        all.samples = newest.into_values().filter(|sample| sample.measured >= oldest).collect();
        Ok(all)
    }

    /// All that was recorded after `cursor`, by whichever oracle, in the order of recording.
    /// A page of 5000 measurements at most, so ask until there are none.
    ///
    /// A database that was restored from a backup may be behind the cursor; it goes back then.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_since(&self, cursor: i64) -> Result<Recent, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, page(line.ask(), cursor)).await;
        line.told(asked)
    }

    /// Takes a summary for each topic that is not there, the newest.
    async fn add_summaries(
        &self,
        oldest: WallTime,
        newest: &mut BTreeMap<super::Topic, Sample>,
    ) -> Result<(), StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, windows(line.ask(), oldest)).await;
        for start in line.told(asked)? {
            let asked = timeout(line.limit, summaries(line.ask(), start)).await;
            for past in line.told(asked)? {
                if let btree_map::Entry::Vacant(place) = newest.entry(past.topic) {
                    place.insert(stand_in(&past));
                }
            }
        }
        Ok(())
    }
}

/// One sample for a summary.
fn stand_in(past: &Past) -> Sample {
    let half = u64::try_from(WINDOW.as_nanos() / 2).unwrap_or(u64::MAX);
    Sample {
        topic: past.topic,
        order: None,
        value: past.median,
        spread: (past.count > 1).then_some((past.most - past.least) / 2.0),
        bytes: 0,
        measured: WallTime::from_unix_nanos(past.start.as_unix_nanos().saturating_add(half)),
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
    // After the rows: so all of them have their hosts.
    let hosts = hosts(db).await?;
    let disagree = |row: &AnyRow| row::disagreement(row, &hosts);
    Ok(Recent {
        samples: samples.iter().map(|s| s.sample(&hosts)).collect::<sqlx::Result<_>>()?,
        changes: changes.iter().map(|c| row::change(c, &hosts)).collect::<sqlx::Result<_>>()?,
        disagreements: disagreements.iter().map(disagree).collect::<sqlx::Result<_>>()?,
        cursor: last,
    })
}

/// The windows that have summaries, the newest first.
async fn windows(db: &mut AnyConnection, oldest: WallTime) -> sqlx::Result<Vec<i64>> {
    let statement = "SELECT DISTINCT start FROM summaries WHERE start > $1 ORDER BY start DESC";
    let oldest = nanos(oldest).saturating_sub(super::nanos_of(WINDOW));
    sqlx::query_scalar(statement).bind(oldest).fetch_all(db).await
}

async fn summaries(db: &mut AnyConnection, start: i64) -> sqlx::Result<Vec<Past>> {
    let statement = "SELECT sender, receiver, metric, method, bound, reporter, start, median, \
                     least, most, count FROM summaries WHERE start = $1";
    let found = sqlx::query(statement).bind(start).fetch_all(&mut *db).await?;
    let hosts = hosts(db).await?;
    found.iter().map(|row| RawPast::read(row)?.past(&hosts)).collect()
}
