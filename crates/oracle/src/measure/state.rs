//! The state of the measuring service, and its changes.

use super::{
    estimate_table::{Dispute, EstimateTable, Leg, TableEntry},
    event::MeasureEvent,
    loads::Loads,
    nodes::{Nodes, Slot},
    orders::{Orders, PendingOrder},
    paths::{LegPage, disagreement},
    planner::{IssuedOrder, OrderEnd, Planner},
    presence::{Downtime, Presence},
    repeat_detector::RepeatDetector,
    settings::{MeasureConfig, Pace},
    tally::{Count, Tally},
    verdict::{RateVerdict, check_rate},
};
use crate::store::{Batch, Disagreement, NodeChange, NodeState, Recent, Sample, Topic};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_measure::{Bound, Method, Metric};
use thalweg_units::{NodeId, Rate, Time, WallTime};
use thalweg_wire::mesh::{
    Name, Roster,
    measure::{self as wire, Down, FailedOrder, LegEntry, PathsReply, SpentRelay},
};

/// The history stores a passive sample of one leg by one reporter at most once in this time.
const PASSIVE_EACH: Duration = Duration::from_secs(60);

/// The most legs and reporters for which the time of the last stored passive sample is known; beyond that all are
/// forgotten.
const PASSIVE_MOST: usize = 100_000;

/// The present, by the monotonic clock and by the wall clock, which dates the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentTime {
    pub time: Time,
    pub wall: WallTime,
}

impl CurrentTime {
    /// The date of a past time.
    pub fn date(self, at: Time) -> WallTime {
        let ago = u64::try_from(self.time.since(at).as_nanos()).unwrap_or(u64::MAX);
        WallTime::from_unix_nanos(self.wall.as_unix_nanos().saturating_sub(ago))
    }

    /// The time of a date. A date ahead of the clock (which was set back since) counts as now.
    pub fn time_of(self, date: WallTime) -> Time {
        let ago = self.wall.as_unix_nanos().saturating_sub(date.as_unix_nanos());
        self.time - Duration::from_nanos(ago)
    }
}

/// The least time between two log lines about refused reports.
const REFUSAL_LOG_PERIOD: Duration = Duration::from_secs(1);

/// The most characters of a member's reason.
const MAX_REASON: usize = 200;

/// The last failed measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub leg: Leg,
    /// The reason, for people: a member's words without control characters.
    pub why: String,
    pub at: Time,
}

impl Failure {
    pub fn new(leg: Leg, why: &str, at: Time) -> Self {
        let why = why.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
        Self { leg, why, at }
    }
}

/// The state of the measuring service.
#[derive(Debug)]
pub(super) struct MeasureState {
    pub nodes: Arc<Nodes>,
    pub known: EstimateTable,
    pub planner: Planner,
    pub orders: Orders,
    pub presence: Presence,
    pub loads: Loads,
    pub repeats: RepeatDetector,
    pub tally: Arc<Tally>,
    /// The term in which this oracle schedules; `None` if it does not.
    pub term: Option<u64>,
    /// The time since which members could have been heard.
    pub start: Time,
    /// Entries to store and events to report once the lock is released.
    pub batch: Batch,
    pub events: Vec<MeasureEvent>,
    /// Grows with each change that affects the offer.
    pub changes: u64,
    /// The last order that failed.
    pub failed: Option<Failure>,
    recorded: BTreeMap<(Slot, Slot, Slot), Time>,
    /// When a refused report was last logged, and how many were refused since.
    refused: (Option<Time>, u64),
}

impl MeasureState {
    pub fn new(config: &MeasureConfig, random: Xoshiro256PlusPlus) -> Self {
        Self {
            nodes: Arc::default(),
            known: EstimateTable::new(),
            planner: Planner::new(config, random),
            orders: Orders::default(),
            presence: Presence::default(),
            loads: Loads::default(),
            repeats: RepeatDetector::default(),
            tally: Arc::default(),
            term: None,
            start: super::service::BEGIN,
            batch: Batch::default(),
            events: vec![],
            changes: 0,
            failed: None,
            recorded: BTreeMap::new(),
            refused: (None, 0),
        }
    }

    /// Takes over a newer roster. Ends the orders of removed members.
    pub fn follow(&mut self, roster: &Roster, own: &NodeId, now: Time) {
        if self.nodes.version() == roster.version {
            return;
        }
        let nodes = Arc::make_mut(&mut self.nodes);
        let gone = nodes.follow(roster);
        let slots = nodes.len();
        for id in self.orders.of(|leg| gone.contains(&leg.0) || gone.contains(&leg.1)) {
            self.orders.drop(id);
            self.planner.finish_order(id, OrderEnd::Failed(0), now);
        }
        self.known.resize(slots, &gone, now);
        self.known.set_own(self.nodes.by_key(own).unwrap_or(0));
        self.presence.resize(slots, &gone);
        self.loads.forget(&gone);
        self.planner.follow(&self.nodes, &gone, &self.known);
        self.changes += 1;
    }

    /// Begins or ends scheduling.
    pub fn elect(&mut self, term: Option<u64>, now: Time) {
        if self.term == term {
            return;
        }
        // The newly elected oracle numbers its own orders.
        for id in self.orders.under_way().map(|order| order.id).collect::<Vec<_>>() {
            self.orders.close(id, now);
        }
        if let Some(term) = term {
            self.planner.set_first_id((term << 30) | 1);
        }
        (self.term, self.start) = (term, now);
    }

    /// Gives orders to the members that can take them.
    pub fn schedule(&mut self, now: Time, silent: Duration, rest: Duration) {
        self.probe(now, silent, rest);
        let Self { planner, presence, known, tally, .. } = self;
        let is_there = |slot| presence.is_there(slot, now, silent) && !presence.is_down(slot);
        for ordered in planner.orders(known, now, is_there) {
            tally.count(Count::Ordered);
            self.orders.give(ordered.id, ordered.leg, now, ordered.until);
        }
    }

    /// Has one member each probe the relays that others could not reach.
    fn probe(&mut self, now: Time, silent: Duration, rest: Duration) {
        for to in self.presence.probes_due(now, silent, rest) {
            let relays = self.nodes.iter().filter(|(slot, node)| node.is_relay && *slot != to);
            let here = relays.map(|(slot, _)| slot).filter(|slot| {
                self.presence.is_there(*slot, now, silent) && !self.presence.is_down(*slot)
            });
            let here: Vec<Slot> = here.collect();
            if let Some(from) = self.presence.prober(to, here.into_iter(), now) {
                self.planner.probe((from, to));
            }
        }
    }

    /// Ends overdue orders, and takes in the results of settled ones.
    pub fn settle(&mut self, now: CurrentTime, pace: &Pace) {
        for expired in self.planner.expire(now.time) {
            self.tally.count(Count::Expired);
            let why = "its sender did not report in time";
            self.failed = Some(Failure::new(expired.leg, why, now.time));
            self.orders.close(expired.id, now.time);
        }
        for order in self.orders.settled(now.time, pace.settle) {
            self.conclude(&order, now, pace.silent);
        }
    }

    /// Enters the result that both ends reported, or one of them. An end heard within `silent` could have reported.
    fn conclude(&mut self, order: &PendingOrder, now: CurrentTime, silent: Duration) {
        let PendingOrder { id, leg, sender, receiver, .. } = order;
        let bps = |claim: &super::orders::Claim| claim.bps;
        let rates = (sender.as_ref().map(bps), receiver.as_ref().map(bps));
        if let (Some(_), Some(_)) = rates {
            self.presence.confirm_reached(leg.1, leg.0, now.time);
        }
        let Some(claim) = sender.or(*receiver) else { return };
        let silent_one = if rates.0.is_some() { leg.1 } else { leg.0 };
        let is_there = self.presence.is_there(silent_one, now.time, silent);
        let judged = self.known.judge(*leg, rates.0, rates.1, (claim.at, is_there));
        let Some((verdict, reporter, dispute)) = judged else { return };
        // Whichever end was limited: the other saw at most what that one let through.
        let held = [sender, receiver].into_iter().flatten().any(|claim| claim.at_least);
        let bound = if held { Bound::AtLeast } else { verdict.bound };
        self.tally(&verdict, bound, claim.bytes);
        let entry = TableEntry {
            leg: *leg,
            bps: verdict.bps,
            spread: claim.spread,
            method: Method::Transfer,
            bound,
            reporter,
            is_sole: verdict.is_sole,
            at: claim.at,
        };
        self.enter(&entry, now.time);
        self.record(&entry, Some(*id), claim.bytes, rates.1, now);
        dispute.iter().for_each(|dispute| self.report_dispute(dispute, now));
    }

    fn tally(&self, verdict: &RateVerdict, bound: Bound, bytes: u64) {
        self.tally.count(match (verdict.is_sole, verdict.is_disputed) {
            (true, _) => Count::Sole,
            (false, true) => Count::Disputed,
            (false, false) => Count::Agreed,
        });
        if bound == Bound::AtLeast {
            self.tally.count(Count::AtLeast);
        }
        self.tally.add(Count::Bytes, bytes);
    }

    /// Adds an entry to the table, and to the plan if plans use it.
    pub fn enter(&mut self, entry: &TableEntry, now: Time) {
        if self.known.enter(entry, now) && entry.is_planned() {
            self.planner.set(entry.leg, Rate::from_bps(entry.bps.round() as u64));
            self.changes += 1;
        }
    }

    /// Adds an entry to the history.
    pub fn record(
        &mut self,
        entry: &TableEntry,
        order: Option<u64>,
        bytes: u64,
        seen: Option<f64>,
        now: CurrentTime,
    ) {
        let key = |slot: Slot| self.nodes.get(slot).map(|node| node.key);
        let (from, to) = entry.leg;
        let keys = (key(from), key(to), key(entry.reporter));
        let (Some(from), Some(to), Some(reporter)) = keys else { return };
        let TableEntry { method, bound, .. } = *entry;
        let topic = Topic { from, to, metric: Metric::Throughput, method, bound, reporter };
        let (value, spread, measured) = (entry.bps, entry.spread, now.date(entry.at));
        self.batch.samples.push(Sample { topic, order, value, spread, bytes, measured, seen });
    }

    /// Whether the history should store a passive entry: only once per period.
    pub fn is_news(&mut self, entry: &TableEntry, now: Time) -> bool {
        if self.recorded.len() >= PASSIVE_MOST {
            self.recorded.clear();
        }
        let key = (entry.leg.0, entry.leg.1, entry.reporter);
        let last = self.recorded.get(&key);
        let is_news = last.is_none_or(|last| now.since(*last) >= PASSIVE_EACH);
        if is_news {
            self.recorded.insert(key, now);
        }
        is_news
    }

    fn report_dispute(&mut self, dispute: &Dispute, now: CurrentTime) {
        let (from, to) = dispute.leg;
        let key = |slot: Slot| self.nodes.get(slot).map(|node| node.key);
        if let (Some(from), Some(to), Some(by)) = (key(from), key(to), key(dispute.by)) {
            let Dispute { claimed, seen, believed, at, .. } = *dispute;
            let at = now.date(at);
            let kept = Disagreement { from, to, by, claimed, seen, believed, at };
            self.batch.disagreements.push(kept);
        }
        let name = |slot| self.nodes.name(slot);
        self.events.push(MeasureEvent::Disagreement {
            from: name(from),
            to: name(to),
            claimed: (name(dispute.by), dispute.claimed as u64),
            seen: dispute.seen.map(|seen| seen as u64),
        });
    }

    /// Notes that a member's report was refused. Logs at most one line per second, with the number of refusals since
    /// the last.
    pub fn record_refusal(&mut self, who: Slot, why: String, now: Time) {
        let (last, unlogged) = &mut self.refused;
        if last.is_some_and(|last| now.since(last) < REFUSAL_LOG_PERIOD) {
            *unlogged += 1;
            return;
        }
        *last = Some(now);
        let (node, more) = (self.nodes.name(who), std::mem::take(unlogged));
        self.events.push(MeasureEvent::Refused { node, why, more });
    }

    /// Updates which relays are down, by what this oracle itself has heard.
    pub fn update_presence(&mut self, now: CurrentTime, silent: Duration) {
        let nodes = Arc::clone(&self.nodes);
        for (slot, node) in nodes.iter().filter(|(_, node)| node.is_relay) {
            let reached_by = self.planner.reached_by(slot);
            let times = (now.time, self.start);
            let judged = self.presence.judge(slot, reached_by, times, silent);
            let why = judged.as_ref().map(|down| down.why.clone());
            if !self.presence.set(slot, judged) {
                continue;
            }
            self.changes += 1;
            let name = node.name.to_string();
            let state = if why.is_some() { NodeState::Down } else { NodeState::Up };
            let (key, at) = (node.key, now.wall);
            let reason = why.clone().unwrap_or_default();
            self.batch.changes.push(NodeChange { node: key, state, why: reason, at });
            self.events.push(match why {
                Some(why) => MeasureEvent::Down { node: name, why },
                None => MeasureEvent::Up { node: name },
            });
        }
    }

    /// Takes out the entries to store and the events to report.
    pub fn take_news(&mut self) -> (Batch, Vec<MeasureEvent>) {
        (std::mem::take(&mut self.batch), std::mem::take(&mut self.events))
    }

    /// Takes over what an oracle has recorded, as far as it concerns present members.
    pub fn take_over(&mut self, recent: Recent, now: CurrentTime) {
        for sample in &recent.samples {
            if let Some(entry) = self.entry_of(sample, now) {
                self.enter(&entry, now.time);
            }
        }
        for entry in &recent.disagreements {
            let slot = |key: &NodeId| self.nodes.by_key(key);
            let slots = (slot(&entry.from), slot(&entry.to), slot(&entry.by));
            let (Some(from), Some(to), Some(by)) = slots else { continue };
            let dispute = Dispute {
                leg: (from, to),
                by,
                claimed: entry.claimed,
                seen: entry.seen,
                believed: entry.believed,
                at: now.time_of(entry.at),
            };
            // An oracle's own disputes come back from the database, with a slightly different date and a rounded rate.
            let is_known = |known: &Dispute| {
                known.leg == dispute.leg && known.claimed as u64 == dispute.claimed as u64
            };
            if !self.known.disputes().any(is_known) {
                self.known.dispute(dispute);
            }
        }
        if self.term.is_none() {
            self.take_changes(&recent, now);
        }
    }

    /// Takes over which relays are down, as the elected oracle recorded.
    fn take_changes(&mut self, recent: &Recent, now: CurrentTime) {
        for change in &recent.changes {
            let Some(slot) = self.nodes.by_key(&change.node) else { continue };
            let since = now.time_of(change.at);
            let down = (change.state == NodeState::Down)
                .then(|| Downtime { since, why: change.why.clone() });
            self.changes += u64::from(self.presence.set(slot, down));
        }
    }

    fn entry_of(&self, sample: &Sample, now: CurrentTime) -> Option<TableEntry> {
        let slot = |key: &NodeId| self.nodes.by_key(key);
        let topic = &sample.topic;
        let leg: (Slot, Slot) = (slot(&topic.from)?, slot(&topic.to)?);
        let (reporter, own) = (slot(&topic.reporter)?, sample.seen.is_none());
        let is_oracle = |slot| self.nodes.get(slot).is_some_and(|node| node.is_oracle);
        // A report by one end alone has that end as its reporter; one by both ends has an oracle. An oracle's own node
        // may be an end as well.
        let is_sole = own && (reporter == leg.0 || reporter == leg.1) && !is_oracle(reporter);
        let is_rate = topic.metric == Metric::Throughput && check_rate("", sample.value).is_ok();
        is_rate.then(|| TableEntry {
            leg,
            bps: sample.value,
            spread: sample.spread,
            method: topic.method,
            // Older versions recorded one end's report as exact.
            bound: if is_sole { Bound::AtLeast } else { topic.bound },
            is_sole,
            reporter,
            at: now.time_of(sample.measured),
        })
    }

    /// Lists estimates, at most `most` after the position `after`, and the relays that are down.
    pub fn paths(&self, after: Option<u64>, most: usize, now: Time) -> PathsReply {
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone());
        let mut page = LegPage::new(after, most);
        for estimate in self.known.table().iter(now) {
            page.take(&estimate);
        }
        let next = page.next();
        let down = self.presence.down().filter_map(|(slot, down)| {
            Some(Down { node: name(slot)?, why: down.why.clone(), since: now.since(down.since) })
        });
        let disputes = self.known.disputes().rev();
        let legs = page.legs.into_iter();
        let legs = legs.map(|(leg, entry)| LegEntry { rtt_s: self.rtt_s(leg), ..entry });
        PathsReply {
            nodes: self.names(),
            legs: legs.collect(),
            down: down.collect(),
            disagreements: disputes.filter_map(|d| disagreement(d, name, now)).collect(),
            measuring: None,
            next,
        }
    }

    /// The round-trip time that the leg's sender saw last, rounded to microseconds, so that meaningless digits do not
    /// enlarge pages.
    fn rtt_s(&self, (from, to): Leg) -> Option<f64> {
        let seen = self.known.live().planned().rtt_s.get(from as usize, to as usize)?;
        Some((f64::from(seen) * 1e6).round() / 1e6)
    }

    /// What limits measuring. An oracle that does not schedule knows only whether measuring is enabled.
    pub fn measuring(&self, enabled: bool, now: Time) -> Option<wire::MeasuringStatus> {
        if !enabled {
            return Some(wire::MeasuringStatus::default());
        }
        self.term?;
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone());
        let spent = |(slot, at): (u32, Option<Time>)| {
            Some(SpentRelay { node: name(slot)?, free_in: at.map(|at| at.since(now)) })
        };
        let failed = self.failed.as_ref().and_then(|failure| {
            let Failure { leg: (from, to), why, at } = failure;
            let (from, to, why) = (name(*from)?, name(*to)?, why.clone());
            Some(FailedOrder { from, to, why, age: now.since(*at) })
        });
        let spent = self.planner.spent(now).into_iter().filter_map(spent).collect();
        Some(wire::MeasuringStatus { enabled, spent, failed })
    }

    /// The names by slot. A free slot is named [`PathsReply::FREE`], and occurs in no leg.
    fn names(&self) -> Vec<Name> {
        let free: Option<Name> = PathsReply::FREE.parse().ok();
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone()).or(free.clone());
        (0..self.nodes.len()).filter_map(name).collect()
    }

    /// The measurements to order now, and how long planning took.
    pub fn orders_now(&mut self, now: Time) -> (Vec<IssuedOrder>, Duration) {
        let began = Instant::now();
        let orders = self.planner.orders(&self.known, now, |_| true);
        (orders, began.elapsed())
    }

    /// Enters an estimate as if it had been measured at `at`.
    pub fn assume(&mut self, leg: Leg, bps: f64, at: Time, now: Time) {
        let entry = TableEntry {
            leg,
            bps,
            spread: None,
            method: Method::Transfer,
            bound: Bound::Exact,
            reporter: self.known.own(),
            is_sole: false,
            at,
        };
        self.enter(&entry, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng as _;

    #[test]
    fn refused_reports_are_logged_once_a_second_with_a_count() {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut state = MeasureState::new(&MeasureConfig::default(), random);
        let start = super::super::service::BEGIN;
        for ms in [0, 1, 500, 999, 1000, 1001, 2000] {
            state.record_refusal(0, "x".into(), start + Duration::from_millis(ms));
        }
        let more = state.events.iter().map(|event| match event {
            MeasureEvent::Refused { more, .. } => *more,
            other => panic!("{other:?}"),
        });
        assert_eq!(more.collect::<Vec<_>>(), [0, 3, 1]);
    }

    #[test]
    fn a_members_reason_is_truncated_and_stripped_of_control_characters() {
        let why = format!("no\u{1b}[31m\n way{}", "y".repeat(300));
        let failure = Failure::new((0, 1), &why, Time::ZERO);
        assert!(failure.why.starts_with("no[31m wayy") && failure.why.len() == MAX_REASON);
    }
}
