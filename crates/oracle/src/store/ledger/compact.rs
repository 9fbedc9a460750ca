//! Making what is old shorter.

use super::{
    KEPT, MOST_NOTES, MOST_PAST, ROWS, WHOLE, WINDOW, nanos_of,
    record::{Entry, rows},
    row::RawTopic,
};
use crate::store::{Line, Query, Store, StoreError, row::nanos};
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use std::{collections::BTreeMap, mem};
use thalweg_units::WallTime;
use tokio::time::timeout;

/// The most windows that one call makes shorter, or forgets. In a steady state there is one
/// in 6 h; after a clock that jumped ahead no more than this is lost an hour.
const AT_ONCE: usize = 2;

/// The most changes and disagreements that one call forgets for their age.
const NOTES_AT_ONCE: i64 = 1000;

/// Measurements of one transaction.
const MERGED: usize = 1000;

/// What became of old rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// Measurements that are part of a summary now.
    pub merged: u64,
    /// Rows that are gone.
    pub dropped: u64,
}

/// The values of topics, and the rows that they are in.
type Group = BTreeMap<RawTopic, (Vec<i64>, Vec<i64>)>;
type Merge = (RawTopic, (Vec<i64>, Vec<i64>));

impl Store {
    /// Makes measurements older than two days one row for each topic and 6 h, forgets what
    /// is older than 60 days, and keeps all tables below their bounds. To be called about
    /// once an hour, by one oracle; by several does no harm. Works in short transactions.
    ///
    /// # Errors
    /// [`StoreError`]; what was done before stays done, and nothing counts twice.
    pub async fn compact(&self, now: WallTime) -> Result<Compacted, StoreError> {
        let mut done = Compacted::default();
        for _ in 0..AT_ONCE {
            match self.old_window(now).await? {
                Some(start) => done.merged += self.shorten(start).await?,
                None => break,
            }
        }
        done.dropped += self.forget(now).await?;
        done.dropped += self.bound_summaries().await?;
        done.dropped += self.bound_notes("changes", now).await?;
        done.dropped += self.bound_notes("disagreements", now).await?;
        Ok(done)
    }

    /// Where the oldest window begins that has single measurements, if it is over for long enough.
    async fn old_window(&self, now: WallTime) -> Result<Option<i64>, StoreError> {
        let oldest = "SELECT MIN(measured) FROM measurements";
        let Some(oldest) = self.number(sqlx::query(oldest)).await? else { return Ok(None) };
        let start = oldest - oldest.rem_euclid(nanos_of(WINDOW));
        let end = start.saturating_add(nanos_of(WINDOW));
        Ok((end <= nanos(now).saturating_sub(nanos_of(WHOLE))).then_some(start))
    }

    /// Makes a window's measurements one row for each topic: how many there were. Sender by
    /// sender, so that no more is in memory than one has measured in two days.
    async fn shorten(&self, start: i64) -> Result<u64, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, senders(line.ask(), start)).await;
        let (mut merged, mut group) = (0, Group::new());
        for sender in line.told(asked)? {
            let asked = timeout(line.limit, values(line.ask(), sender, start)).await;
            for (topic, value, seq) in line.told(asked)? {
                let (values, seqs) = group.entry(topic).or_default();
                values.push(value);
                seqs.push(seq);
            }
            if is_enough(&group) {
                merged += self.merge(start, mem::take(&mut group)).await?;
            }
        }
        Ok(merged + self.merge(start, group).await?)
    }

    /// Puts summaries in the place of their rows.
    async fn merge(&self, start: i64, group: Group) -> Result<u64, StoreError> {
        let mut merged = 0;
        let mut topics = group.into_iter();
        loop {
            let part: Vec<_> = topics.by_ref().take(ROWS).collect();
            if part.is_empty() {
                return Ok(merged);
            }
            merged += self.merge_part(start, part).await?;
        }
    }

    /// One transaction. Rows that are gone already were another oracle's to merge: then
    /// nothing of it is done.
    async fn merge_part(&self, start: i64, part: Vec<Merge>) -> Result<u64, StoreError> {
        let (mut entry, mut merged) = (Entry::begin(self).await?, 0);
        for (topic, (mut values, seqs)) in part {
            if take_out(&mut entry, &seqs).await? != seqs.len() as u64 {
                return Ok(0);
            }
            values.sort_unstable();
            entry.run(summary(start, topic, &values)).await?;
            merged += seqs.len() as u64;
        }
        entry.commit().await?;
        Ok(merged)
    }

    /// Forgets summaries that are too old.
    async fn forget(&self, now: WallTime) -> Result<u64, StoreError> {
        let last = nanos(now).saturating_sub(nanos_of(KEPT)).saturating_sub(nanos_of(WINDOW));
        let mut gone = 0;
        for _ in 0..AT_ONCE {
            let statement = "DELETE FROM summaries WHERE start = \
                             (SELECT MIN(start) FROM summaries WHERE start <= $1)";
            gone += self.alone(sqlx::query(statement).bind(last)).await?;
        }
        Ok(gone)
    }

    /// Forgets the oldest windows while there are too many summaries.
    async fn bound_summaries(&self) -> Result<u64, StoreError> {
        let count = self.number(sqlx::query("SELECT COUNT(*) FROM summaries")).await?;
        let excess = u64::try_from(count.unwrap_or(0) - MOST_PAST).unwrap_or(0);
        let mut gone = 0;
        while gone < excess {
            let statement = "DELETE FROM summaries WHERE start = \
                             (SELECT MIN(start) FROM summaries)";
            match self.alone(sqlx::query(statement)).await? {
                0 => break,
                dropped => gone += dropped,
            }
        }
        Ok(gone)
    }

    /// Forgets changes or disagreements that are too old, or too many.
    async fn bound_notes(&self, table: &'static str, now: WallTime) -> Result<u64, StoreError> {
        let text = format!(
            "DELETE FROM {table} WHERE seq <= \
             (SELECT seq FROM {table} ORDER BY seq DESC LIMIT 1 OFFSET $1)"
        );
        let many = self.alone(sqlx::query(AssertSqlSafe(text)).bind(MOST_NOTES)).await?;
        let text = format!(
            "DELETE FROM {table} WHERE seq IN \
             (SELECT seq FROM {table} WHERE happened < $1 ORDER BY seq LIMIT $2)"
        );
        let oldest = nanos(now).saturating_sub(nanos_of(KEPT));
        let query = sqlx::query(AssertSqlSafe(text)).bind(oldest).bind(NOTES_AT_ONCE);
        Ok(many + self.alone(query).await?)
    }

    /// One statement that is a transaction by itself.
    async fn alone(&self, query: Query<'_>) -> Result<u64, StoreError> {
        let _turn = self.ledger_turn().await?;
        self.line().await?.run(query).await
    }

    /// The one number that is asked for.
    async fn number(&self, query: Query<'_>) -> Result<Option<i64>, StoreError> {
        let mut line: Line = self.line().await?;
        let asked = timeout(line.limit, query.fetch_one(line.ask())).await;
        let number = line.told(asked)?.try_get(0);
        line.encoded(number)
    }
}

fn is_enough(group: &Group) -> bool {
    group.len() >= ROWS || group.values().map(|(values, _)| values.len()).sum::<usize>() >= MERGED
}

/// Takes rows out: how many there were.
async fn take_out(entry: &mut Entry<'_>, seqs: &[i64]) -> Result<u64, StoreError> {
    let mut gone = 0;
    for part in seqs.chunks(MERGED) {
        let text = format!("DELETE FROM measurements WHERE seq IN {}", rows(1, part.len()));
        let query = sqlx::query(AssertSqlSafe(text)).persistent(part.len() == 1);
        gone += entry.run(part.iter().fold(query, |query, seq| query.bind(*seq))).await?;
    }
    Ok(gone)
}

/// Adds a summary. Where there is one already, since something late came in, the median of
/// both is taken for their means weighted by count: their rows are gone.
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

/// The middle of sorted values; between the two in the middle, if there are two.
fn median(sorted: &[i64]) -> i64 {
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (None, _) => 0,
        (Some(middle), 1) => *middle,
        (Some(upper), _) => sorted[half - 1] + (upper - sorted[half - 1]) / 2,
    }
}

/// Who has measured in a window.
async fn senders(db: &mut AnyConnection, start: i64) -> sqlx::Result<Vec<i64>> {
    let statement =
        "SELECT DISTINCT sender FROM measurements WHERE measured >= $1 AND measured < $2";
    let end = start.saturating_add(nanos_of(WINDOW));
    sqlx::query_scalar(statement).bind(start).bind(end).fetch_all(db).await
}

/// Topic, value and number of what one has measured in a window.
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
