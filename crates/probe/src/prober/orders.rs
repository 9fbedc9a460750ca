//! The oracle's orders, one after the other.

use super::{
    LEAST_BYTES, MAX_TIME, Shared, counts::Ended, flow::AFTER, pace::Pace, reach::Unreached, send,
};
use std::time::Duration;
use thalweg_base::log::Event;
use thalweg_measure::Bound;
use thalweg_mesh::{OracleClient, OracleError};
use thalweg_net::legs::SeenLeg;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    Member, Name,
    measure::{Done, MOST_BPS, Order, Outcome},
    measure_flow::{Hello, Limits, MAX_MESSAGE, Refusal},
    measure_ticket::Ticket,
};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep, timeout_at},
};

/// How long a request waits at the oracle, as that for the roster.
const WAIT: Duration = Duration::from_secs(20);

/// Pauses after failures: the first, twice the last each time, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The least time between two answers without orders, should an oracle not wait.
const LEAST: Duration = Duration::from_millis(250);

/// The most orders of one answer; an oracle gives one or two.
const MOST: usize = 16;

/// For ever: asks, carries out, puts the outcome into the outbox.
pub(super) async fn run(shared: &Shared, client: OracleClient) {
    let mut pause = FIRST;
    loop {
        if client.oracles().is_empty() {
            sleep(WAIT).await;
            continue;
        }
        let began = Instant::now();
        match client.orders(WAIT).await {
            Ok(orders) => {
                pause = FIRST;
                let answered = Instant::now();
                let is_idle = orders.orders.is_empty();
                for order in orders.orders.into_iter().take(MOST) {
                    shared.carry_out(order, answered).await;
                }
                if is_idle {
                    sleep(LEAST.saturating_sub(began.elapsed())).await;
                }
            }
            Err(error) => {
                shared.tell_unasked(&error, pause);
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

impl Shared {
    /// Once for each time that asking begins to fail: whoever waits long is quiet.
    fn tell_unasked(&self, error: &OracleError, pause: Duration) {
        if pause == FIRST {
            self.log.put(Event::new("no_orders").with("why", error));
        }
    }

    /// Measures as ordered, which came at `answered`; tells the log and the outbox.
    async fn carry_out(&self, order: Order, answered: Instant) {
        let until = answered + order.valid_for.min(LONGEST);
        let (id, to) = (order.id, order.to.clone());
        let outcome = self.measure(&order, until).await;
        self.hint(&order.to, &outcome);
        let event = Event::new("measured").with("to", to).with_number("order", id);
        self.log.put(told_in(event, &outcome));
        self.counts.ended(true, Ended::of(&outcome));
        self.outbox.done(Done { id, outcome });
    }

    /// The overlay, if there is one, hears what TCP got, as of a member's own transfer.
    fn hint(&self, to: &Name, outcome: &Outcome) {
        if let Outcome::Measured { bps, at_least, bytes, age, .. } = *outcome {
            _ = self.transfers.send(SeenLeg { to: to.clone(), bps, at_least, bytes, age });
        }
    }

    async fn measure(&self, order: &Order, until: Instant) -> Outcome {
        let (member, key) = match self.partner(&order.to) {
            Ok(partner) => partner,
            Err(why) => return unreached(&why),
        };
        // It may be receiving just now.
        let place = timeout_at(until, self.lane.acquire()).await;
        let (Ok(Ok(place)), true) = (place, Instant::now() < until) else {
            return Outcome::Busy;
        };
        let Some(own) = self.limits() else { return failed(OWN_BUDGET, 0) };
        let asked = Limits {
            bytes: order.max_bytes.max(LEAST_BYTES.as_bytes()),
            millis: order.max_time.min(MAX_TIME).as_millis() as u32,
        };
        let ticket = Ticket::bytes_of(&order.ticket).filter(|bytes| bytes.len() < MAX_MESSAGE);
        let Some(ticket) = ticket else { return failed("the order has no readable ticket", 0) };
        let hello = Hello { ticket, limits: asked.tightest(own) };
        let gone = self.membership.left_any(vec![key, self.key]);
        tokio::select! {
            biased;
            () = gone => failed("the member or this node is revoked", 0),
            outcome = self.flow(place, order, hello, &member, key) => outcome,
        }
    }

    /// With the lane's place, to the flow's end.
    async fn flow(
        &self,
        _place: SemaphorePermit<'_>,
        order: &Order,
        hello: Hello,
        member: &Member,
        key: NodeId,
    ) -> Outcome {
        let control = order.congestion_control.as_deref();
        let channel = match self.reach(member, key, control).await {
            Ok(channel) => channel,
            Err(why) => return unreached(&why),
        };
        match send::send(channel, hello, || Pace::new(self.max_rate)).await {
            Ok(sent) => {
                self.purse.charge(key, sent.bytes);
                self.judged(order, &sent)
            }
            Err(send::Failed { why: send::Why::Refused(Refusal::Busy), .. }) => Outcome::Busy,
            Err(error) => {
                self.purse.charge(key, error.bytes);
                failed(&error.to_string(), error.bytes)
            }
        }
    }

    /// The rate is this node's own: the receiver's word ended the flow, and says whether its rate
    /// was steady, but is passed on by nobody. Where the two do not agree, this end's alone counts
    /// here, and the oracle hears both.
    fn judged(&self, order: &Order, sent: &send::Sent) -> Outcome {
        let verdict = sent.verdict;
        let own = match sent.own {
            Some(own) if verdict.bytes > 0 => own,
            Some(_) => return failed("the receiver says that nothing came", sent.bytes),
            None => return failed("nothing that was sent was acknowledged", sent.bytes),
        };
        let bps = own.bps.min(MOST_BPS);
        let agree = bps.max(verdict.bps) <= AGREE * bps.min(verdict.bps);
        if !agree {
            let event = Event::new("measured_otherwise").with("to", &order.to);
            let event = event.with_number("order", order.id).with_number("bps", bps as u64);
            self.log.put(event.with_number("receiver_bps", verdict.bps as u64));
        }
        let (steady, at_least) = match agree {
            true => (verdict.steady, verdict.at_least),
            false => (own.is_steady(), own.bound == Bound::AtLeast),
        };
        let is_own_limit = self.is_own_limit(bps);
        Outcome::Measured {
            bps,
            spread_bps: own.spread_bps.map(|spread| spread.min(MOST_BPS)),
            bytes: sent.bytes,
            took: own.took.min(MAX_TIME + AFTER),
            steady: steady && !is_own_limit,
            at_least: at_least || is_own_limit,
            rtt_s: sent.round_trip.map(|d| d.as_secs_f64()),
            age: Duration::ZERO,
        }
    }
}

/// Two rates are the same if the greater is at most so many times the lower, as the oracle takes
/// it.
const AGREE: f64 = 1.25;

const OWN_BUDGET: &str = "this node's bytes for measurements are used up for today";

fn failed(why: &str, bytes: u64) -> Outcome {
    Outcome::Failed { why: why.to_owned(), is_down: false, bytes }
}

fn unreached(why: &Unreached) -> Outcome {
    Outcome::Failed { why: why.to_string(), is_down: why.is_down(), bytes: 0 }
}

fn told_in(event: Event, outcome: &Outcome) -> Event {
    match outcome {
        Outcome::Measured { bps, bytes, took, steady, at_least, .. } => event
            .with_number("bps", *bps as u64)
            .with_number("bytes", *bytes)
            .with_number("took_ms", took.as_millis())
            .with("steady", steady)
            .with("at_least", at_least),
        Outcome::Busy => event.with("why", "one of the two is in another measurement"),
        Outcome::Failed { why, is_down, bytes } => {
            event.with("why", why).with("down", is_down).with_number("bytes", *bytes)
        }
    }
}
