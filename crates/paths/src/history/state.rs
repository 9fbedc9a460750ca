//! The estimates of paths and the blames of relays. Pure.

use super::{HistoryEntry, PathObservation, QuarantinedRelay, blame::Blames};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_measure::{Bound, Estimate, Method, Metric, NodeIndex, Subject, Table};
use thalweg_plan::selection::Prior;
use thalweg_units::{PathId, Time, WallTime};

/// The most estimates, the oldest dropped first: two or three for each path to each origin.
pub(super) const MAX_ESTIMATES: usize = 2_000;

/// The greatest age of a prior. UKAIRO (§2): 79.6 % of detours still help after one day.
pub(super) const VALID: Duration = Duration::from_secs(24 * 3600);

/// The greatest age of an estimate. Older ones would only show which servers the user contacted.
pub(super) const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The most bytes of a name or a reason: a host's name has 253.
pub(super) const MAX_TEXT: usize = 300;

/// The host itself, which is the only reporter here.
const SELF: NodeIndex = NodeIndex(0);

/// A change: something learned, or forgotten at the user's request.
#[derive(Clone, Debug)]
pub(super) enum HistoryChange {
    /// A path to an origin was observed.
    Learn(String, PathObservation, WallTime),
    /// A relay must not be used to an origin for now.
    Quarantine(QuarantinedRelay),
    /// A relay may be used again.
    Lift(String),
    /// Everything is forgotten.
    Clear,
}

/// A table of estimates of named paths.
///
/// The table's clock is the wall clock, because the table outlives processes. Ages are never negative, and
/// [`HistoryState::settle`] corrects dates in the future, which a fast clock leaves behind.
#[derive(Clone, Debug)]
pub(super) struct HistoryState {
    pub(super) table: Table,
    /// The index of each path, by origin and path.
    pub(super) names: BTreeMap<(String, String), PathId>,
    pub(super) blames: Blames,
}

impl Default for HistoryState {
    fn default() -> Self {
        let table = Table::new(1, MAX_ESTIMATES);
        Self { table, names: BTreeMap::new(), blames: Blames::default() }
    }
}

impl HistoryState {
    /// Applies a change at `now`, after [`HistoryState::settle`] with the same `now`.
    pub(super) fn apply(&mut self, change: &HistoryChange, now: WallTime) {
        match change {
            HistoryChange::Learn(origin, seen, at) => self.learn(origin, seen, *at, now),
            HistoryChange::Quarantine(blame) => {
                self.blames.add(QuarantinedRelay { since: blame.since.min(now), ..blame.clone() });
            }
            HistoryChange::Lift(relay) => self.blames.lift(relay),
            HistoryChange::Clear => *self = Self::default(),
        }
    }

    /// Sets dates after `now` to `now`, and removes entries that are too old or have no name.
    pub(super) fn settle(&mut self, now: WallTime) {
        let mut table = Table::new(1, MAX_ESTIMATES);
        let mut in_use = BTreeSet::new();
        let named: BTreeSet<_> = self.names.values().map(|id| Subject::Path(*id)).collect();
        let kept = |e: &Estimate| e.age <= KEPT && named.contains(&e.subject);
        for estimate in self.table.iter(clock(now)).filter(kept) {
            in_use.insert(estimate.subject);
            // It was valid when it was first inserted.
            _ = table.insert(estimate, clock(now));
        }
        self.table = table;
        self.names.retain(|_, id| in_use.contains(&Subject::Path(*id)));
        self.blames.settle(now);
    }

    /// The expectation of a path; see [`super::History::prior`].
    pub(super) fn prior(&self, origin: &str, path: &str, now: WallTime) -> Option<Prior> {
        let id = *self.names.get(&(origin.to_owned(), path.to_owned()))?;
        let rate = self.rate(id, VALID, now)?.rate()?;
        let setup = self.setup(id, VALID, now)?;
        Some(Prior { rate, setup })
    }

    /// All entries, by origin and path.
    pub(super) fn entries(&self, now: WallTime) -> Vec<HistoryEntry> {
        let entry = |((origin, path), id): (&(String, String), &PathId)| {
            let rate = self.rate(*id, VALID, now).or_else(|| self.rate(*id, KEPT, now))?;
            Some(HistoryEntry {
                origin: origin.clone(),
                path: path.clone(),
                rate: rate.rate()?,
                bound: rate.bound,
                setup: self.setup(*id, KEPT, now),
                age: rate.age,
                is_valid: rate.age <= VALID,
            })
        };
        self.names.iter().filter_map(entry).collect()
    }

    /// The best estimate of a path's rate that is not older than `oldest`. A lower bound counts if there is no exact
    /// value, or if it is newer and higher.
    fn rate(&self, id: PathId, oldest: Duration, now: WallTime) -> Option<Estimate> {
        let known = |bound| self.known(id, Metric::Throughput, bound, oldest, now);
        match (known(Bound::Exact), known(Bound::AtLeast)) {
            (Some(exact), Some(least)) if least.age < exact.age && least.value > exact.value => {
                Some(least)
            }
            (exact, least) => exact.or(least),
        }
    }

    fn setup(&self, id: PathId, oldest: Duration, now: WallTime) -> Option<Duration> {
        let setup = self.known(id, Metric::Setup, Bound::Exact, oldest, now)?;
        Duration::try_from_secs_f64(setup.value).ok()
    }

    fn known(
        &self,
        id: PathId,
        metric: Metric,
        bound: Bound,
        oldest: Duration,
        now: WallTime,
    ) -> Option<Estimate> {
        let found = self.table.latest(Subject::Path(id), metric, bound, clock(now));
        found.filter(|e| e.age <= oldest)
    }

    fn learn(&mut self, origin: &str, seen: &PathObservation, at: WallTime, now: WallTime) {
        let age = age(at, now);
        if age > KEPT || seen.path.len() > MAX_TEXT || origin.len() > MAX_TEXT {
            return;
        }
        let Some(id) = self.id(origin, &seen.path) else { return };
        let rate = seen.rate.as_bps() as f64;
        self.merge(estimate(id, Metric::Throughput, seen.bound, rate, age), now);
        let setup = seen.setup.as_secs_f64();
        self.merge(estimate(id, Metric::Setup, Bound::Exact, setup, age), now);
    }

    /// The path's index; a new one if it has none.
    fn id(&mut self, origin: &str, path: &str) -> Option<PathId> {
        let key = (origin.to_owned(), path.to_owned());
        let next = self.names.values().map(|id| id.0).max().map_or(Some(0), |id| id.checked_add(1));
        match self.names.get(&key) {
            Some(id) => Some(*id),
            None => {
                let id = PathId(next?);
                self.names.insert(key, id);
                Some(id)
            }
        }
    }

    /// Merges a new sample: the result is the mean of it and the known value (UKAIRO §3.2.2, "averaging its current
    /// score with the new value"), unless that is too old to be a prior. Lower bounds are not averaged: the larger one
    /// is kept, and exact values are not changed by them.
    fn merge(&mut self, new: Estimate, now: WallTime) {
        let Subject::Path(id) = new.subject else { return };
        let mut merged = new.clone();
        if let Some(old) = self.known(id, new.metric, new.bound, VALID, now) {
            merged.age = old.age.min(new.age);
            match new.bound {
                Bound::Exact => merged.value = f64::midpoint(old.value, new.value),
                Bound::AtLeast if old.value > new.value => return,
                Bound::AtLeast => {}
            }
        }
        let same =
            |e: &Estimate| (e.subject, e.metric, e.bound) == (new.subject, new.metric, new.bound);
        self.table.retain(clock(now), |e| !same(e));
        // Rates and durations are finite and not negative.
        _ = self.table.insert(merged, clock(now));
    }
}

/// The scheme, host and port of a URL. User, path and query are private and not kept.
pub(super) fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}").to_ascii_lowercase())
}

/// Converts wall-clock time to the table's time.
pub(super) fn clock(now: WallTime) -> Time {
    Time::from_nanos(now.as_unix_nanos())
}

/// How long ago `then` was; zero if it is in the future, as after a correction of the clock.
pub(super) fn age(then: WallTime, now: WallTime) -> Duration {
    clock(now).since(clock(then))
}

fn estimate(id: PathId, metric: Metric, bound: Bound, value: f64, age: Duration) -> Estimate {
    Estimate {
        subject: Subject::Path(id),
        metric,
        value,
        spread: None,
        method: Method::Passive,
        age,
        reporter: SELF,
        bound,
    }
}
