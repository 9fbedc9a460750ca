//! Decides which relays measure each other next.
//!
//! The schedule and the dispatcher know only relays (UKAIRO's 𝒟), by positions of their own. All other code identifies
//! a relay by its slot.

use super::{
    estimate_table::{self, Leg},
    leg_graph::{self, ChangedLegs},
    nodes::{Nodes, Slot},
    settings::{MeasureConfig, ScheduleKind},
};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use thalweg_plan::{
    Graph,
    dispatch::{Dispatch, GivenOrder, OrderOutcome},
    ranking::{Ranking, Score},
    schedule::{
        Biased, ExcludedLegs, LegAges, LegRanges, LegRtts, Pair, Plan, Random, Schedule,
        ScheduleInput, Thrifty, Upkeep,
    },
};
use thalweg_units::{ByteSize, Rate, Time};

/// Removed relays keep their positions, as nodes that are down, until there are this many and they are a quarter of
/// all. Then the planner starts from scratch, with new daily budgets.
const GONE: usize = 16;

/// A relay's index in the schedule.
type Position = usize;

/// The schedule, the dispatcher, and their inputs.
#[derive(Debug)]
pub(super) struct Planner {
    config: MeasureConfig,
    slots: Vec<Slot>,
    positions: HashMap<Slot, Position>,
    gone: BTreeSet<Position>,
    graph: Graph,
    schedule: Box<dyn Schedule>,
    /// The newest ranking, by position.
    ranking: Option<Ranking>,
    dispatch: Dispatch,
    /// The relays that count as down, with the relay that is to probe each.
    probes: BTreeMap<Slot, Slot>,
    /// The greatest number of an order so far.
    last_id: u64,
    random: Xoshiro256PlusPlus,
}

/// A given order, by slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IssuedOrder {
    pub id: u64,
    pub leg: Leg,
    pub until: Time,
}

/// The end of an order, by slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderEnd {
    Measured(u64),
    Failed(u64),
    Busy,
    Down(Slot),
}

fn schedule(config: &MeasureConfig) -> Box<dyn Schedule> {
    let first: Box<dyn Schedule> = match config.schedule {
        ScheduleKind::Algorithm1 => Box::new(Biased::new(config.t, config.p)),
        ScheduleKind::Thrifty => Box::new(Thrifty::new(config.p)),
        ScheduleKind::Random => Box::new(Random::new(config.p)),
    };
    Box::new(Plan::new(first, Upkeep::new(config.pace.renew)))
}

impl Planner {
    pub fn new(config: &MeasureConfig, random: Xoshiro256PlusPlus) -> Self {
        Self {
            config: config.clone(),
            slots: vec![],
            positions: HashMap::new(),
            gone: BTreeSet::new(),
            graph: Graph::new(0),
            schedule: schedule(config),
            ranking: None,
            dispatch: Dispatch::new(config.limits(), 1),
            probes: BTreeMap::new(),
            last_id: 0,
            random,
        }
    }

    /// Begins to give orders numbered from `first_id`, because this oracle was elected.
    pub fn set_first_id(&mut self, first_id: u64) {
        self.dispatch = Dispatch::new(self.config.limits(), first_id);
        self.schedule = schedule(&self.config);
        self.ranking.iter().for_each(|ranking| self.schedule.set_ranking(ranking));
    }

    /// Takes over the roster's relays. Positions stay, except that the slots in `gone` no longer belong to the same
    /// nodes.
    pub fn follow(&mut self, nodes: &Nodes, gone: &[Slot], known: &estimate_table::EstimateTable) {
        for slot in gone {
            self.gone.extend(self.positions.remove(slot));
            self.probes.retain(|to, from| *to != *slot && *from != *slot);
        }
        let lost = |(slot, _): &(&Slot, &Position)| !nodes.is_relay(**slot);
        let lost: Vec<_> = self.positions.iter().filter(lost).map(|(s, p)| (*s, *p)).collect();
        for (slot, position) in lost {
            self.positions.remove(&slot);
            self.gone.insert(position);
        }
        let begins_anew = self.gone.len() >= GONE && self.gone.len() * 4 >= self.slots.len();
        if begins_anew {
            (self.slots, self.positions, self.gone, self.ranking) = Default::default();
            self.set_first_id(self.last_id + 1);
        }
        for (slot, _) in nodes.iter().filter(|(_, node)| node.is_relay) {
            self.positions.entry(slot).or_insert_with(|| {
                self.slots.push(slot);
                self.slots.len() - 1
            });
        }
        match begins_anew {
            true => self.renew(&known.live().planned().rates, &ChangedLegs::All),
            false => self.widen(),
        }
    }

    /// Grows to the number of positions, and forgets the legs of removed relays.
    fn widen(&mut self) {
        let mut graph = Graph::new(self.slots.len());
        for ((from, to), rate) in self.graph.legs() {
            if !self.gone.contains(&from) && !self.gone.contains(&to) {
                graph.set(from, to, Some(rate));
            }
        }
        self.graph = graph;
    }

    /// Takes over the rates of the `changed` legs, or of all. A leg without a rate has expired.
    pub fn renew(&mut self, all: &Graph, changed: &ChangedLegs) {
        if self.gone.is_empty() && all.nodes() == self.slots.len() && self.is_plain() {
            self.graph = all.clone();
            return;
        }
        let set = |planner: &mut Self, leg: Leg, rate: Option<Rate>| {
            let at = |slot: Slot| planner.positions.get(&slot).copied();
            if let (Some(from), Some(to)) = (at(leg.0), at(leg.1)) {
                planner.graph.set(from, to, rate);
            }
        };
        match changed {
            ChangedLegs::Legs(legs) => {
                for leg in legs {
                    set(self, *leg, all.rate(leg.0 as usize, leg.1 as usize));
                }
            }
            ChangedLegs::All => {
                self.graph = Graph::new(self.slots.len());
                for ((from, to), rate) in all.legs() {
                    set(self, (from as Slot, to as Slot), Some(rate));
                }
            }
        }
    }

    /// Takes over a ranking by slot.
    pub fn set_ranking(&mut self, ranking: &Ranking) {
        let score = |score: &Score| {
            let relay = *self.positions.get(&(score.relay as Slot))?;
            Some(Score { relay, ..*score })
        };
        let scores = ranking.scores().iter().filter_map(score).collect();
        let ranking = Ranking::from_scores(scores);
        self.schedule.set_ranking(&ranking);
        self.ranking = Some(ranking);
    }

    /// Whether all members are relays, each with its slot as its position.
    fn is_plain(&self) -> bool {
        self.slots.iter().enumerate().all(|(position, slot)| position == *slot as usize)
    }

    /// Sets the rate of a measured leg.
    pub fn set(&mut self, leg: Leg, rate: Rate) {
        let at = |slot: Slot| self.positions.get(&slot).copied();
        if let (Some(from), Some(to)) = (at(leg.0), at(leg.1)) {
            self.graph.set(from, to, Some(rate));
        }
    }

    /// Tells the schedule that trains found a leg's available bandwidth. Where a decision depends on it, TCP measures
    /// the leg.
    pub fn note_available_rate(&mut self, leg: Leg) {
        let at = |slot: Slot| self.positions.get(&slot).copied();
        if let (Some(from), Some(to)) = (at(leg.0), at(leg.1)) {
            self.schedule.record_probe((from, to));
        }
    }

    /// The number of relays that have a measured leg to this one.
    pub fn reached_by(&self, slot: Slot) -> usize {
        self.positions.get(&slot).map_or(0, |position| self.graph.in_degree(*position))
    }

    /// Gives all orders that can be given now. Absent relays get none.
    pub fn orders(
        &mut self,
        known: &estimate_table::EstimateTable,
        now: Time,
        is_there: impl Fn(Slot) -> bool,
    ) -> Vec<IssuedOrder> {
        let absent = |(_, slot): &(Position, &Slot)| !is_there(**slot);
        let absent = self.slots.iter().enumerate().filter(absent).map(|(position, _)| position);
        let mut absent: BTreeSet<Position> = absent.collect();
        absent.extend(&self.gone);
        let mut all = vec![];
        // Each iteration gives an order or ends.
        loop {
            self.feed(known, now, &absent);
            let Some(given) = self.dispatch.next(now) else { return all };
            self.last_id = self.last_id.max(given.id);
            let ordered = self.ordered(given);
            let is_probe = self.probes.get(&ordered.leg.1) == Some(&ordered.leg.0);
            if is_probe {
                self.probes.remove(&ordered.leg.1);
            }
            let away = [ordered.leg.0, ordered.leg.1].into_iter().find(|slot| !is_there(*slot));
            match away.filter(|_| !is_probe) {
                Some(slot) => _ = self.finish_order(given.id, OrderEnd::Down(slot), now),
                None => all.push(ordered),
            }
        }
    }

    /// Has the leg's sender probe whether its receiver, which counts as down, responds again.
    pub fn probe(&mut self, leg: Leg) {
        let at = |slot: Slot| self.positions.get(&slot).copied();
        if let (Some(from), Some(to)) = (at(leg.0), at(leg.1)) {
            self.probes.insert(leg.1, leg.0);
            self.dispatch.probe((from, to));
        }
    }

    /// Charges both ends for bytes of a measurement that became known after its end.
    pub fn charge(&mut self, leg: Leg, more: u64, now: Time) {
        let at = |slot: Slot| self.positions.get(&slot).copied();
        if let (Some(from), Some(to)) = (at(leg.0), at(leg.1)) {
            self.dispatch.charge((from, to), ByteSize::from_bytes(more), now);
        }
    }

    /// Relays whose daily bytes are used up, and until when; `None`: forever.
    pub fn spent(&self, now: Time) -> Vec<(Slot, Option<Time>)> {
        let slot = |(position, at): (Position, _)| Some((*self.slots.get(position)?, at));
        let here = self.dispatch.spent(now).into_iter();
        here.filter(|(position, _)| !self.gone.contains(position)).filter_map(slot).collect()
    }

    /// Requests legs from the schedule if the dispatcher has capacity for more.
    fn feed(
        &mut self,
        known: &estimate_table::EstimateTable,
        now: Time,
        absent: &BTreeSet<Position>,
    ) {
        if !self.dispatch.is_hungry() || self.slots.len() < 2 {
            return;
        }
        let ExcludedLegs { nodes, pairs } = self.dispatch.excluded(now);
        let mut excluded = ExcludedLegs { nodes: absent.clone(), pairs };
        excluded.nodes.extend(nodes);
        let facts = LegFacts { planned: known.live().planned(), known, slots: &self.slots, now };
        let (graph, excluded, facts) = (&self.graph, &excluded, &facts);
        let (age_s, rtt_s, ranges) = (Some(facts as _), Some(facts as _), Some(facts as _));
        let known = ScheduleInput { graph, excluded, age_s, rtt_s, ranges };
        let wanted = self.schedule.next(&known, &mut self.random);
        self.dispatch.enqueue(wanted);
    }

    fn ordered(&self, given: GivenOrder) -> IssuedOrder {
        let slot = |position: Position| self.slots.get(position).copied().unwrap_or(Slot::MAX);
        let leg = (slot(given.pair.0), slot(given.pair.1));
        IssuedOrder { id: given.id, leg, until: given.until }
    }

    /// Ends an order. Returns false if it was not under way.
    pub fn finish_order(&mut self, id: u64, end: OrderEnd, now: Time) -> bool {
        let how = match end {
            OrderEnd::Measured(bytes) => OrderOutcome::Measured(ByteSize::from_bytes(bytes)),
            OrderEnd::Failed(bytes) => OrderOutcome::Failed(ByteSize::from_bytes(bytes)),
            OrderEnd::Busy => OrderOutcome::Busy,
            OrderEnd::Down(slot) => match self.positions.get(&slot) {
                Some(position) => OrderOutcome::Down(*position),
                None => OrderOutcome::Failed(ByteSize::from_bytes(0)),
            },
        };
        self.dispatch.finish(id, how, now).is_some()
    }

    /// Ends the orders whose deadline has passed.
    pub fn expire(&mut self, now: Time) -> Vec<IssuedOrder> {
        let expired = self.dispatch.expire(now);
        expired.into_iter().map(|given| self.ordered(given)).collect()
    }
}

/// The ages of measured legs, the round-trip times that senders saw, and the ranges that trains found.
#[derive(Debug)]
struct LegFacts<'a> {
    planned: &'a leg_graph::PlannedLegs,
    known: &'a estimate_table::EstimateTable,
    slots: &'a [Slot],
    now: Time,
}

impl LegFacts<'_> {
    fn leg(&self, pair: Pair) -> Option<(usize, usize)> {
        Some((*self.slots.get(pair.0)? as usize, *self.slots.get(pair.1)? as usize))
    }
}

impl LegAges for LegFacts<'_> {
    fn age_s(&self, pair: Pair) -> Option<f64> {
        let (from, to) = self.leg(pair)?;
        let born = self.planned.born.get(from, to)?;
        Some(f64::from(leg_graph::seconds(self.now).saturating_sub(born).max(0)))
    }
}

impl LegRanges for LegFacts<'_> {
    fn range(&self, pair: Pair) -> Option<(f64, f64)> {
        let slot = |position: Position| self.slots.get(position).copied();
        self.known.range((slot(pair.0)?, slot(pair.1)?), self.now)
    }
}

impl LegRtts for LegFacts<'_> {
    /// Either direction's report is good enough for a plan.
    fn rtt_s(&self, pair: Pair) -> Option<f64> {
        let (from, to) = self.leg(pair)?;
        let rtt_s = &self.planned.rtt_s;
        rtt_s.get(from, to).or_else(|| rtt_s.get(to, from)).map(f64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            estimate_table::TableEntry,
            nodes::tests::{member, roster},
        },
        *,
    };
    use rand_xoshiro::rand_core::SeedableRng as _;
    use thalweg_measure::{Bound, Method};

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    /// From 0 to 3: 2 Mbit/s directly, 10 over 1 or 2; 100 between all others. Both ends reported this at the
    /// beginning.
    fn known(nodes: &Nodes) -> estimate_table::EstimateTable {
        let mut known = estimate_table::EstimateTable::new();
        known.resize(nodes.len(), &[], at(0));
        for leg in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|(i, j)| i != j) {
            let mbps = match leg {
                (0, 3) => 2.0,
                (0, 1 | 2) => 10.0,
                _ => 100.0,
            };
            let (bps, spread, method, bound) = (mbps * 1e6, None, Method::Transfer, Bound::Exact);
            let (reporter, is_sole, at) = (0, false, at(0));
            let entry = TableEntry { leg, bps, spread, method, bound, reporter, is_sole, at };
            assert!(known.enter(&entry, at));
        }
        known
    }

    #[test]
    fn tcp_is_ordered_only_where_train_ranges_leave_a_decision_open() {
        let mut nodes = Nodes::default();
        let names = ["a", "b", "c", "d"].into_iter().zip(1..);
        nodes.follow(&roster(1, names.map(|(name, key)| member(name, key)).collect()));
        let ordered = |mbps: f64| {
            let mut known = known(&nodes);
            let config = MeasureConfig { p: 0.0, ..MeasureConfig::default() };
            let mut planner = Planner::new(&config, Xoshiro256PlusPlus::seed_from_u64(1));
            planner.set_first_id(1);
            planner.follow(&nodes, &[], &known);
            planner.renew(&known.live().planned().rates, &ChangedLegs::All);
            let now = at(2 * 3600);
            assert_eq!(planner.orders(&known, now, |_| true), [], "nothing is left to do");
            assert!(known.record_probe((0, 1), (mbps * 1e6, 1.5e6, false, now), now));
            planner.renew(&known.live().planned().rates, &ChangedLegs::Legs(vec![(0, 1)]));
            planner.note_available_rate((0, 1));
            let orders = planner.orders(&known, now, |_| true);
            orders.iter().map(|ordered| ordered.leg).collect::<Vec<_>>()
        };
        assert_eq!(ordered(9.0), [(0, 1)], "by 1 and by 2 it may be the same");
        assert_eq!(ordered(4.0), [], "by 2 it is faster");
    }
}
