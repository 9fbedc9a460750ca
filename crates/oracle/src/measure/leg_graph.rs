//! The legs as plans use them: a graph that follows the table leg by leg.

use super::{estimate_table::Leg, nodes::Slot};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};
use thalweg_measure::{Bound, Estimate, Metric, Subject, Table};
use thalweg_plan::{
    Graph,
    graph::{MAX_AGE, Sparse, available, leg_rate},
};
use thalweg_units::{Rate, Time};

/// With more changes than this, everything is ranked again, because most relays are affected by then.
const MOST_CHANGED: usize = 4096;

/// The graph is rebuilt from the table after this time, because legs expire, and a full table drops its oldest.
const OLD: Duration = Duration::from_secs(3600);

/// When a leg was measured, s on the service's own clock; negative: before the process began.
pub(super) type MeasuredAt = i32;

/// Legs for which both ends measured only a lower bound: bit/s, and since when.
pub(super) type CappedLegs = BTreeMap<Leg, (f64, Time)>;

/// The legs that changed since the last snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangedLegs {
    All,
    Legs(Vec<Leg>),
}

/// Rates, dates and round-trip times of legs. A clone shares unchanged parts.
#[derive(Clone, Debug)]
pub(super) struct PlannedLegs {
    pub rates: Graph,
    pub born: Sparse<MeasuredAt>,
    /// Round-trip times that senders saw, s.
    pub rtt_s: Sparse<f32>,
}

/// The planned legs, and their changes since the last snapshot.
#[derive(Debug)]
pub(super) struct LegGraph {
    planned: PlannedLegs,
    changed: ChangedLegs,
    /// When the graph was last rebuilt from the table; `None`: a rebuild is due.
    whole: Option<Time>,
}

/// The service's time in seconds.
pub(super) fn seconds(now: Time) -> MeasuredAt {
    MeasuredAt::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(MeasuredAt::MAX)
}

fn born(age: Duration, now: Time) -> MeasuredAt {
    seconds(now) - MeasuredAt::try_from(age.as_secs()).unwrap_or(MeasuredAt::MAX)
}

impl LegGraph {
    /// Creates an empty graph without nodes.
    pub fn new() -> Self {
        let planned =
            PlannedLegs { rates: Graph::new(0), born: Sparse::new(0), rtt_s: Sparse::new(0) };
        Self { planned, changed: ChangedLegs::All, whole: None }
    }

    /// Grows to this number of slots. Legs of removed members are deleted immediately; other legs that only they
    /// reported are deleted at the next snapshot.
    pub fn resize(&mut self, slots: u32, gone: &[Slot]) {
        let nodes = slots as usize;
        self.planned.rates.grow(nodes);
        self.planned.born.grow(nodes);
        self.planned.rtt_s.grow(nodes);
        self.changed = ChangedLegs::All;
        if gone.is_empty() {
            return;
        }
        self.whole = None;
        let PlannedLegs { rates, born, rtt_s } = &mut self.planned;
        for slot in gone.iter().map(|slot| *slot as usize) {
            let outs: BTreeSet<usize> = rates
                .outs(slot)
                .map(|(to, _)| to)
                .chain(rtt_s.outs(slot).map(|(to, _)| to))
                .collect();
            let ins: BTreeSet<usize> = rates
                .ins(slot)
                .map(|(of, _)| of)
                .chain(rtt_s.ins(slot).map(|(of, _)| of))
                .collect();
            let legs = outs.into_iter().map(|to| (slot, to));
            for (from, to) in legs.chain(ins.into_iter().map(|from| (from, slot))) {
                rates.set(from, to, None);
                born.set(from, to, None);
                rtt_s.set(from, to, None);
            }
        }
    }

    /// Makes the next snapshot rebuild the graph from the table.
    pub fn forget(&mut self) {
        self.whole = None;
    }

    /// Updates a leg after the table changed.
    pub fn follow(&mut self, leg: Leg, table: &Table, capped: &CappedLegs, now: Time) {
        let (from, to) = (leg.0 as usize, leg.1 as usize);
        let planned = planned_leg(leg, table, capped, now);
        self.planned.rates.set(from, to, planned.map(|(rate, _)| rate));
        self.planned.born.set(from, to, planned.map(|(_, born)| born));
        match &mut self.changed {
            ChangedLegs::Legs(legs) if legs.len() < MOST_CHANGED => legs.push(leg),
            changed => *changed = ChangedLegs::All,
        }
    }

    /// Notes the round-trip time that a leg's sender saw, s. Invalid values are ignored.
    pub fn note_rtt(&mut self, leg: Leg, rtt_s: f64) {
        if rtt_s.is_finite() && rtt_s > 0.0 {
            self.planned.rtt_s.set(leg.0 as usize, leg.1 as usize, Some(rtt_s as f32));
        }
    }

    /// The planned legs.
    pub const fn planned(&self) -> &PlannedLegs {
        &self.planned
    }

    /// The planned legs, and their changes since the last snapshot.
    pub fn snapshot(
        &mut self,
        table: &Table,
        capped: &CappedLegs,
        now: Time,
    ) -> (PlannedLegs, ChangedLegs) {
        if self.whole.is_none_or(|at| now.since(at) >= OLD) {
            (self.planned.rates, self.planned.born) = whole(table, capped, now);
            self.whole = Some(now);
            self.changed = ChangedLegs::All;
        }
        let changed = std::mem::replace(&mut self.changed, ChangedLegs::Legs(vec![]));
        (self.planned.clone(), changed)
    }
}

/// The planned rate of one leg: as in [`Graph::from_table`], or else from [`CappedLegs`].
fn planned_leg(
    leg: Leg,
    table: &Table,
    capped: &CappedLegs,
    now: Time,
) -> Option<(Rate, MeasuredAt)> {
    let subject = Subject::leg(leg.0, leg.1);
    let latest = |bound| {
        let found = table.latest(subject, Metric::Throughput, bound, now);
        found.filter(|e| e.age <= MAX_AGE)
    };
    let spare = spare(subject, table, now);
    if let Some(exact) = latest(Bound::Exact) {
        let rate = leg_rate(&exact, latest(Bound::AtLeast).as_ref(), spare.as_ref())?;
        return Some((rate, born(exact.age, now)));
    }
    let (bps, at) = capped.get(&leg)?;
    let age = now.since(*at);
    (age <= MAX_AGE).then(|| (of_capped(*bps, age, spare.as_ref()), born(age, now)))
}

/// The youngest available bandwidth that trains found on a leg.
pub(super) fn spare(subject: Subject, table: &Table, now: Time) -> Option<Estimate> {
    let latest = |bound| table.latest(subject, Metric::AvailableBandwidth, bound, now);
    let all = [Bound::Exact, Bound::AtLeast].into_iter().filter_map(latest);
    all.min_by_key(|e| e.age)
}

fn of_capped(bps: f64, age: Duration, spare: Option<&Estimate>) -> Rate {
    available(Rate::from_bps(bps.round() as u64), age, spare)
}

/// All rates and dates. O(entries), on two threads, because the table is locked meanwhile.
fn whole(table: &Table, capped: &CappedLegs, now: Time) -> (Graph, Sparse<MeasuredAt>) {
    let (mut rates, mut dates) = thread::scope(|scope| {
        let dates = scope.spawn(|| dates(table, now));
        let rates = Graph::from_table(table, now);
        (rates, dates.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    for (leg, (bps, at)) in capped.iter().filter(|(_, (_, at))| now.since(*at) <= MAX_AGE) {
        let (from, to) = (leg.0 as usize, leg.1 as usize);
        if rates.rate(from, to).is_none() {
            let spare = spare(Subject::leg(leg.0, leg.1), table, now);
            let rate = of_capped(*bps, now.since(*at), spare.as_ref());
            rates.set(from, to, Some(rate));
            dates.set(from, to, Some(born(now.since(*at), now)));
        }
    }
    (rates, dates)
}

/// The date of each leg's youngest exact value.
fn dates(table: &Table, now: Time) -> Sparse<MeasuredAt> {
    let mut dates = Sparse::new(table.nodes() as usize);
    let is_planned = |e: &Estimate| {
        e.metric == Metric::Throughput && e.bound == Bound::Exact && e.age <= MAX_AGE
    };
    for e in table.iter(now).filter(is_planned) {
        if let Subject::Leg { from, to } = e.subject {
            let (from, to) = (from.node.0 as usize, to.0 as usize);
            let youngest = dates.get(from, to).unwrap_or(MeasuredAt::MIN).max(born(e.age, now));
            dates.set(from, to, Some(youngest));
        }
    }
    dates
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::{Method, NodeIndex};

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    fn enter(table: &mut Table, leg: Leg, mbps: f64, bound: Bound, s: u64, now: Time) {
        let estimate = Estimate {
            subject: Subject::leg(leg.0, leg.1),
            metric: Metric::Throughput,
            value: mbps * 1e6,
            spread: None,
            method: Method::Transfer,
            age: Duration::from_secs(s),
            reporter: NodeIndex(leg.0),
            bound,
        };
        assert!(table.insert(estimate, now).unwrap());
    }

    #[test]
    fn incremental_updates_match_a_rebuild() {
        let (mut table, mut capped) = (Table::new(5, 100), CappedLegs::new());
        let (mut live, now) = (LegGraph::new(), at(100));
        live.resize(5, &[]);
        assert_eq!(live.snapshot(&table, &capped, now).1, ChangedLegs::All);
        let values = [(0, 1, 5.0, 900), (1, 2, 7.0, 60), (4, 0, 9.0, 2_000_000), (2, 3, 1.0, 50)];
        for (from, to, mbps, age) in values {
            enter(&mut table, (from, to), mbps, Bound::Exact, age, now);
            live.follow((from, to), &table, &capped, now);
        }
        enter(&mut table, (0, 1), 6.0, Bound::AtLeast, 10, now);
        enter(&mut table, (3, 4), 6.0, Bound::AtLeast, 10, now);
        capped.insert((4, 3), (8e6, at(40)));
        for leg in [(0, 1), (3, 4), (4, 3)] {
            live.follow(leg, &table, &capped, now);
        }
        let (planned, changed) = live.snapshot(&table, &capped, now);
        assert_eq!(
            (&planned.rates, &planned.born),
            (&whole(&table, &capped, now).0, &live.planned.born)
        );
        assert_eq!(planned.born, whole(&table, &capped, now).1);
        assert_eq!(planned.rates.rate(0, 1), Some(Rate::from_bps(6_000_000)), "raised");
        assert_eq!((planned.rates.measured(), planned.born.get(0, 1)), (4, Some(-800)));
        assert_eq!(
            changed,
            ChangedLegs::Legs(vec![(0, 1), (1, 2), (4, 0), (2, 3), (0, 1), (3, 4), (4, 3)])
        );
        assert_eq!(live.snapshot(&table, &capped, now).1, ChangedLegs::Legs(vec![]));
    }

    #[test]
    fn incremental_updates_apply_available_bandwidth_like_a_rebuild() {
        let (mut table, mut capped) = (Table::new(3, 100), CappedLegs::new());
        let (mut live, now) = (LegGraph::new(), at(1000));
        live.resize(3, &[]);
        live.snapshot(&table, &capped, now);
        enter(&mut table, (0, 1), 8.0, Bound::Exact, 900, now);
        capped.insert((1, 2), (8e6, at(100)));
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            let found = Estimate {
                subject: Subject::leg(from, to),
                metric: Metric::AvailableBandwidth,
                value: 3e6,
                spread: Some(1e6),
                method: Method::Train,
                age: Duration::from_secs(10),
                reporter: NodeIndex(from),
                bound: Bound::Exact,
            };
            assert!(table.insert(found, now).unwrap());
            live.follow((from, to), &table, &capped, now);
        }
        let rate = |from, to| live.planned().rates.rate(from, to).map(Rate::as_bps);
        assert_eq!([rate(0, 1), rate(1, 2), rate(2, 0)], [Some(3_000_000), Some(3_000_000), None]);
        assert_eq!(live.planned().rates, whole(&table, &capped, now).0);
        // After an hour, trains' results no longer count.
        let later = now + OLD;
        assert_eq!(whole(&table, &capped, later).0.rate(0, 1), Some(Rate::from_bps(8_000_000)));
    }

    #[test]
    fn expired_legs_disappear_within_an_hour() {
        let (mut table, capped) = (Table::new(3, 100), CappedLegs::new());
        let mut live = LegGraph::new();
        live.resize(3, &[]);
        let old = MAX_AGE.as_secs() - 60;
        enter(&mut table, (0, 1), 5.0, Bound::Exact, old, at(100));
        live.follow((0, 1), &table, &capped, at(100));
        assert_eq!(live.snapshot(&table, &capped, at(100)).0.rates.measured(), 1);
        let (planned, changed) = live.snapshot(&table, &capped, at(100) + OLD);
        assert_eq!((planned.rates.measured(), changed), (0, ChangedLegs::All));
    }

    #[test]
    fn invalid_round_trip_times_and_removed_members_are_ignored() {
        let mut live = LegGraph::new();
        live.resize(3, &[]);
        for (leg, rtt_s) in [((0, 1), 0.02), ((1, 2), f64::NAN), ((2, 0), -1.0), ((2, 1), 0.5)] {
            live.note_rtt(leg, rtt_s);
        }
        assert_eq!(live.planned().rtt_s.pairs(), 2);
        live.resize(3, &[0]);
        assert_eq!(
            (live.planned().rtt_s.get(0, 1), live.planned().rtt_s.get(2, 1)),
            (None, Some(0.5))
        );
    }
}
