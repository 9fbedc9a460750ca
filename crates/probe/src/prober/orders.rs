//! Carries out the oracle's orders, one after the other.

use super::{
    LEAST_BYTES, MAX_TIME, ProberShared,
    counts::FlowOutcome,
    flow::{AFTER, STEP},
    pace::Pace,
    send,
};
use socket2::SockRef;
use std::{net::SocketAddr, time::Duration};
use thalweg_base::log::Event;
use thalweg_measure::Bound;
use thalweg_mesh::{OracleClient, OracleError};
use thalweg_net::{
    Cause, DialOptions, SocketOptions,
    channel::{Channel, ChannelError, Protocol},
    connect,
    legs::LegEstimate,
    resolve,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    Member, Name,
    measure::{MOST_BPS, Order, OrderReport, Outcome},
    measure_flow::{Hello, Limits, MAX_MESSAGE, Refusal},
    measure_ticket::Ticket,
};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::SemaphorePermit,
    time::{Instant, sleep, timeout, timeout_at},
};

/// How long a request waits at the oracle, as for the roster.
const WAIT: Duration = Duration::from_secs(20);

/// Pauses after failures: the first one, which doubles each time, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The least time between two answers without orders, in case an oracle does not wait.
const LEAST: Duration = Duration::from_millis(250);

/// The most orders that are taken from one answer; an oracle gives one or two.
const MOST: usize = 16;

/// The longest name of a congestion control in Linux, bytes (`TCP_CA_NAME_MAX`).
const CONTROL_BYTES: usize = 15;

/// Two rates agree if the greater is at most this many times the lower; the oracle uses the same factor.
const AGREE: f64 = 1.25;

const OWN_BUDGET: &str = "this node's bytes for measurements are used up for today";

/// Carries out the oracle's orders.
pub(super) struct Orders<'a> {
    pub(super) shared: &'a ProberShared,
    pub(super) client: OracleClient,
}

impl Orders<'_> {
    /// Asks for orders, carries them out, and puts the outcomes into the outbox, for ever.
    pub(super) async fn run(self) {
        let mut pause = FIRST;
        loop {
            if self.client.oracles().is_empty() {
                sleep(WAIT).await;
                continue;
            }
            let began = Instant::now();
            match self.client.orders(WAIT).await {
                Ok(orders) => {
                    pause = FIRST;
                    let answered = Instant::now();
                    let is_idle = orders.orders.is_empty();
                    for order in orders.orders.into_iter().take(MOST) {
                        self.carry_out(order, answered).await;
                    }
                    if is_idle {
                        sleep(LEAST.saturating_sub(began.elapsed())).await;
                    }
                }
                Err(error) => {
                    self.log_failed_request(&error, pause);
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST);
                }
            }
        }
    }

    /// Logs only the first of several failures in a row.
    fn log_failed_request(&self, error: &OracleError, pause: Duration) {
        if pause == FIRST {
            self.shared.log.put(Event::new("no_orders").with("why", error));
        }
    }

    /// Carries out an order that came at `answered`, and puts the outcome into the log and the outbox.
    async fn carry_out(&self, order: Order, answered: Instant) {
        let until = answered + order.valid_for.min(LONGEST);
        let (id, to) = (order.id, order.to.clone());
        let outcome = self.measure(&order, until).await;
        self.tell_overlay(&order.to, &outcome);
        let event = Event::new("measured").with("to", to).with_number("order", id);
        self.shared.log.put(with_outcome(event, &outcome));
        self.shared.counts.count(true, FlowOutcome::of(&outcome));
        self.shared.outbox.add_outcome(OrderReport { id, outcome });
    }

    /// Tells the overlay, if there is one, the rate that TCP reached, as for a member's own transfer.
    fn tell_overlay(&self, to: &Name, outcome: &Outcome) {
        if let Outcome::Measured { bps, at_least, bytes, age, .. } = *outcome {
            _ = self.shared.transfers.send(LegEstimate {
                to: to.clone(),
                bps,
                at_least,
                bytes,
                age,
            });
        }
    }

    async fn measure(&self, order: &Order, until: Instant) -> Outcome {
        let (member, key) = match self.partner(&order.to) {
            Ok(partner) => partner,
            Err(why) => return unreached(&why),
        };
        // This node may be receiving just now.
        let place = timeout_at(until, self.shared.lane.acquire()).await;
        let (Ok(Ok(place)), true) = (place, Instant::now() < until) else {
            return Outcome::Busy;
        };
        let Some(own) = self.shared.limits() else { return failed(OWN_BUDGET, 0) };
        let asked = Limits {
            bytes: order.max_bytes.max(LEAST_BYTES.as_bytes()),
            millis: order.max_time.min(MAX_TIME).as_millis() as u32,
        };
        let ticket = Ticket::bytes_of(&order.ticket).filter(|bytes| bytes.len() < MAX_MESSAGE);
        let Some(ticket) = ticket else { return failed("the order's ticket is invalid", 0) };
        let hello = Hello { ticket, limits: asked.tightest(own) };
        let gone = self.shared.membership.wait_for_removal_of_any(vec![key, self.shared.key]);
        tokio::select! {
            biased;
            () = gone => failed("the member or this node is revoked", 0),
            outcome = self.flow(place, order, hello, &member, key) => outcome,
        }
    }

    /// Runs the flow to its end, with the permit of the lane.
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
        match send::send(channel, hello, || Pace::new(*self.shared.max_rate.lock())).await {
            Ok(sent) => {
                self.shared.probe_budget.charge(key, sent.bytes);
                self.outcome_of(order, &sent)
            }
            Err(send::SendFailure { why: send::FlowError::Refused(Refusal::Busy), .. }) => {
                Outcome::Busy
            }
            Err(error) => {
                self.shared.probe_budget.charge(key, error.bytes);
                failed(&error.to_string(), error.bytes)
            }
        }
    }

    /// The outcome of a flow. Its rate is this node's own: the receiver's verdict ended the flow and says whether its
    /// rate was steady, but the verdict's rate is not passed on. If the two rates disagree, this end alone decides
    /// whether its rate is steady, and the oracle hears both rates.
    fn outcome_of(&self, order: &Order, sent: &send::SentFlow) -> Outcome {
        let verdict = sent.verdict;
        let own = match sent.own {
            Some(own) if verdict.bytes > 0 => own,
            Some(_) => return failed("the receiver reports that no data arrived", sent.bytes),
            None => return failed("the receiver acknowledged none of the sent data", sent.bytes),
        };
        let bps = own.bps.min(MOST_BPS);
        let agree = bps.max(verdict.bps) <= AGREE * bps.min(verdict.bps);
        if !agree {
            let event = Event::new("measured_otherwise").with("to", &order.to);
            let event = event.with_number("order", order.id).with_number("bps", bps as u64);
            self.shared.log.put(event.with_number("receiver_bps", verdict.bps as u64));
        }
        let (steady, at_least) = match agree {
            true => (verdict.steady, verdict.at_least),
            false => (own.is_steady(), own.bound == Bound::AtLeast),
        };
        let is_own_limit = self.shared.is_own_limit(bps);
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

    /// The member to send to, and its key.
    fn partner(&self, to: &Name) -> Result<(Member, NodeId), Unreached> {
        let roster = self.shared.membership.current();
        let member = roster.as_ref().and_then(|roster| roster.by_name(to)).cloned();
        let member = member.ok_or(Unreached::Nobody("the roster has no member of this name"))?;
        match member.node {
            Some(key) if key == self.shared.key => {
                Err(Unreached::Nobody("the member is this node itself"))
            }
            Some(_) if !member.is_dialled() => {
                Err(Unreached::Nobody("the member has no address in the roster"))
            }
            Some(key) => Ok((member, key)),
            None => Err(Unreached::Nobody("the member does not run a node")),
        }
    }

    /// Opens a channel to the member, over a connection that uses this congestion control from the first data on.
    async fn reach(
        &self,
        member: &Member,
        key: NodeId,
        control: Option<&str>,
    ) -> Result<Channel<TcpStream>, Unreached> {
        let options = options(control)?;
        // All steps together end within the half minute for which an order is valid.
        let dial = DialOptions { deadline: STEP, ..DialOptions::default() };
        let connecting = async { connect(&addresses(member).await?, None, &dial).await };
        let late = || Err(Cause::TimedOut(dial.deadline));
        let tcp = timeout(dial.deadline, connecting).await.unwrap_or_else(|_| late());
        let tcp = tcp.map_err(|cause| Unreached::Down(cause.to_string()))?;
        let set = options.apply(SockRef::from(&tcp));
        set.map_err(|e| Unreached::Here(e.to_string()))?;
        let handshake = self.shared.connector.connect(tcp, key, Protocol::Measure);
        match timeout(STEP, handshake).await {
            Ok(Ok(channel)) => Ok(channel),
            // Another host has its address, or nothing answers there.
            Ok(Err(e @ ChannelError::WrongKey(_))) => Err(Unreached::Down(e.to_string())),
            Ok(Err(e)) => Err(Unreached::Declined(e)),
            Err(_) => Err(Unreached::Down(format!("no answer from the member within {STEP:?}"))),
        }
    }
}

fn failed(why: &str, bytes: u64) -> Outcome {
    Outcome::Failed { why: why.to_owned(), is_down: false, bytes }
}

fn unreached(why: &Unreached) -> Outcome {
    Outcome::Failed { why: why.to_string(), is_down: why.is_down(), bytes: 0 }
}

fn with_outcome(event: Event, outcome: &Outcome) -> Event {
    match outcome {
        Outcome::Measured { bps, bytes, took, steady, at_least, .. } => event
            .with_number("bps", *bps as u64)
            .with_number("bytes", *bytes)
            .with_number("took_ms", took.as_millis())
            .with("steady", steady)
            .with("at_least", at_least),
        Outcome::Busy => {
            event.with("why", "this node or the member is busy with another measurement")
        }
        Outcome::Failed { why, is_down, bytes } => {
            event.with("why", why).with("down", is_down).with_number("bytes", *bytes)
        }
    }
}

/// Why there is no channel to the member.
#[derive(Debug, Error)]
enum Unreached {
    /// The roster has no such node, or no address for it.
    #[error("{0}")]
    Nobody(&'static str),
    /// This host or its settings do not permit it.
    #[error("{0}")]
    Here(String),
    /// None of its addresses accepts a connection, or another host is there.
    #[error("{0}")]
    Down(String),
    /// It is alive, but refuses.
    #[error("{0}")]
    Declined(#[source] ChannelError),
}

impl Unreached {
    /// Whether the node could not be reached at all.
    fn is_down(&self) -> bool {
        matches!(self, Self::Down(_))
    }
}

/// The oracle names the congestion control; the kernel alone decides whether it may be used.
fn options(control: Option<&str>) -> Result<SocketOptions, Unreached> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    let is_name = |c: &&str| (1..=CONTROL_BYTES).contains(&c.len()) && c.bytes().all(letter);
    if control.is_some_and(|c| !is_name(&c)) {
        return Err(Unreached::Here(
            "the congestion control in the order is not a valid name".into(),
        ));
    }
    let congestion = control.map(str::to_owned);
    Ok(SocketOptions { congestion, ..SocketOptions::default() })
}

/// All addresses of a member, in order, without names that do not resolve.
async fn addresses(member: &Member) -> Result<Vec<SocketAddr>, Cause> {
    let mut all = Vec::new();
    let mut failed = Cause::NoAddress;
    for destination in member.dialled_addresses() {
        match resolve(destination).await {
            Ok(found) => all.extend(found),
            Err(cause) => failed = cause,
        }
    }
    if all.is_empty() { Err(failed) } else { Ok(all) }
}
