//! The table of estimates.

use crate::{Bound, Estimate, EstimateError, Method, Metric, NodeIndex, Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_units::Time;
use thiserror::Error;

/// The subject, metric and bound of an entry.
///
/// The bound is part of it, so that a lower bound never replaces an exact value.
type Topic = (Subject, Metric, Bound);

/// The key of an entry: one estimate is kept for each topic, method and reporter.
///
/// The second element is `Some` in every entry. `None` sorts before all of them, so a search for a topic starts there.
type Key = (Topic, Option<(Method, NodeIndex)>);

/// When a measurement ended, ns on this process's clock; negative: before its epoch.
type BirthTime = i128;

/// The newest estimates of `n` nodes' legs, paths and interfaces; bounded.
///
/// All operations are logarithmic in the number of entries.
#[derive(Clone, Debug)]
pub struct Table {
    nodes: u32,
    capacity: usize,
    entries: BTreeMap<Key, (BirthTime, Estimate)>,
    by_age: BTreeSet<(BirthTime, Key)>,
}

/// An estimate that the table did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum TableError {
    /// Its numbers are invalid.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// A node index at or above the table's `n`.
    #[error("node {} is not one of this table's {nodes} nodes", node.0)]
    Node {
        node: NodeIndex,
        /// The table's `n`.
        nodes: u32,
    },
}

impl Table {
    /// Creates an empty table for nodes `0..nodes` that keeps at most `capacity` estimates.
    ///
    /// For full knowledge of all legs, `capacity` is about `nodes · (nodes − 1) · interfaces · k`, where k is the
    /// number of estimates kept per leg: one for each metric, bound, method and reporter in use. Throughput that only
    /// the sender reports has k = 3: a transfer, which is exact, and an observed transfer, which is exact or a lower
    /// bound. A full table evicts its oldest estimate.
    pub const fn new(nodes: u32, capacity: usize) -> Self {
        Self { nodes, capacity, entries: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// Extends the table to `nodes` nodes and `capacity` estimates; neither number shrinks.
    pub fn grow(&mut self, nodes: u32, capacity: usize) {
        self.nodes = self.nodes.max(nodes);
        self.capacity = self.capacity.max(capacity);
    }

    /// The number of nodes.
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The number of estimates.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts an estimate, with its age as of `now`. Returns whether the table holds it afterwards.
    ///
    /// An estimate that is not newer than the present one with the same key is ignored, so the order of arrival does
    /// not matter.
    ///
    /// # Errors
    /// [`TableError`]; the table is unchanged.
    pub fn insert(&mut self, estimate: Estimate, now: Time) -> Result<bool, TableError> {
        estimate.check()?;
        let nodes = self.nodes;
        if let Some(node) = nodes_of(&estimate).find(|n| n.0 >= nodes) {
            return Err(TableError::Node { node, nodes });
        }
        let e = &estimate;
        let key = ((e.subject, e.metric, e.bound), Some((e.method, e.reporter)));
        let born = i128::from(now.as_nanos()) - nanos(e.age);
        match self.entries.get(&key) {
            Some((known, _)) if *known >= born => return Ok(false),
            Some((known, _)) => _ = self.by_age.remove(&(*known, key)),
            None => {}
        }
        self.entries.insert(key, (born, estimate));
        self.by_age.insert((born, key));
        self.evict();
        Ok(self.entries.contains_key(&key))
    }

    fn evict(&mut self) {
        while self.entries.len() > self.capacity {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }

    /// Removes the estimates for which `keep` returns false; `keep` sees each with its age at `now`.
    pub fn retain(&mut self, now: Time, mut keep: impl FnMut(&Estimate) -> bool) {
        let by_age = &mut self.by_age;
        self.entries.retain(|key, (born, e)| {
            let kept = keep(&aged(*born, e, now));
            kept || !by_age.remove(&(*born, *key))
        });
    }

    /// The newest estimate with this bound, by any reporter and method, with its age at `now`.
    pub fn latest(
        &self,
        subject: Subject,
        metric: Metric,
        bound: Bound,
        now: Time,
    ) -> Option<Estimate> {
        let topic = (subject, metric, bound);
        let (born, e) = self
            .entries
            .range((topic, None)..)
            .take_while(|(key, _)| key.0 == topic)
            .map(|(_, entry)| entry)
            .max_by_key(|(born, _)| *born)?;
        Some(aged(*born, e, now))
    }

    /// All estimates with their ages at `now`, in the order of their subjects.
    pub fn iter(&self, now: Time) -> impl Iterator<Item = Estimate> {
        self.entries.values().map(move |(born, e)| aged(*born, e, now))
    }
}

fn nodes_of(e: &Estimate) -> impl Iterator<Item = NodeIndex> {
    e.subject.nodes().chain([e.reporter])
}

fn nanos(d: Duration) -> i128 {
    i128::try_from(d.as_nanos()).unwrap_or(i128::MAX / 2)
}

fn aged(born: BirthTime, e: &Estimate, now: Time) -> Estimate {
    let age = (i128::from(now.as_nanos()) - born).max(0);
    Estimate { age: Duration::from_nanos(u64::try_from(age).unwrap_or(u64::MAX)), ..e.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_nanos(1_000_000_000);

    fn estimate(from: u32, to: u32, value: f64, age_s: u64) -> Estimate {
        Estimate {
            subject: Subject::leg(from, to),
            metric: Metric::Throughput,
            value,
            spread: None,
            method: Method::Transfer,
            age: Duration::from_secs(age_s),
            reporter: NodeIndex(from),
            bound: Bound::Exact,
        }
    }

    fn latest(table: &Table, from: u32, to: u32, now: Time) -> Option<Estimate> {
        table.latest(Subject::leg(from, to), Metric::Throughput, Bound::Exact, now)
    }

    #[test]
    fn the_newest_stays_in_any_order_of_arrival() {
        let mut table = Table::new(3, 10);
        assert_eq!(table.insert(estimate(0, 1, 5.0, 60), NOW), Ok(true));
        assert_eq!(table.insert(estimate(0, 1, 7.0, 30), NOW), Ok(true));
        assert_eq!(table.insert(estimate(0, 1, 9.0, 90), NOW), Ok(false));
        let got = latest(&table, 0, 1, NOW).unwrap();
        assert_eq!((got.value, got.age), (7.0, Duration::from_secs(30)));
        assert_eq!(latest(&table, 1, 0, NOW), None);
    }

    #[test]
    fn ages_grow_with_the_clock_even_from_before_its_epoch() {
        let mut table = Table::new(3, 10);
        table.insert(estimate(0, 1, 5.0, 86_400), NOW).unwrap();
        let later = NOW + Duration::from_secs(3600);
        assert_eq!(latest(&table, 0, 1, later).unwrap().age, Duration::from_secs(90_000));
    }

    #[test]
    fn a_lower_bound_does_not_replace_the_exact_value() {
        let mut table = Table::new(3, 10);
        table.insert(estimate(0, 1, 100.0, 60), NOW).unwrap();
        let pressed = Estimate { bound: Bound::AtLeast, ..estimate(0, 1, 1.0, 0) };
        assert_eq!(table.insert(pressed, NOW), Ok(true));
        assert_eq!(latest(&table, 0, 1, NOW).unwrap().value, 100.0);
    }

    #[test]
    fn the_newest_of_all_reporters_and_methods_is_returned() {
        let mut table = Table::new(3, 10);
        table.insert(estimate(0, 1, 1.0, 60), NOW).unwrap();
        let told = Estimate { reporter: NodeIndex(2), ..estimate(0, 1, 2.0, 20) };
        let train = Estimate { method: Method::Train, ..estimate(0, 1, 3.0, 40) };
        table.insert(told, NOW).unwrap();
        table.insert(train, NOW).unwrap();
        assert_eq!(latest(&table, 0, 1, NOW).unwrap().value, 2.0);
        assert_eq!(table.iter(NOW).count(), 3);
    }

    #[test]
    fn unknown_nodes_and_invalid_numbers_are_refused() {
        let mut table = Table::new(3, 10);
        let error = table.insert(estimate(0, 3, 1.0, 0), NOW).unwrap_err();
        assert_eq!(error, TableError::Node { node: NodeIndex(3), nodes: 3 });
        assert!(table.insert(estimate(0, 1, f64::NAN, 0), NOW).is_err());
        assert!(table.is_empty());
    }

    #[test]
    fn removed_estimates_are_gone_and_can_be_inserted_again() {
        let mut table = Table::new(3, 10);
        table.insert(estimate(0, 1, 1.0, 60), NOW).unwrap();
        table.insert(estimate(0, 2, 2.0, 20), NOW).unwrap();
        table.retain(NOW, |e| e.age < Duration::from_secs(30));
        assert_eq!((table.len(), table.by_age.len()), (1, 1));
        assert_eq!(latest(&table, 0, 1, NOW), None);
        assert_eq!(table.insert(estimate(0, 1, 3.0, 60), NOW), Ok(true));
    }

    #[test]
    fn a_table_grows_and_keeps_its_estimates() {
        let mut table = Table::new(2, 1);
        table.insert(estimate(0, 1, 5.0, 60), NOW).unwrap();
        table.grow(3, 2);
        assert_eq!(table.insert(estimate(0, 2, 7.0, 60), NOW), Ok(true));
        assert_eq!((table.nodes(), table.len()), (3, 2));
        table.grow(1, 1);
        assert_eq!((table.nodes(), table.len()), (3, 2), "it does not shrink");
    }

    proptest! {
        /// Compares with a simple model: sort all by age, keep the newest.
        #[test]
        fn a_full_table_keeps_the_newest(ages in prop::collection::vec(0u64..1000, 1..60)) {
            let mut table = Table::new(64, 8);
            for (i, age) in ages.iter().enumerate() {
                table.insert(estimate(i as u32, 63, 1.0, *age), NOW).unwrap();
            }
            let mut kept: Vec<_> = table.iter(NOW).map(|e| e.age.as_secs()).collect();
            let mut expected = ages.clone();
            kept.sort_unstable();
            expected.sort_unstable();
            expected.truncate(8);
            prop_assert_eq!(kept, expected);
            prop_assert_eq!(table.by_age.len(), table.len());
        }
    }
}
