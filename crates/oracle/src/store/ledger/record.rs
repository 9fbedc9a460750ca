//! Storing of measurements.

use super::{
    Batch, Disagreement, MOST_SAMPLES, NodeChange, ROWS, Recorded, Sample,
    row::{RawSample, state, whole},
};
use crate::store::{Query, Session, Store, StoreError, row::nanos};
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_measure::Metric;
use thalweg_units::NodeId;
use tokio::{sync::MutexGuard, time::timeout};

/// The longest reason that is stored, characters.
const WHY: usize = 300;

type Numbers = BTreeMap<NodeId, i64>;

/// See [`Store::record`].
pub(crate) async fn record(store: &Store, batch: &Batch) -> Result<Recorded, StoreError> {
    let mut samples = batch.samples.chunks(ROWS);
    let mut changes = batch.changes.chunks(ROWS);
    let mut disagreements = batch.disagreements.chunks(ROWS);
    let mut done = Recorded::default();
    loop {
        let part = BatchPart {
            samples: samples.next().unwrap_or_default(),
            changes: changes.next().unwrap_or_default(),
            disagreements: disagreements.next().unwrap_or_default(),
        };
        if part.is_empty() {
            return Ok(done);
        }
        let new = record_part(store, &part).await?;
        done.samples += new;
        done.duplicates += part.samples.len() - new;
    }
}

/// Stores a part in one transaction. Returns the number of new measurements.
async fn record_part(store: &Store, part: &BatchPart<'_>) -> Result<usize, StoreError> {
    let mut entry = LedgerWrite::begin(store).await?;
    let hosts = entry.hosts(&part.hosts()).await?;
    let new = entry.samples(part.samples, &hosts).await?;
    entry.changes(part.changes, &hosts).await?;
    entry.disagreements(part.disagreements, &hosts).await?;
    entry.commit().await?;
    Ok(new)
}

struct BatchPart<'a> {
    samples: &'a [Sample],
    changes: &'a [NodeChange],
    disagreements: &'a [Disagreement],
}

impl BatchPart<'_> {
    fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.changes.is_empty() && self.disagreements.is_empty()
    }

    fn hosts(&self) -> BTreeSet<NodeId> {
        let samples = self.samples.iter().map(|s| &s.topic);
        let of_samples = samples.flat_map(|t| [t.from, t.to, t.reporter]);
        let of_changes = self.changes.iter().map(|c| c.node);
        let of_others = self.disagreements.iter().flat_map(|d| [d.from, d.to, d.by]);
        of_samples.chain(of_changes).chain(of_others).collect()
    }
}

/// A write transaction on the ledger, the only one at a time.
pub(super) struct LedgerWrite<'a> {
    session: Session,
    next: i64,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> LedgerWrite<'a> {
    /// Begins a transaction, alone in this process and among all writers of the ledger.
    pub async fn begin(store: &'a Store) -> Result<Self, StoreError> {
        let turn = store.ledger_turn().await?;
        let mut session = store.session().await?;
        session.begin().await?;
        session.run(sqlx::query("UPDATE ledger SET id = 1 WHERE id = 1")).await?;
        let asked = timeout(session.limit, next(session.start())).await;
        let next = session.finish(asked)?;
        Ok(Self { session, next, _turn: turn })
    }

    /// Runs a statement; returns the number of changed rows.
    pub async fn run(&mut self, query: Query<'_>) -> Result<u64, StoreError> {
        self.session.run(query).await
    }

    /// Saves the next number with the rows; without this call, nothing is changed.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let next = sqlx::query("UPDATE ledger SET next = $1 WHERE id = 1").bind(self.next);
        self.run(next).await?;
        self.session.commit().await
    }

    fn numbered(&mut self) -> i64 {
        let seq = self.next;
        self.next += 1;
        seq
    }

    /// The numbers of these hosts. New hosts get one.
    async fn hosts(&mut self, keys: &BTreeSet<NodeId>) -> Result<Numbers, StoreError> {
        let asked = timeout(self.session.limit, numbers(self.session.start(), keys)).await;
        let (mut known, last) = self.session.finish(asked)?;
        let new = keys.iter().filter(|key| !known.contains_key(*key)).copied();
        let new: Vec<(NodeId, i64)> = new.zip(last + 1..).collect();
        if !new.is_empty() {
            let text = format!("INSERT INTO hosts (key, id) VALUES {}", rows(new.len(), 2));
            let mut query = sqlx::query(AssertSqlSafe(text)).persistent(false);
            for (key, number) in &new {
                query = query.bind(key.to_string()).bind(*number);
            }
            self.run(query).await?;
        }
        known.extend(new);
        Ok(known)
    }

    /// Inserts samples. Returns how many were new.
    async fn samples(&mut self, samples: &[Sample], hosts: &Numbers) -> Result<usize, StoreError> {
        if samples.is_empty() {
            return Ok(0);
        }
        let text = format!(
            "INSERT INTO measurements (seq, sender, receiver, metric, method, bound, reporter, \
             order_id, value, spread, bytes, measured, seen) VALUES {} \
             ON CONFLICT (order_id, reporter) DO NOTHING",
            rows(samples.len(), 13)
        );
        let mut query = sqlx::query(AssertSqlSafe(text)).persistent(samples.len() == 1);
        for sample in samples {
            let seq = self.numbered();
            let row = self.session.encoded(RawSample::of(sample, seq, hosts))?;
            query = bound(query, row);
        }
        let new = self.run(query).await?;
        let oldest = self.next - 1 - MOST_SAMPLES;
        let trim = sqlx::query("DELETE FROM measurements WHERE seq <= $1").bind(oldest);
        self.run(trim).await?;
        Ok(usize::try_from(new).unwrap_or(0))
    }

    async fn changes(&mut self, changes: &[NodeChange], hosts: &Numbers) -> Result<(), StoreError> {
        let statement = "INSERT INTO changes (seq, node, state, why, happened) \
                         VALUES ($1, $2, $3, $4, $5)";
        for change in changes {
            let why: String = change.why.chars().take(WHY).filter(|c| *c != '\0').collect();
            let query = sqlx::query(statement)
                .bind(self.numbered())
                .bind(hosts.get(&change.node).copied())
                .bind(state(change.state))
                .bind(why)
                .bind(nanos(change.at));
            self.run(query).await?;
        }
        Ok(())
    }

    async fn disagreements(
        &mut self,
        disagreements: &[Disagreement],
        hosts: &Numbers,
    ) -> Result<(), StoreError> {
        let statement = "INSERT INTO disagreements \
                         (seq, sender, receiver, claimant, claimed, seen, believed, happened) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let rate = |value: f64| whole(value, Metric::Throughput);
        for entry in disagreements {
            let query = sqlx::query(statement)
                .bind(self.numbered())
                .bind(hosts.get(&entry.from).copied())
                .bind(hosts.get(&entry.to).copied())
                .bind(hosts.get(&entry.by).copied())
                .bind(rate(entry.claimed))
                .bind(entry.seen.map(rate))
                .bind(entry.believed.map(rate))
                .bind(nanos(entry.at));
            self.run(query).await?;
        }
        Ok(())
    }
}

fn bound(query: Query<'_>, row: RawSample) -> Query<'_> {
    query
        .bind(row.seq)
        .bind(row.topic.sender)
        .bind(row.topic.receiver)
        .bind(row.topic.metric)
        .bind(row.topic.method)
        .bind(row.topic.bound)
        .bind(row.topic.reporter)
        .bind(row.order)
        .bind(row.value)
        .bind(row.spread)
        .bind(row.bytes)
        .bind(row.measured)
        .bind(row.seen)
}

/// The number of the next row.
pub(super) async fn next(db: &mut AnyConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT next FROM ledger WHERE id = 1").fetch_one(db).await
}

/// The numbers of those hosts that have one, and the greatest number in use.
async fn numbers(db: &mut AnyConnection, keys: &BTreeSet<NodeId>) -> sqlx::Result<(Numbers, i64)> {
    let last = "SELECT COALESCE(MAX(id), 0) FROM hosts";
    let last: i64 = sqlx::query_scalar(last).fetch_one(&mut *db).await?;
    let text = format!("SELECT id, key FROM hosts WHERE key IN {}", rows(1, keys.len()));
    let mut query = sqlx::query(AssertSqlSafe(text)).persistent(false);
    for key in keys {
        query = query.bind(key.to_string());
    }
    let found = query.fetch_all(db).await?;
    let pair = |row| Ok((crate::store::row::parsed(row, "key")?, row.try_get("id")?));
    Ok((found.iter().map(pair).collect::<sqlx::Result<_>>()?, last))
}

/// Placeholders of `count` rows of `width` values: `($1,$2),($3,$4)`.
pub(super) fn rows(count: usize, width: usize) -> String {
    let row = |n: usize| {
        let row: Vec<_> = (1..=width).map(|column| format!("${}", n * width + column)).collect();
        format!("({})", row.join(","))
    };
    (0..count).map(row).collect::<Vec<_>>().join(",")
}
