//! What the service holds, and what changes it.

use super::verdict::Verdict;
use super::{
    event::MeasureEvent,
    known::{Dispute, Entry, Known, Leg},
    loads::Loads,
    nodes::{Nodes, Slot},
    orders::{Orders, Under},
    planner::{End, Planner},
    presence::Presence,
    repeats::Repeats,
    settings::{MeasureConfig, Pace},
    tally::{Count, Tally},
};
use crate::store::{Batch, Change, Disagreement, Sample, State as UpOrDown, Topic};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_measure::{Bound, Method, Metric};
use thalweg_units::{NodeId, Rate, Time, WallTime};
use thalweg_wire::mesh::Roster;

/// Passive samples of one leg by one reporter are kept in the history once in this time.
const PASSIVE_EACH: Duration = Duration::from_secs(60);

/// Reporters of passive samples that this is known of; beyond that all are forgotten.
const PASSIVE_MOST: usize = 100_000;

/// Now, by the clock that never jumps and by the one that dates the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub time: Time,
    pub wall: WallTime,
}

impl Now {
    /// The date of something past.
    pub fn date(self, at: Time) -> WallTime {
        let ago = u64::try_from(self.time.since(at).as_nanos()).unwrap_or(u64::MAX);
        WallTime::from_unix_nanos(self.wall.as_unix_nanos().saturating_sub(ago))
    }

    /// When something with this date was; a date ahead of the clock, which was set back since,
    /// counts as just now.
    pub fn time_of(self, date: WallTime) -> Time {
        let ago = self.wall.as_unix_nanos().saturating_sub(date.as_unix_nanos());
        self.time - Duration::from_nanos(ago)
    }
}

/// At most one line about refused reports in this time.
const LINE: Duration = Duration::from_secs(1);

/// The most characters of a member's own words.
const WORDS: usize = 200;

/// Why the last measurement that came to nothing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub leg: Leg,
    /// For people; a member's words, without control characters.
    pub why: String,
    pub at: Time,
}

impl Failure {
    pub fn new(leg: Leg, why: &str, at: Time) -> Self {
        let why = why.chars().filter(|c| !c.is_control()).take(WORDS).collect();
        Self { leg, why, at }
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    pub nodes: Arc<Nodes>,
    pub known: Known,
    pub planner: Planner,
    pub orders: Orders,
    pub presence: Presence,
    pub loads: Loads,
    pub repeats: Repeats,
    pub tally: Arc<Tally>,
    /// Under which number this oracle schedules; none: it does not.
    pub term: Option<u64>,
    /// Since when members could have been heard.
    pub start: Time,
    /// What is to be kept and told once the lock is free.
    pub batch: Batch,
    pub events: Vec<MeasureEvent>,
    /// Grows with all that changes what is offered.
    pub changes: u64,
    /// The last order of which nothing came.
    pub failed: Option<Failure>,
    recorded: BTreeMap<(Slot, Slot, Slot), Time>,
    /// When a refused report was told of last, and how many were not since.
    refused: (Option<Time>, u64),
}

impl State {
    pub fn new(config: &MeasureConfig, random: Xoshiro256PlusPlus) -> Self {
        Self {
            nodes: Arc::default(),
            known: Known::new(),
            planner: Planner::new(config, random),
            orders: Orders::default(),
            presence: Presence::default(),
            loads: Loads::default(),
            repeats: Repeats::default(),
            tally: Arc::default(),
            term: None,
            start: super::BEGIN,
            batch: Batch::default(),
            events: vec![],
            changes: 0,
            failed: None,
            recorded: BTreeMap::new(),
            refused: (None, 0),
        }
    }

    /// Takes a newer roster over; orders of those who are gone end.
    pub fn follow(&mut self, roster: &Roster, own: &NodeId, now: Time) {
        if self.nodes.version() == roster.version {
            return;
        }
        let nodes = Arc::make_mut(&mut self.nodes);
        let gone = nodes.follow(roster);
        let slots = nodes.len();
        for id in self.orders.of(|leg| gone.contains(&leg.0) || gone.contains(&leg.1)) {
            self.orders.drop(id);
            self.planner.ended(id, End::Failed(0), now);
        }
        self.known.resize(slots, &gone, now);
        self.known.is_at(self.nodes.by_key(own).unwrap_or(0));
        self.presence.resize(slots, &gone);
        self.loads.forget(&gone);
        self.planner.follow(&self.nodes, &gone, &self.known);
        self.changes += 1;
    }

    /// Begins or ends to schedule.
    pub fn elect(&mut self, term: Option<u64>, now: Time) {
        if self.term == term {
            return;
        }
        // Whoever is elected now numbers its own orders.
        for id in self.orders.under_way().map(|order| order.id).collect::<Vec<_>>() {
            self.orders.close(id, now);
        }
        if let Some(term) = term {
            self.planner.elected((term << 30) | 1);
        }
        (self.term, self.start) = (term, now);
    }

    /// Gives orders to whom can take them.
    pub fn schedule(&mut self, now: Time, silent: Duration, rest: Duration) {
        self.probe(now, silent, rest);
        let Self { planner, presence, known, tally, .. } = self;
        let is_there = |slot| presence.is_there(slot, now, silent) && !presence.is_down(slot);
        for ordered in planner.orders(known, now, is_there) {
            tally.count(Count::Ordered);
            self.orders.give(ordered.id, ordered.leg, now, ordered.until);
        }
    }

    /// Has one member each try whether those who were not reached answer again.
    fn probe(&mut self, now: Time, silent: Duration, rest: Duration) {
        for to in self.presence.untried(now, silent, rest) {
            let relays = self.nodes.iter().filter(|(slot, node)| node.is_relay && *slot != to);
            let here = relays.map(|(slot, _)| slot).filter(|slot| {
                self.presence.is_there(*slot, now, silent) && !self.presence.is_down(*slot)
            });
            let here: Vec<Slot> = here.collect();
            if let Some(from) = self.presence.trier(to, here.into_iter(), now) {
                self.planner.probe((from, to));
            }
        }
    }

    /// Ends what has had its time, and takes in what came of measurements.
    pub fn settle(&mut self, now: Now, pace: &Pace) {
        for expired in self.planner.expire(now.time) {
            self.tally.count(Count::Expired);
            let why = "its sender did not tell of it in time";
            self.failed = Some(Failure::new(expired.leg, why, now.time));
            self.orders.close(expired.id, now.time);
        }
        for order in self.orders.settled(now.time, pace.settle) {
            self.conclude(&order, now, pace.silent);
        }
    }

    /// What both ends said, or one of them, enters the table. Whoever was heard within `silent`
    /// could have said something.
    fn conclude(&mut self, order: &Under, now: Now, silent: Duration) {
        let Under { id, leg, sender, receiver, .. } = order;
        let bps = |claim: &super::orders::Claim| claim.bps;
        let rates = (sender.as_ref().map(bps), receiver.as_ref().map(bps));
        if let (Some(_), Some(_)) = rates {
            self.presence.met(leg.1, leg.0, now.time);
        }
        let Some(claim) = sender.or(*receiver) else { return };
        let silent_one = if rates.0.is_some() { leg.1 } else { leg.0 };
        let is_there = self.presence.is_there(silent_one, now.time, silent);
        let judged = self.known.judge(*leg, rates.0, rates.1, (claim.at, is_there));
        let Some((verdict, reporter, dispute)) = judged else { return };
        // Whichever end was held back: the other saw no more than what it let through.
        let held = [sender, receiver].into_iter().flatten().any(|claim| claim.at_least);
        let bound = if held { Bound::AtLeast } else { verdict.bound };
        self.tally(&verdict, bound, claim.bytes);
        let entry = Entry {
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
        dispute.iter().for_each(|dispute| self.tell(dispute, now));
    }

    fn tally(&self, verdict: &Verdict, bound: Bound, bytes: u64) {
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

    /// Takes an entry into the table and into the plan.
    pub fn enter(&mut self, entry: &Entry, now: Time) {
        if self.known.enter(entry, now) && entry.is_planned() {
            self.planner.set(entry.leg, Rate::from_bps(entry.bps.round() as u64));
            self.changes += 1;
        }
    }

    /// Puts an entry into the history.
    pub fn record(
        &mut self,
        entry: &Entry,
        order: Option<u64>,
        bytes: u64,
        seen: Option<f64>,
        now: Now,
    ) {
        let key = |slot: Slot| self.nodes.get(slot).map(|node| node.key);
        let (from, to) = entry.leg;
        let keys = (key(from), key(to), key(entry.reporter));
        let (Some(from), Some(to), Some(reporter)) = keys else { return };
        let Entry { method, bound, .. } = *entry;
        let topic = Topic { from, to, metric: Metric::Throughput, method, bound, reporter };
        let (value, spread, measured) = (entry.bps, entry.spread, now.date(entry.at));
        self.batch.samples.push(Sample { topic, order, value, spread, bytes, measured, seen });
    }

    /// A passive entry is news for the history only once in a while.
    pub fn is_news(&mut self, entry: &Entry, now: Time) -> bool {
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

    fn tell(&mut self, dispute: &Dispute, now: Now) {
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

    /// A member's report was refused: one line a second tells of it, and of how many more.
    pub fn refused(&mut self, who: Slot, why: String, now: Time) {
        let (last, untold) = &mut self.refused;
        if last.is_some_and(|last| now.since(last) < LINE) {
            *untold += 1;
            return;
        }
        *last = Some(now);
        let (node, more) = (self.nodes.name(who), std::mem::take(untold));
        self.events.push(MeasureEvent::Refused { node, why, more });
    }

    /// Looks who is down now, by this oracle's own ears.
    pub fn look(&mut self, now: Now, silent: Duration) {
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
            let state = if why.is_some() { UpOrDown::Down } else { UpOrDown::Up };
            let (key, at) = (node.key, now.wall);
            let told = why.clone().unwrap_or_default();
            self.batch.changes.push(Change { node: key, state, why: told, at });
            self.events.push(match why {
                Some(why) => MeasureEvent::Down { node: name, why },
                None => MeasureEvent::Up { node: name },
            });
        }
    }

    /// What is to be kept and told, taken out.
    pub fn take_news(&mut self) -> (Batch, Vec<MeasureEvent>) {
        (std::mem::take(&mut self.batch), std::mem::take(&mut self.events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng as _;

    #[test]
    fn refused_reports_are_one_line_a_second_that_counts_the_others() {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut state = State::new(&MeasureConfig::default(), random);
        let start = crate::measure::BEGIN;
        for ms in [0, 1, 500, 999, 1000, 1001, 2000] {
            state.refused(0, "x".into(), start + Duration::from_millis(ms));
        }
        let more = state.events.iter().map(|event| match event {
            MeasureEvent::Refused { more, .. } => *more,
            other => panic!("{other:?}"),
        });
        assert_eq!(more.collect::<Vec<_>>(), [0, 3, 1]);
    }

    #[test]
    fn a_members_words_are_cut_and_cleaned() {
        let why = format!("no\u{1b}[31m\n way{}", "y".repeat(300));
        let failure = Failure::new((0, 1), &why, Time::ZERO);
        assert!(failure.why.starts_with("no[31m wayy") && failure.why.len() == WORDS);
    }
}
