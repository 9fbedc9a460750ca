//! Conversion between rows and values: whole numbers, words, and short numbers of hosts.

use super::{Disagreement, NodeChange, NodeState, Sample, Summary, Topic};
use crate::store::row::{nanos, unreadable};
use serde::{Deserialize, Serialize, de::IntoDeserializer as _, de::value::Error};
use sqlx::{Row as _, any::AnyRow};
use std::collections::BTreeMap;
use thalweg_measure::Metric;
use thalweg_units::{NodeId, WallTime};

/// A topic with short host numbers and the columns' words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawTopic {
    pub sender: i64,
    pub receiver: i64,
    pub metric: String,
    pub method: String,
    pub bound: String,
    pub reporter: i64,
}

impl RawTopic {
    /// Reads the columns of a topic, without a check of their values.
    pub fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            sender: row.try_get("sender")?,
            receiver: row.try_get("receiver")?,
            metric: row.try_get("metric")?,
            method: row.try_get("method")?,
            bound: row.try_get("bound")?,
            reporter: row.try_get("reporter")?,
        })
    }

    /// Encodes a topic; fails if one of its hosts has no number.
    pub fn of(topic: &Topic, hosts: &BTreeMap<NodeId, i64>) -> sqlx::Result<Self> {
        let number = |key: &NodeId| hosts.get(key).copied().ok_or_else(|| unreadable("host"));
        Ok(Self {
            sender: number(&topic.from)?,
            receiver: number(&topic.to)?,
            metric: word(&topic.metric)?,
            method: word(&topic.method)?,
            bound: word(&topic.bound)?,
            reporter: number(&topic.reporter)?,
        })
    }

    /// Decodes the topic; fails on unknown hosts and words.
    pub fn topic(&self, hosts: &Hosts) -> sqlx::Result<Topic> {
        Ok(Topic {
            from: hosts.key(self.sender)?,
            to: hosts.key(self.receiver)?,
            metric: parsed(&self.metric, "metric")?,
            method: parsed(&self.method, "method")?,
            bound: parsed(&self.bound, "bound")?,
            reporter: hosts.key(self.reporter)?,
        })
    }
}

/// The keys of hosts by short number.
#[derive(Debug, Default)]
pub(super) struct Hosts(pub BTreeMap<i64, NodeId>);

impl Hosts {
    /// Reads rows of `hosts`.
    pub fn read(rows: &[AnyRow]) -> sqlx::Result<Self> {
        let host = |row: &AnyRow| Ok((row.try_get("id")?, crate::store::row::parsed(row, "key")?));
        rows.iter().map(host).collect::<sqlx::Result<_>>().map(Self)
    }

    /// The host with this number; an error if there is none.
    pub fn key(&self, number: i64) -> sqlx::Result<NodeId> {
        self.0.get(&number).copied().ok_or_else(|| unreadable("host"))
    }
}

/// A row of `measurements`.
#[derive(Clone, Debug)]
pub(super) struct RawSample {
    pub seq: i64,
    pub topic: RawTopic,
    pub order: Option<i64>,
    pub value: i64,
    pub spread: Option<i64>,
    pub bytes: i64,
    pub measured: i64,
    pub seen: Option<i64>,
}

impl RawSample {
    /// Reads the columns of a sample, without a check of their values.
    pub fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            seq: row.try_get("seq")?,
            topic: RawTopic::read(row)?,
            order: row.try_get("order_id")?,
            value: row.try_get("value")?,
            spread: row.try_get("spread")?,
            bytes: row.try_get("bytes")?,
            measured: row.try_get("measured")?,
            seen: row.try_get("seen")?,
        })
    }

    /// Encodes a sample; fails if one of its hosts has no number.
    pub fn of(sample: &Sample, seq: i64, hosts: &BTreeMap<NodeId, i64>) -> sqlx::Result<Self> {
        let metric = sample.topic.metric;
        let whole = |value: f64| whole(value, metric);
        Ok(Self {
            seq,
            topic: RawTopic::of(&sample.topic, hosts)?,
            order: sample.order.map(column),
            value: whole(sample.value),
            spread: sample.spread.map(whole),
            bytes: column(sample.bytes),
            measured: nanos(sample.measured),
            seen: sample.seen.map(whole),
        })
    }

    /// Decodes the sample; fails on unknown hosts and words.
    pub fn sample(&self, hosts: &Hosts) -> sqlx::Result<Sample> {
        let topic = self.topic.topic(hosts)?;
        let real = |value: i64| real(value, topic.metric);
        Ok(Sample {
            topic,
            order: self.order.map(number),
            value: real(self.value),
            spread: self.spread.map(real),
            bytes: number(self.bytes),
            measured: date(self.measured),
            seen: self.seen.map(real),
        })
    }
}

/// A row of `summaries`.
#[derive(Clone, Debug)]
pub(super) struct RawSummary {
    pub topic: RawTopic,
    pub start: i64,
    pub median: i64,
    pub least: i64,
    pub most: i64,
    pub count: i64,
}

impl RawSummary {
    /// Reads the columns of a summary, without a check of their values.
    pub fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            topic: RawTopic::read(row)?,
            start: row.try_get("start")?,
            median: row.try_get("median")?,
            least: row.try_get("least")?,
            most: row.try_get("most")?,
            count: row.try_get("count")?,
        })
    }

    /// Decodes the summary; fails on unknown hosts and words.
    pub fn summary(&self, hosts: &Hosts) -> sqlx::Result<Summary> {
        let topic = self.topic.topic(hosts)?;
        let real = |value| real(value, topic.metric);
        let (median, least, most) = (real(self.median), real(self.least), real(self.most));
        let (start, count) = (date(self.start), number(self.count));
        Ok(Summary { topic, start, median, least, most, count })
    }
}

pub(super) fn change(row: &AnyRow, hosts: &Hosts) -> sqlx::Result<NodeChange> {
    let state: String = row.try_get("state")?;
    let state = match state.as_str() {
        DOWN => NodeState::Down,
        UP => NodeState::Up,
        _ => return Err(unreadable("state")),
    };
    let (node, why) = (hosts.key(row.try_get("node")?)?, row.try_get("why")?);
    Ok(NodeChange { node, state, why, at: date(row.try_get("happened")?) })
}

const DOWN: &str = "down";
const UP: &str = "up";

pub(super) fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Down => DOWN,
        NodeState::Up => UP,
    }
}

pub(super) fn disagreement(row: &AnyRow, hosts: &Hosts) -> sqlx::Result<Disagreement> {
    let rate = |column: &str| -> sqlx::Result<Option<f64>> {
        let whole: Option<i64> = row.try_get(column)?;
        Ok(whole.map(|value| real(value, Metric::Throughput)))
    };
    Ok(Disagreement {
        from: hosts.key(row.try_get("sender")?)?,
        to: hosts.key(row.try_get("receiver")?)?,
        by: hosts.key(row.try_get("claimant")?)?,
        claimed: rate("claimed")?.ok_or_else(|| unreadable("claimed"))?,
        seen: rate("seen")?,
        believed: rate("believed")?,
        at: date(row.try_get("happened")?),
    })
}

/// The number of column units per unit of the metric: bit/s stay bit/s, seconds become ns, fractions become 10⁻⁹.
fn scale(metric: Metric) -> f64 {
    match metric.unit() {
        "bit/s" => 1.0,
        _ => 1e9,
    }
}

/// A value as stored in its column, saturating.
pub(super) fn whole(value: f64, metric: Metric) -> i64 {
    (value * scale(metric)).round() as i64
}

pub(super) fn real(value: i64, metric: Metric) -> f64 {
    value as f64 / scale(metric)
}

/// A count as stored in its column, saturating.
fn column(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

pub(super) fn date(nanos: i64) -> WallTime {
    WallTime::from_unix_nanos(number(nanos))
}

/// The word that represents a value, the same as in JSON.
pub(super) fn word(value: &impl Serialize) -> sqlx::Result<String> {
    let json = serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(json.trim_matches('"').to_owned())
}

pub(super) fn parsed<T: for<'de> Deserialize<'de>>(
    word: &str,
    column: &'static str,
) -> sqlx::Result<T> {
    T::deserialize(word.into_deserializer()).map_err(|_: Error| unreadable(column))
}
