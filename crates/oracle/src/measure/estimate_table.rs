//! The table of estimates, with the nodes that vouch for them.

use super::{
    leg_graph::{CappedLegs, ChangedLegs, LegGraph, PlannedLegs, seconds, spare},
    nodes::Slot,
    verdict::{self, RateVerdict},
};
use crate::streams::LegEstimates;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_measure::{Bound, Estimate, MAX_SPARE_AGE, Method, Metric, NodeIndex, Subject, Table};
use thalweg_units::Time;

/// A leg: sender and receiver.
pub(super) type Leg = (Slot, Slot);

/// The most estimates, some 400 B each: a million legs (1 % of those between 10,000 nodes) and half as much again for
/// lower bounds and second reporters.
const MOST: usize = 1_500_000;

/// The most disagreements to keep. Beyond that the oldest is forgotten.
const DISPUTES: usize = 1000;

/// The most legs with passive claims that wait for the other end's. Beyond that all are forgotten, which only costs the
/// pending comparisons.
const PASSIVE: usize = 100_000;

/// Passive claims of both ends within this time count as claims about the same state of the leg.
const SAME: Duration = Duration::from_secs(120);

/// Available bandwidth: bit/s, half the range's width, whether it is a lower bound, the time.
type Available = (f64, f64, bool, Time);

/// Contradicting reports on one leg.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dispute {
    pub leg: Leg,
    /// The end that claims more.
    pub by: Slot,
    /// The higher rate, bit/s.
    pub claimed: f64,
    /// The rate that the other end saw, bit/s.
    pub seen: Option<f64>,
    /// The rate that entered the table, bit/s.
    pub believed: Option<f64>,
    pub at: Time,
}

/// An entry for the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableEntry {
    pub leg: Leg,
    pub bps: f64,
    pub spread: Option<f64>,
    pub method: Method,
    pub bound: Bound,
    pub reporter: Slot,
    /// Whether the reporter alone vouches for it.
    pub is_sole: bool,
    pub at: Time,
}

impl TableEntry {
    /// Whether plans use the entry: an exact value, or a lower bound that both ends of a measurement vouch for, where
    /// there is no exact value. A leg so fast that its bytes end before the rate is steady has nothing else.
    pub fn is_planned(&self) -> bool {
        self.bound == Bound::Exact || (!self.is_sole && self.method == Method::Transfer)
    }
}

/// The record of one node.
#[derive(Clone, Copy, Debug, Default)]
struct ReporterRecord {
    /// Its two fastest agreed legs with two different peers: the peer, and bit/s.
    fastest: [Option<(Slot, f64)>; 2],
    agreed: f64,
    disputed: f64,
}

impl ReporterRecord {
    /// The rate that two peers have seen. One peer alone may collude with the node.
    fn shown(&self) -> Option<f64> {
        self.fastest[1].map(|(_, bps)| bps)
    }

    fn show(&mut self, peer: Slot, bps: f64) {
        let other = |(who, _): &(Slot, f64)| *who != peer;
        let mut all: Vec<_> = self.fastest.into_iter().flatten().collect();
        let known = all.iter().find(|entry| !other(entry)).map_or(0.0, |(_, bps)| *bps);
        all.retain(other);
        all.push((peer, bps.max(known)));
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.fastest = [all.first().copied(), all.get(1).copied()];
    }

    /// Counts a judgement. Old ones count less and less.
    fn judge(&mut self, is_disputed: bool) {
        if self.agreed + self.disputed >= 200.0 {
            self.agreed /= 2.0;
            self.disputed /= 2.0;
        }
        *if is_disputed { &mut self.disputed } else { &mut self.agreed } += 1.0;
    }

    /// The trust in a node: 1 as long as at most a quarter of its claims are disputed, 0 from three quarters on. Four
    /// agreed claims are assumed to begin with. An honest node among honest ones is disputed only by liars.
    fn trust(&self) -> f64 {
        let share = self.disputed / (self.agreed + self.disputed + 4.0);
        (1.5 - 2.0 * share).clamp(0.0, 1.0)
    }
}

/// A passive claim: bit/s, whether it is a lower bound, the time.
type PassiveClaim = (f64, bool, Time);

/// The estimates of legs, and the records of their reporters.
#[derive(Debug)]
pub(super) struct EstimateTable {
    table: Table,
    /// Lower bounds that both ends measured, bit/s, for legs without an exact value since; see
    /// [`TableEntry::is_planned`].
    capped: CappedLegs,
    /// The legs as plans use them.
    live: LegGraph,
    records: Vec<ReporterRecord>,
    disputes: VecDeque<Dispute>,
    passive: BTreeMap<Leg, [Option<PassiveClaim>; 2]>,
    changes: u64,
    /// The slot of this oracle's own node, which is the reporter of entries of both ends.
    own: Slot,
}

impl EstimateTable {
    /// Creates an empty table without nodes.
    pub fn new() -> Self {
        Self {
            table: Table::new(0, 0),
            capped: CappedLegs::new(),
            live: LegGraph::new(),
            records: vec![],
            disputes: VecDeque::new(),
            passive: BTreeMap::new(),
            changes: 0,
            own: 0,
        }
    }

    /// Grows to this number of slots, and forgets the data of removed members.
    pub fn resize(&mut self, slots: u32, gone: &[Slot], now: Time) {
        let pairs = u64::from(slots) * u64::from(slots);
        let capacity = usize::try_from(4 * pairs).unwrap_or(MOST).clamp(1024, MOST);
        self.table.grow(slots, capacity);
        self.records.resize(slots as usize, ReporterRecord::default());
        self.live.resize(slots, gone);
        self.changes += 1;
        if gone.is_empty() {
            return;
        }
        let is_gone = |slot: Slot| gone.contains(&slot);
        let in_leg = |leg: &Leg| is_gone(leg.0) || is_gone(leg.1);
        self.table
            .retain(now, |e| !e.subject.nodes().chain([e.reporter]).any(|node| is_gone(node.0)));
        self.capped.retain(|leg, _| !in_leg(leg));
        self.passive.retain(|leg, _| !in_leg(leg));
        self.disputes.retain(|d| !in_leg(&d.leg));
        for slot in gone {
            self.records[*slot as usize] = ReporterRecord::default();
        }
    }

    /// Sets the slot of this oracle's own node.
    pub fn set_own(&mut self, own: Slot) {
        self.own = own;
    }

    /// The slot of this oracle's own node.
    pub fn own(&self) -> Slot {
        self.own
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// A number that grows with every change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The legs as plans use them.
    pub fn live(&self) -> &LegGraph {
        &self.live
    }

    /// The legs as plans use them, and the changes since the last call.
    pub fn snapshot(&mut self, now: Time) -> (PlannedLegs, ChangedLegs) {
        self.live.snapshot(&self.table, &self.capped, now)
    }

    /// Makes the next snapshot rebuild everything from the table. For experiments.
    pub fn forget_snapshot(&mut self) {
        self.live.forget();
    }

    /// Notes the round-trip time that a leg's sender saw, s.
    pub fn note_rtt(&mut self, leg: Leg, rtt_s: f64) {
        self.live.note_rtt(leg, rtt_s);
    }

    /// Disagreements, the newest last.
    pub fn disputes(&self) -> impl DoubleEndedIterator<Item = &Dispute> {
        self.disputes.iter()
    }

    /// The trust in a node, 0 to 1.
    pub fn trust(&self, slot: Slot) -> f64 {
        self.records.get(slot as usize).map_or(1.0, ReporterRecord::trust)
    }

    /// A rate that at least two peers have seen of a node, bit/s.
    pub fn shown(&self, slot: Slot) -> Option<f64> {
        self.records.get(slot as usize).and_then(ReporterRecord::shown)
    }

    /// The youngest exact throughput of the leg.
    pub fn exact(&self, leg: Leg, now: Time) -> Option<Estimate> {
        self.table.latest(Subject::leg(leg.0, leg.1), Metric::Throughput, Bound::Exact, now)
    }

    /// Adds an entry. Returns false if the table has a younger one.
    pub fn enter(&mut self, entry: &TableEntry, now: Time) -> bool {
        let estimate = Estimate {
            subject: Subject::leg(entry.leg.0, entry.leg.1),
            metric: Metric::Throughput,
            value: entry.bps,
            spread: entry.spread,
            method: entry.method,
            age: now.since(entry.at),
            reporter: NodeIndex(entry.reporter),
            bound: entry.bound,
        };
        // Invalid numbers and nodes were refused before, so an error cannot occur.
        let is_news = self.table.insert(estimate, now).unwrap_or(false);
        if is_news {
            self.changes += 1;
            self.vouch(entry);
            self.live.follow(entry.leg, &self.table, &self.capped, now);
        }
        is_news
    }

    fn vouch(&mut self, entry: &TableEntry) {
        match entry.bound {
            Bound::Exact => _ = self.capped.remove(&entry.leg),
            Bound::AtLeast if entry.is_planned() => {
                self.capped.insert(entry.leg, (entry.bps, entry.at));
            }
            _ => return,
        }
        self.show(entry);
    }

    fn show(&mut self, entry: &TableEntry) {
        let (from, to) = entry.leg;
        for (node, peer) in [(from, to), (to, from)] {
            self.records[node as usize].show(peer, entry.bps);
        }
    }

    /// Judges an ordered measurement by the ends' reports. `is_there`: whether the end without a report, if there is
    /// one, is present and could have reported.
    pub fn judge(
        &mut self,
        leg: Leg,
        sender: Option<f64>,
        receiver: Option<f64>,
        (at, is_there): (Time, bool),
    ) -> Option<(RateVerdict, Slot, Option<Dispute>)> {
        let alone = |rate, slot| (verdict::judge_single(rate, self.shown(slot), is_there), slot);
        let (verdict, reporter) = match (sender, receiver) {
            (Some(sender), Some(receiver)) => (verdict::judge_both(sender, receiver), self.own),
            (Some(sender), None) => alone(sender, leg.0),
            (None, Some(receiver)) => alone(receiver, leg.1),
            (None, None) => return None,
        };
        if !verdict.is_sole || verdict.is_disputed {
            for node in [leg.0, leg.1] {
                self.records[node as usize].judge(verdict.is_disputed);
            }
        }
        let (sent, seen) = (sender.unwrap_or(0.0), receiver.unwrap_or(0.0));
        let dispute = verdict.is_disputed.then(|| Dispute {
            leg,
            by: if sent >= seen { leg.0 } else { leg.1 },
            claimed: sent.max(seen),
            seen: (!verdict.is_sole).then_some(sent.min(seen)),
            believed: (!verdict.is_sole).then_some(verdict.bps),
            at,
        });
        dispute.iter().for_each(|dispute| self.dispute(dispute.clone()));
        Some((verdict, reporter, dispute))
    }

    /// Counts an impossible number as a disputed claim.
    pub fn blame(&mut self, slot: Slot) {
        self.records[slot as usize].judge(true);
    }

    /// Keeps a disagreement; the oldest is dropped if there are too many.
    pub fn dispute(&mut self, dispute: Dispute) {
        self.changes += 1;
        if self.disputes.len() >= DISPUTES {
            self.disputes.pop_front();
        }
        self.disputes.push_back(dispute);
    }

    /// Judges a passive claim. While only one end has reported, it is a lower bound and at most the leg's known rate.
    /// Once both ends have, it is the lower of both claims.
    pub fn judge_passive(
        &mut self,
        leg: Leg,
        reporter: Slot,
        claim: PassiveClaim,
        now: Time,
    ) -> TableEntry {
        let (bps, at_least, at) = claim;
        if self.passive.len() >= PASSIVE {
            self.passive.clear();
        }
        let ends = self.passive.entry(leg).or_default();
        let own = usize::from(reporter == leg.1);
        ends[own] = Some(claim);
        let same = |(_, _, other): &PassiveClaim| other.since(at).max(at.since(*other)) <= SAME;
        let other = ends[1 - own].filter(same);
        let agreed = other.filter(|(other, ..)| !verdict::judge_both(bps, *other).is_disputed);
        let known = self.exact(leg, now).map(|e| e.value);
        let (bps, bound) = match agreed {
            Some((other, also, _)) => {
                let is_exact = !at_least && !also;
                (bps.min(other), if is_exact { Bound::Exact } else { Bound::AtLeast })
            }
            None => (known.map_or(bps, |known| bps.min(known)), Bound::AtLeast),
        };
        let (method, is_sole) = (Method::Passive, agreed.is_none());
        let reporter = if is_sole { reporter } else { self.own };
        TableEntry { leg, bps, spread: None, method, bound, reporter, is_sole, at }
    }
}

/// Estimates from trains, in addition to what both ends measured.
impl EstimateTable {
    /// Adds what trains from the leg's sender found. Returns false if the table has a younger estimate.
    ///
    /// It is one end's report: a value above what both ends have shown with two peers each, and above TCP's rate on
    /// this leg, is replaced by a lower bound of that much.
    pub(super) fn record_probe(
        &mut self,
        leg: Leg,
        (bps, spread, at_least, at): Available,
        now: Time,
    ) -> bool {
        let (from, to) = leg;
        let shown = self.shown(from).zip(self.shown(to)).map(|(from, to)| from.min(to));
        let reached = self.exact(leg, now).map(|e| e.value);
        let most = [shown, reached].into_iter().flatten().reduce(f64::max);
        let over = most.filter(|most| bps > *most);
        let estimate = Estimate {
            subject: Subject::leg(from, to),
            metric: Metric::AvailableBandwidth,
            value: over.unwrap_or(bps),
            spread: over.map_or(Some(spread), |_| None),
            method: Method::Train,
            age: now.since(at),
            reporter: NodeIndex(from),
            bound: if at_least || over.is_some() { Bound::AtLeast } else { Bound::Exact },
        };
        let is_news = self.table.insert(estimate, now).unwrap_or(false);
        if is_news {
            self.changes += 1;
            self.live.follow(leg, &self.table, &self.capped, now);
        }
        is_news
    }

    /// The estimates for planning streams: the free rate by trains, TCP's throughput, and the round-trip time.
    pub(super) fn estimated(&self, leg: Leg, now: Time) -> LegEstimates {
        let found = spare(Subject::leg(leg.0, leg.1), &self.table, now);
        let spare = found.filter(|found| found.age <= MAX_SPARE_AGE).map(|found| {
            let low = found.value - found.spread.unwrap_or(0.0);
            (low, found.bound == Bound::AtLeast, found.age)
        });
        let rate = self.exact(leg, now).map(|found| (found.value, found.age));
        let rtt_s = self.live.planned().rtt_s.get(leg.0 as usize, leg.1 as usize);
        let rtt = rtt_s.and_then(|rtt_s| Duration::try_from_secs_f32(rtt_s).ok());
        LegEstimates { spare, rate, rtt }
    }

    /// The range in which trains found a leg's rate, bit/s, if plans use that rate. The upper end is infinite for a
    /// lower bound that raised the leg.
    pub(super) fn range(&self, leg: Leg, now: Time) -> Option<(f64, f64)> {
        let (from, to) = (leg.0 as usize, leg.1 as usize);
        let found = spare(Subject::leg(leg.0, leg.1), &self.table, now)?;
        let legs = self.live.planned();
        let age = seconds(now).saturating_sub(legs.born.get(from, to)?).max(0);
        let is_younger = found.age < Duration::from_secs(age.unsigned_abs().into());
        if !is_younger || found.age > MAX_SPARE_AGE {
            return None;
        }
        let (value, spread) = (found.value, found.spread.unwrap_or(0.0));
        let planned = legs.rates.rate(from, to)?.as_bps() as f64;
        match found.bound {
            Bound::Exact => Some(((value - spread).max(0.0), value + spread)),
            Bound::AtLeast => (value.round() >= planned).then_some((value, f64::INFINITY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    fn known(nodes: u32) -> EstimateTable {
        let mut known = EstimateTable::new();
        known.resize(nodes, &[], at(0));
        known
    }

    fn exact(known: &EstimateTable, leg: Leg) -> Option<f64> {
        known.exact(leg, at(1000)).map(|e| e.value)
    }

    fn measured(known: &mut EstimateTable, leg: Leg, sender: Option<f64>, receiver: Option<f64>) {
        enter_judged(known, leg, (sender, receiver), false);
    }

    fn enter_judged(
        known: &mut EstimateTable,
        leg: Leg,
        says: (Option<f64>, Option<f64>),
        is_there: bool,
    ) {
        let (verdict, reporter, _) = known.judge(leg, says.0, says.1, (at(10), is_there)).unwrap();
        let RateVerdict { bps, bound, is_sole, .. } = verdict;
        let (spread, method, at) = (None, Method::Transfer, at(10));
        let entry = TableEntry { leg, bps, spread, method, bound, reporter, is_sole, at };
        assert!(known.enter(&entry, at));
    }

    #[test]
    fn a_report_by_one_end_is_only_a_lower_bound() {
        let mut known = known(5);
        let bound = |known: &EstimateTable, leg: Leg| {
            let subject = Subject::leg(leg.0, leg.1);
            known.table.latest(subject, Metric::Throughput, Bound::AtLeast, at(1000))
        };
        measured(&mut known, (0, 1), Some(9e9), None);
        measured(&mut known, (0, 2), Some(5e6), Some(5e6));
        assert_eq!(known.shown(0), None, "one may be in league with it");
        measured(&mut known, (3, 0), Some(8e6), Some(8e6));
        assert_eq!(known.shown(0), Some(5e6));
        measured(&mut known, (0, 4), Some(9e9), None);
        for (leg, bps) in [((0, 1), 9e9), ((0, 4), 5e6)] {
            assert_eq!(exact(&known, leg), None, "a lower bound is no value");
            assert_eq!(bound(&known, leg).unwrap().value, bps);
            assert_eq!(known.live().planned().rates.rate(leg.0 as usize, leg.1 as usize), None);
        }
        assert_eq!(known.disputes().count(), 0, "the other is not there");
    }

    #[test]
    fn the_silence_of_a_present_end_is_a_dispute_and_costs_trust() {
        let mut known = known(20);
        for silent in 1..20 {
            enter_judged(&mut known, (0, silent), (Some(9e10), None), true);
        }
        let last = known.disputes().next_back().unwrap();
        assert_eq!((last.by, last.claimed, last.seen, last.believed), (0, 9e10, None, None));
        assert!(known.trust(0) < 0.1, "{}", known.trust(0));
        assert_eq!(known.trust(7), 1.0);
    }

    #[test]
    fn a_disagreement_names_the_higher_claimant_and_costs_trust() {
        let mut known = known(20);
        for honest in 1..20 {
            measured(&mut known, (0, honest), Some(1e10), Some(1e6));
        }
        assert_eq!(exact(&known, (0, 7)), Some(1e6));
        let last = known.disputes().next_back().unwrap();
        assert_eq!((last.by, last.claimed, last.seen), (0, 1e10, Some(1e6)));
        assert!(known.trust(0) < 0.1, "{}", known.trust(0));
        assert_eq!(known.trust(7), 1.0, "one liar does not cost an honest node its standing");
    }

    #[test]
    fn a_passive_claim_is_a_lower_bound_until_both_ends_agree() {
        let mut known = known(3);
        let first = known.judge_passive((0, 1), 0, (7e6, false, at(10)), at(10));
        assert_eq!((first.bound, first.is_sole), (Bound::AtLeast, true));
        let second = known.judge_passive((0, 1), 1, (8e6, false, at(20)), at(20));
        assert_eq!((second.bound, second.bps, second.is_sole), (Bound::Exact, 7e6, false));
        let other = known.judge_passive((0, 1), 1, (8e7, false, at(20)), at(20));
        assert_eq!(other.bound, Bound::AtLeast, "they do not agree");
    }

    #[test]
    fn a_passive_claim_of_one_end_does_not_raise_a_measured_rate() {
        let mut known = known(3);
        measured(&mut known, (0, 1), Some(5e6), Some(5e6));
        let claim = known.judge_passive((0, 1), 0, (9e10, false, at(20)), at(20));
        assert_eq!(claim.bps, 5e6);
        known.enter(&claim, at(20));
        let graph = thalweg_plan::Graph::from_table(known.table(), at(30));
        assert_eq!(graph.rate(0, 1).unwrap().as_bps(), 5_000_000);
    }

    #[test]
    fn a_measured_lower_bound_is_planned_until_an_exact_value_arrives() {
        let mut known = known(3);
        let enter = |known: &mut EstimateTable, bound, bps, is_sole, s| {
            let (leg, method, reporter, at) = ((0, 1), Method::Transfer, 0, at(s));
            let entry = TableEntry { leg, bps, spread: None, method, bound, reporter, is_sole, at };
            assert!(known.enter(&entry, at));
        };
        enter(&mut known, Bound::AtLeast, 9e9, true, 10);
        let planned =
            |known: &EstimateTable| known.live().planned().rates.rate(0, 1).map(|r| r.as_bps());
        assert_eq!(planned(&known), None, "one end alone");
        enter(&mut known, Bound::AtLeast, 7e8, false, 20);
        assert_eq!((planned(&known), known.capped.len()), (Some(700_000_000), 1));
        enter(&mut known, Bound::Exact, 9e8, false, 30);
        assert_eq!((planned(&known), known.capped.len()), (Some(900_000_000), 0));
    }

    #[test]
    fn a_removed_member_leaves_no_data_behind() {
        let mut known = known(3);
        measured(&mut known, (0, 1), Some(5e6), Some(5e6));
        measured(&mut known, (0, 2), Some(5e6), Some(1e6));
        known.resize(3, &[2], at(20));
        assert_eq!((exact(&known, (0, 2)), exact(&known, (0, 1))), (None, Some(5e6)));
        assert_eq!(known.disputes().count(), 0);
    }
}

#[cfg(test)]
mod probed_tests {
    use super::{TableEntry, *};
    use thalweg_units::Rate;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    /// Enters a rate that both ends measured.
    fn enter(known: &mut EstimateTable, leg: Leg, mbps: f64, s: u64) {
        let (bps, spread, method, bound) = (mbps * 1e6, None, Method::Transfer, Bound::Exact);
        let (reporter, is_sole, at) = (0, false, at(s));
        assert!(
            known.enter(&TableEntry { leg, bps, spread, method, bound, reporter, is_sole, at }, at)
        );
    }

    #[test]
    fn trains_raise_a_leg_no_higher_than_both_ends_have_shown() {
        let mut known = EstimateTable::new();
        known.resize(6, &[], at(0));
        let planned =
            |known: &EstimateTable| known.live().planned().rates.rate(0, 1).map(Rate::as_bps);
        enter(&mut known, (0, 1), 8.0, 10);
        let found = |known: &mut EstimateTable, mbps: f64, s: u64| {
            assert!(known.record_probe((0, 1), (mbps * 1e6, 5e5, false, at(s)), at(s)));
            planned(known)
        };
        assert_eq!(found(&mut known, 3.0, 20), Some(3_000_000));
        assert_eq!(found(&mut known, 90.0, 30), Some(8_000_000), "nobody has seen more");
        for (leg, mbps) in [((0, 2), 60.0), ((0, 3), 50.0), ((4, 1), 40.0), ((1, 5), 30.0)] {
            enter(&mut known, leg, mbps, 10);
        }
        assert_eq!(found(&mut known, 90.0, 40), Some(30_000_000), "what 1 has shown with two");
        assert_eq!(found(&mut known, 20.0, 50), Some(20_000_000));
        // A later measurement of both ends replaces it.
        enter(&mut known, (0, 1), 9.0, 60);
        assert_eq!(planned(&known), Some(9_000_000));
    }

    #[test]
    fn a_range_is_returned_only_while_plans_use_it() {
        let mut known = EstimateTable::new();
        known.resize(6, &[], at(0));
        enter(&mut known, (0, 1), 8.0, 10);
        assert_eq!(known.range((0, 1), at(20)), None, "trains have told nothing");
        let found = |known: &mut EstimateTable, mbps: f64, at_least: bool, s: u64| {
            assert!(known.record_probe((0, 1), (mbps * 1e6, 5e5, at_least, at(s)), at(s)));
            known.range((0, 1), at(s + 1))
        };
        assert_eq!(found(&mut known, 3.0, false, 20), Some((2.5e6, 3.5e6)));
        assert_eq!(known.range((0, 1), at(20 + 3601)), None, "too long ago");
        assert_eq!(known.range((1, 0), at(21)), None);
        assert_eq!(found(&mut known, 9.0, false, 30), Some((8e6, f64::INFINITY)), "more than TCP");
        enter(&mut known, (0, 1), 7.0, 40);
        assert_eq!(known.range((0, 1), at(41)), None, "TCP has spoken later");
        assert_eq!(found(&mut known, 3.0, true, 50), None, "a lower bound below it says nothing");
    }
}
