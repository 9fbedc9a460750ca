//! Takes in members' reports. Each member reports only on legs of which it is an end.

use super::{
    estimate_table::{Leg, TableEntry},
    nodes::Slot,
    orders::Claim,
    planner::OrderEnd,
    settings::MeasureConfig,
    state::{CurrentTime, Failure, MeasureState},
    tally::Count,
    verdict::check_rate,
};
use std::time::Duration;
use thalweg_measure::MAX_SPARE_AGE;
use thalweg_plan::graph::MAX_AGE;
use thalweg_units::Time;
use thalweg_wire::mesh::{
    Name,
    measure::{
        Load, OrderReport, Outcome, PassiveReport, ReceivedReport, Reports, ReportsReply,
        TrainReport,
    },
};

/// The least size of a passive transfer, bytes, for an exact rate. A shorter one shows slow start, so the leg may be
/// faster.
const LEAST_PASSIVE: u64 = 1_000_000;

/// The most reasons in one reply; further refusals are only counted.
const REASONS: usize = 16;

/// Whether an entry was new, or why it is refused.
type ReportResult = Result<bool, String>;

/// Takes in the reports of one member.
pub(super) struct ReportIntake<'a> {
    pub state: &'a mut MeasureState,
    pub config: &'a MeasureConfig,
    pub who: Slot,
    pub now: CurrentTime,
}

impl ReportIntake<'_> {
    /// Accepts valid entries. Invalid ones are refused one by one, with a reason.
    pub fn take(&mut self, reports: Reports) -> ReportsReply {
        self.state.presence.record_contact(self.who, self.now.time);
        let mut taken: Vec<ReportResult> = vec![];
        taken.extend(reports.done.into_iter().map(|done| self.take_outcome(done)));
        taken.extend(reports.received.iter().map(|received| self.take_received(received)));
        taken.extend(reports.passive.iter().map(|watched| self.take_passive(watched)));
        taken.extend(reports.probed.iter().map(|probed| self.take_probe(probed)));
        taken.extend(reports.load.map(|load| self.take_load(load)));
        self.state.settle(self.now, &self.config.pace);
        self.reply(taken)
    }

    fn reply(&mut self, taken: Vec<ReportResult>) -> ReportsReply {
        let mut reply = ReportsReply::default();
        let mut more: u64 = 0;
        for entry in taken {
            match entry {
                Ok(true) => reply.accepted += 1,
                Ok(false) => self.state.tally.count(Count::Repeated),
                Err(why) if reply.refused.len() < REASONS => reply.refused.push(why),
                Err(_) => more += 1,
            }
        }
        if let Some(why) = reply.refused.first().cloned() {
            self.state.record_refusal(self.who, why, self.now.time);
        }
        self.state.tally.add(Count::Refused, reply.refused.len() as u64 + more);
        if more > 0 {
            reply.refused.push(format!("and {more} more"));
        }
        reply
    }

    /// The leg of an order, if this member is the end that `own` selects. `None` if the order has ended, so that this
    /// is a second report.
    fn order(&mut self, id: u64, own: impl Fn(Leg) -> Slot) -> Result<Option<Leg>, String> {
        match self.state.orders.get(id).map(|order| order.leg) {
            Some(leg) if own(leg) == self.who => Ok(Some(leg)),
            Some(_) => Err(format!("order {id} belongs to another member")),
            None if self.state.orders.has_ended(id) => Ok(None),
            None => Err(format!(
                "order {id} is not known here: it ended long ago, or another oracle gave it"
            )),
        }
    }

    fn take_outcome(&mut self, OrderReport { id, outcome }: OrderReport) -> ReportResult {
        let Some(leg) = self.order(id, |leg| leg.0)? else { return Ok(false) };
        match outcome {
            Outcome::Measured { bps, spread_bps, bytes, at_least, rtt_s, age, .. } => {
                let spread = spread_bps.map_or(Ok(()), |spread| check_rate("a spread", spread));
                let claim = self.claim(id, leg, bps, bytes, age);
                let Some(claim) = claim
                    .and_then(|claim| spread.map(|()| claim))
                    .inspect_err(|_| self.discard(id))?
                else {
                    return Ok(false);
                };
                rtt_s.iter().for_each(|rtt_s| self.state.known.note_rtt(leg, *rtt_s));
                self.take_measurement(id, leg, Claim { spread: spread_bps, at_least, ..claim })
            }
            Outcome::Busy => {
                self.state.planner.finish_order(id, OrderEnd::Busy, self.now.time);
                self.state.orders.drop(id);
                Ok(true)
            }
            Outcome::Failed { is_down, bytes, why } => {
                self.state.failed = Some(Failure::new(leg, &why, self.now.time));
                Ok(self.take_failure(id, leg, is_down, bytes))
            }
        }
    }

    /// The rate claimed by one end; `None` if that end has reported before.
    fn claim(
        &mut self,
        id: u64,
        leg: Leg,
        bps: f64,
        bytes: u64,
        age: Duration,
    ) -> Result<Option<Claim>, String> {
        let is_sender = leg.0 == self.who;
        let now = self.now.time;
        let Some(order) = self.state.orders.get(id) else { return Ok(None) };
        let said = if is_sender { order.sender } else { order.receiver };
        if said.is_some() {
            return Ok(None);
        }
        check_rate("a rate", bps).inspect_err(|_| self.state.known.blame(self.who))?;
        let most = self.config.test_bytes.as_bytes().saturating_mul(2);
        if bytes > most {
            return Err(format!("{bytes} bytes in one measurement are more than was ordered"));
        }
        let at = order_date(self.state, id, age, now);
        Ok(Some(Claim { bps, spread: None, bytes, at_least: false, at }))
    }

    /// Ends an order with an invalid report as failed.
    fn discard(&mut self, id: u64) {
        let most = self.config.test_bytes.as_bytes();
        self.state.planner.finish_order(id, OrderEnd::Failed(most), self.now.time);
        self.state.orders.drop(id);
    }

    /// The cost of an order: the greater of both ends' byte counts, and at most what was ordered. So neither end can
    /// use up the other's daily budget with a large number, or hide what it sent.
    fn cost(&mut self, id: u64, said: u64) -> u64 {
        let other = self.state.orders.get(id).and_then(|order| order.receiver);
        let most = self.config.test_bytes.as_bytes();
        other.map_or(said, |claim| claim.bytes.max(said)).min(most)
    }

    fn take_measurement(&mut self, id: u64, leg: Leg, claim: Claim) -> ReportResult {
        let bytes = self.cost(id, claim.bytes);
        if let Some(order) = self.state.orders.get(id) {
            (order.sender, order.charged) = (Some(claim), bytes);
        }
        self.state.orders.close(id, self.now.time);
        self.state.planner.finish_order(id, OrderEnd::Measured(bytes), self.now.time);
        self.state.presence.record_reached(leg.1, leg.0);
        Ok(true)
    }

    /// Handles a failed order. One member's report that another is down counts only if that one is silent as well, or
    /// if many members report the same.
    fn take_failure(&mut self, id: u64, leg: Leg, is_down: bool, bytes: u64) -> bool {
        let (now, bytes) = (self.now.time, self.cost(id, bytes));
        self.state.tally.count(Count::Failed);
        self.state.tally.add(Count::Bytes, bytes);
        if is_down {
            self.state.presence.record_unreached(leg.1, leg.0, now);
        }
        let reached_by = self.state.planner.reached_by(leg.1);
        let is_there = self.state.presence.is_there(leg.1, now, self.config.pace.silent)
            && !self.state.presence.is_unreached(leg.1, reached_by, now);
        let end =
            if is_down && !is_there { OrderEnd::Down(leg.1) } else { OrderEnd::Failed(bytes) };
        self.state.planner.finish_order(id, end, now);
        self.state.orders.drop(id);
        true
    }

    fn take_received(&mut self, received: &ReceivedReport) -> ReportResult {
        let ReceivedReport { id, from, bps, bytes, at_least, age } = received;
        let Some(leg) = self.order(*id, |leg| leg.1)? else { return Ok(false) };
        if self.slot(from)? != leg.0 {
            let sender = self.state.nodes.name(leg.0);
            return Err(format!("{sender} is the sender of order {id}, not {from}"));
        }
        let Some(claim) = self.claim(*id, leg, *bps, *bytes, *age)? else { return Ok(false) };
        let cost = self.cost(*id, claim.bytes);
        if let Some(order) = self.state.orders.get(*id) {
            order.receiver = Some(Claim { at_least: *at_least, ..claim });
            let more = cost.saturating_sub(order.charged);
            if order.sender.is_some() && more > 0 {
                order.charged = cost;
                self.state.planner.charge(leg, more, self.now.time);
            }
        }
        Ok(true)
    }

    fn slot(&self, name: &Name) -> Result<Slot, String> {
        let unknown = || format!("no member is named {name}");
        self.state.nodes.by_name(name).ok_or_else(unknown)
    }

    fn take_passive(&mut self, watched: &PassiveReport) -> ReportResult {
        let PassiveReport { id, from, to, bps, at_least, bytes, age } = watched;
        let leg = (self.slot(from)?, self.slot(to)?);
        if leg.0 == leg.1 || (leg.0 != self.who && leg.1 != self.who) {
            return Err(format!(
                "this member is not an end of the leg {from} → {to}; members report only their own \
                 legs"
            ));
        }
        check_rate("a rate", *bps).inspect_err(|_| self.state.known.blame(self.who))?;
        if *age > MAX_AGE {
            return Err(format!("the observation of {from} → {to} is older than two weeks"));
        }
        if !self.state.repeats.is_new(self.who, *id) {
            return Ok(false);
        }
        self.state.tally.count(Count::Passive);
        let claim = (*bps, *at_least || *bytes < LEAST_PASSIVE, self.now.time - *age);
        let entry = self.state.known.judge_passive(leg, self.who, claim, self.now.time);
        self.state.enter(&entry, self.now.time);
        self.store(&entry, *bytes);
        Ok(true)
    }

    /// Takes the available bandwidth of a leg from this member. It is not stored in the history, because it is
    /// worthless after an hour.
    fn take_probe(&mut self, probed: &TrainReport) -> ReportResult {
        let TrainReport { id, to, low_bps, high_bps, at_least, age, .. } = probed;
        let leg = (self.who, self.slot(to)?);
        if leg.0 == leg.1 {
            return Err(format!("there is no leg from {to} to itself"));
        }
        let ends = check_rate("a rate", *low_bps).and(check_rate("a rate", *high_bps));
        ends.inspect_err(|_| self.state.known.blame(self.who))?;
        if low_bps > high_bps {
            return Err(format!(
                "the range of the available bandwidth to {to} ends before it begins"
            ));
        }
        if *age > MAX_SPARE_AGE {
            return Err(format!(
                "the measurement of the available bandwidth to {to} is older than \
                                an hour"
            ));
        }
        if !self.state.repeats.is_new(self.who, *id) {
            return Ok(false);
        }
        self.state.tally.count(Count::Probed);
        let (now, spread) = (self.now.time, (high_bps - low_bps) / 2.0);
        let found = (f64::midpoint(*low_bps, *high_bps), spread, *at_least, now - *age);
        if self.state.known.record_probe(leg, found, now) {
            self.state.planner.note_available_rate(leg);
            self.state.changes += 1;
        }
        Ok(true)
    }

    fn store(&mut self, entry: &TableEntry, bytes: u64) {
        if self.state.is_news(entry, self.now.time) {
            let seen = (!entry.is_sole).then_some(entry.bps);
            self.state.record(entry, None, bytes, seen, self.now);
        }
    }

    fn take_load(&mut self, load: Load) -> ReportResult {
        if !self.state.nodes.is_relay(self.who) {
            return Err("only relays report a load".into());
        }
        self.state.loads.report(self.who, load, self.now.time)?;
        self.state.changes += 1;
        Ok(true)
    }
}

/// When a measurement ended, from its age by the reporter's clock.
fn order_date(state: &mut MeasureState, id: u64, age: Duration, now: Time) -> Time {
    state.orders.get(id).map_or(now, |order| order.date(age, now))
}
