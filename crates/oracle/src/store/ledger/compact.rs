//! Merging and deletion of old rows.

use super::{
    KEPT, MOST_NOTES, MOST_SUMMARIES, ROWS, SAMPLES_KEPT, WINDOW, nanos_of,
    record::{LedgerWrite, rows},
    row::RawTopic,
};
use crate::store::{Query, Session, Store, StoreError, row::nanos};
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use std::{collections::BTreeMap, mem};
use thalweg_units::WallTime;
use tokio::time::timeout;

/// The most windows that one call merges, and the most it deletes. In a steady state there is one per 6 h; after a
/// clock jumped ahead, no more than this is lost per hour.
const AT_ONCE: usize = 2;

/// The most changes, and the most disagreements, that one call deletes for their age.
const NOTES_AT_ONCE: i64 = 1000;

/// Measurements of one transaction.
const MERGED: usize = 1000;

/// The result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// Measurements that were merged into summaries.
    pub merged: u64,
    /// Rows that were deleted.
    pub dropped: u64,
}

/// The values of each topic, and the numbers of their rows.
type Group = BTreeMap<RawTopic, (Vec<i64>, Vec<i64>)>;
type Merge = (RawTopic, (Vec<i64>, Vec<i64>));

/// See [`Store::compact`].
pub(crate) async fn compact(store: &Store, now: WallTime) -> Result<Compacted, StoreError> {
    let mut done = Compacted::default();
    for _ in 0..AT_ONCE {
        match old_window(store, now).await? {
            Some(start) => done.merged += summarise_window(store, start).await?,
            None => break,
        }
    }
    done.dropped += drop_old_summaries(store, now).await?;
    done.dropped += bound_summaries(store).await?;
    done.dropped += bound_notes(store, "changes", now).await?;
    done.dropped += bound_notes(store, "disagreements", now).await?;
    Ok(done)
}

/// The start of the oldest window with single measurements, if it ended long enough ago.
async fn old_window(store: &Store, now: WallTime) -> Result<Option<i64>, StoreError> {
    let oldest = "SELECT MIN(measured) FROM measurements";
    let Some(oldest) = query_number(store, sqlx::query(oldest)).await? else { return Ok(None) };
    let start = oldest - oldest.rem_euclid(nanos_of(WINDOW));
    let end = start.saturating_add(nanos_of(WINDOW));
    Ok((end <= nanos(now).saturating_sub(nanos_of(SAMPLES_KEPT))).then_some(start))
}

/// Merges a window's measurements into one row for each topic. Returns how many were merged. Proceeds sender by sender,
/// so that no more is in memory than one sender measured in the window.
async fn summarise_window(store: &Store, start: i64) -> Result<u64, StoreError> {
    let mut session = store.session().await?;
    let asked = timeout(session.limit, senders(session.start(), start)).await;
    let (mut merged, mut group) = (0, Group::new());
    for sender in session.finish(asked)? {
        let asked = timeout(session.limit, values(session.start(), sender, start)).await;
        for (topic, value, seq) in session.finish(asked)? {
            let (values, seqs) = group.entry(topic).or_default();
            values.push(value);
            seqs.push(seq);
        }
        if is_enough(&group) {
            merged += merge(store, start, mem::take(&mut group)).await?;
        }
    }
    Ok(merged + merge(store, start, group).await?)
}

/// Replaces rows by summaries.
async fn merge(store: &Store, start: i64, group: Group) -> Result<u64, StoreError> {
    let mut merged = 0;
    let mut topics = group.into_iter();
    loop {
        let part: Vec<_> = topics.by_ref().take(ROWS).collect();
        if part.is_empty() {
            return Ok(merged);
        }
        merged += merge_part(store, start, part).await?;
    }
}

/// Merges topics in one transaction. If rows are already gone, another oracle has merged them, and nothing is done.
async fn merge_part(store: &Store, start: i64, part: Vec<Merge>) -> Result<u64, StoreError> {
    let (mut entry, mut merged) = (LedgerWrite::begin(store).await?, 0);
    for (topic, (mut values, seqs)) in part {
        if delete_rows(&mut entry, &seqs).await? != seqs.len() as u64 {
            return Ok(0);
        }
        values.sort_unstable();
        entry.run(summary(start, topic, &values)).await?;
        merged += seqs.len() as u64;
    }
    entry.commit().await?;
    Ok(merged)
}

/// Deletes summaries that are too old.
async fn drop_old_summaries(store: &Store, now: WallTime) -> Result<u64, StoreError> {
    let last = nanos(now).saturating_sub(nanos_of(KEPT)).saturating_sub(nanos_of(WINDOW));
    let mut gone = 0;
    for _ in 0..AT_ONCE {
        let statement = "DELETE FROM summaries WHERE start = \
                         (SELECT MIN(start) FROM summaries WHERE start <= $1)";
        gone += run_alone(store, sqlx::query(statement).bind(last)).await?;
    }
    Ok(gone)
}

/// Deletes the oldest windows while there are too many summaries.
async fn bound_summaries(store: &Store) -> Result<u64, StoreError> {
    let count = query_number(store, sqlx::query("SELECT COUNT(*) FROM summaries")).await?;
    let excess = u64::try_from(count.unwrap_or(0) - MOST_SUMMARIES).unwrap_or(0);
    let mut gone = 0;
    while gone < excess {
        let statement = "DELETE FROM summaries WHERE start = \
                         (SELECT MIN(start) FROM summaries)";
        match run_alone(store, sqlx::query(statement)).await? {
            0 => break,
            dropped => gone += dropped,
        }
    }
    Ok(gone)
}

/// Deletes changes or disagreements that are too old or too many.
async fn bound_notes(store: &Store, table: &'static str, now: WallTime) -> Result<u64, StoreError> {
    let text = format!(
        "DELETE FROM {table} WHERE seq <= \
         (SELECT seq FROM {table} ORDER BY seq DESC LIMIT 1 OFFSET $1)"
    );
    let many = run_alone(store, sqlx::query(AssertSqlSafe(text)).bind(MOST_NOTES)).await?;
    let text = format!(
        "DELETE FROM {table} WHERE seq IN \
         (SELECT seq FROM {table} WHERE happened < $1 ORDER BY seq LIMIT $2)"
    );
    let oldest = nanos(now).saturating_sub(nanos_of(KEPT));
    let query = sqlx::query(AssertSqlSafe(text)).bind(oldest).bind(NOTES_AT_ONCE);
    Ok(many + run_alone(store, query).await?)
}

/// Runs one statement as a transaction of its own.
async fn run_alone(store: &Store, query: Query<'_>) -> Result<u64, StoreError> {
    let _turn = store.ledger_turn().await?;
    store.session().await?.run(query).await
}

async fn query_number(store: &Store, query: Query<'_>) -> Result<Option<i64>, StoreError> {
    let mut session: Session = store.session().await?;
    let asked = timeout(session.limit, query.fetch_one(session.start())).await;
    let number = session.finish(asked)?.try_get(0);
    session.encoded(number)
}

fn is_enough(group: &Group) -> bool {
    group.len() >= ROWS || group.values().map(|(values, _)| values.len()).sum::<usize>() >= MERGED
}

/// Deletes rows. Returns how many existed.
async fn delete_rows(entry: &mut LedgerWrite<'_>, seqs: &[i64]) -> Result<u64, StoreError> {
    let mut gone = 0;
    for part in seqs.chunks(MERGED) {
        let text = format!("DELETE FROM measurements WHERE seq IN {}", rows(1, part.len()));
        let query = sqlx::query(AssertSqlSafe(text)).persistent(part.len() == 1);
        gone += entry.run(part.iter().fold(query, |query, seq| query.bind(*seq))).await?;
    }
    Ok(gone)
}

/// Adds a summary. If one exists because some measurements arrived late, the merged median is the mean of both medians
/// weighted by count, since the first ones' rows are gone.
fn summary(start: i64, topic: RawTopic, sorted: &[i64]) -> Query<'static> {
    let statement = "INSERT INTO summaries (sender, receiver, metric, method, bound, reporter, \
                     start, median, least, most, count) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
                     ON CONFLICT (sender, receiver, metric, method, bound, reporter, start) \
                     DO UPDATE SET \
                     median = summaries.median + (excluded.median - summaries.median) \
                     / (summaries.count + excluded.count) * excluded.count, \
                     least = CASE WHEN excluded.least < summaries.least \
                     THEN excluded.least ELSE summaries.least END, \
                     most = CASE WHEN excluded.most > summaries.most \
                     THEN excluded.most ELSE summaries.most END, \
                     count = summaries.count + excluded.count";
    sqlx::query(statement)
        .bind(topic.sender)
        .bind(topic.receiver)
        .bind(topic.metric)
        .bind(topic.method)
        .bind(topic.bound)
        .bind(topic.reporter)
        .bind(start)
        .bind(median(sorted))
        .bind(sorted.first().copied().unwrap_or(0))
        .bind(sorted.last().copied().unwrap_or(0))
        .bind(sorted.len() as i64)
}

/// The median of sorted values; the mean of the two middle ones if their number is even.
fn median(sorted: &[i64]) -> i64 {
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (None, _) => 0,
        (Some(middle), 1) => *middle,
        (Some(upper), _) => sorted[half - 1] + (upper - sorted[half - 1]) / 2,
    }
}

/// The senders with measurements in a window.
async fn senders(db: &mut AnyConnection, start: i64) -> sqlx::Result<Vec<i64>> {
    let statement =
        "SELECT DISTINCT sender FROM measurements WHERE measured >= $1 AND measured < $2";
    let end = start.saturating_add(nanos_of(WINDOW));
    sqlx::query_scalar(statement).bind(start).bind(end).fetch_all(db).await
}

/// Topic, value and number of each measurement of one sender in a window.
async fn values(
    db: &mut AnyConnection,
    sender: i64,
    start: i64,
) -> sqlx::Result<Vec<(RawTopic, i64, i64)>> {
    let statement = "SELECT seq, sender, receiver, metric, method, bound, reporter, value \
                     FROM measurements WHERE sender = $1 AND measured >= $2 AND measured < $3";
    let end = start.saturating_add(nanos_of(WINDOW));
    let found = sqlx::query(statement).bind(sender).bind(start).bind(end).fetch_all(db).await?;
    let read = |row| Ok((RawTopic::read(row)?, row.try_get("value")?, row.try_get("seq")?));
    found.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_and_does_not_overflow() {
        assert_eq!(median(&[1, 5, 9]), 5);
        assert_eq!(median(&[1, 5, 6, 9]), 5);
        assert_eq!(median(&[7]), 7);
        assert_eq!(median(&[i64::MAX - 2, i64::MAX]), i64::MAX - 1);
        assert_eq!(median(&[]), 0);
    }
}
