//! Measures by bulk flows that the oracle orders, and by users' own transfers, which cost nothing extra.
//!
//! ```text
//! oracle ── GET orders (long poll) ──→ orders ── one flow at a time ──→ another member
//!    ↑                                   │ send, count                    │ receive, judge
//!    └── POST reports ←── outbox ←───────┴──── net::legs, load ─────     └→ its own report
//! ```
//!
//! The receiver judges the flow ([`thalweg_measure::bulk`]) and ends it as soon as its rate is steady. Each end reports
//! its own count: the sender what was acknowledged, the receiver what arrived. A node receives a flow only with an
//! order that the oracle has signed. It takes part in one measurement at a time, as sender or receiver, whatever the
//! oracle or a peer says (UKAIRO §2.1), and within its own bytes per day. `docs/measure.md` lists the settings and says
//! what is sent when.

mod counts;
mod flow;
mod load;
mod log_limiter;
mod meter;
mod orders;
mod outbox;
mod pace;
mod probe_budget;
mod receive;
mod report_batch;
mod reporter;
mod saved_count;
mod send;
mod used_orders;

pub use load::RelayView;
pub use probe_budget::ProbeBudget;

use crate::overlay::OverlayCounts;
use counts::FlowCounts;
use futures_util::future::BoxFuture;
use log_limiter::LogLimiter;
use orders::Orders;
use outbox::Outbox;
use pace::Pace;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use reporter::Reporter;
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use thalweg_base::{
    log::{Event, Log},
    peer_slots::PeerSlots,
};
use thalweg_measure::{Bound, bulk::BulkResult, estimators::Finding};
use thalweg_mesh::{Membership, MeshPeer, OracleClient, service::MemberService};
use thalweg_net::{
    Ed25519, PrivateKey,
    channel::{Channel, Connector},
    legs::{LegEstimate, Legs},
};
use thalweg_units::{ByteSize, NodeId, Rate};
use thalweg_wire::{
    Signer as _,
    mesh::{
        Name,
        measure::{MOST_BPS, TrainReport},
        measure_flow::{Hello, Limits, MOST_MICROS, Refusal, Verdict},
        measure_ticket::{Ticket, TicketError},
    },
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit, broadcast},
};
use used_orders::UsedOrders;

/// The longest flow, whatever is asked for (UKAIRO §3.2.1).
pub const MAX_TIME: Duration = Duration::from_secs(5);

/// The most bytes of one flow, whatever is asked for: 5 s at 1.7 Gbit/s.
pub const MAX_BYTES: ByteSize = ByteSize::from_bytes(1 << 30);

/// The fewest bytes of a flow: fewer show only slow start. If less is left of the day, no flow is begun.
const LEAST_BYTES: ByteSize = ByteSize::from_bytes(64 * 1024);

/// The most legs of relayed transfers by which the overlay may lag behind: all that a relay remembers. If it lags
/// further behind, the oldest are dropped.
const TRANSFERS: usize = 1024;

/// The most channels at a time that wait for a hello, each for at most 5 s, or have been accepted, of which there is at
/// most one. Further channels are closed, and their senders report that.
const HEARD: usize = 16;

/// The most of these channels per peer: its flow, and the hello of the next one while the flow ends. So no member takes
/// all.
const HEARD_EACH: usize = 2;

/// The prober of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Prober(Arc<ProberShared>);

/// What the prober's parts share.
#[derive(Debug)]
struct ProberShared {
    /// This node's name and key.
    name: Name,
    key: NodeId,
    membership: Membership,
    connector: Connector,
    probe_budget: Arc<ProbeBudget>,
    counts: FlowCounts,
    /// The highest rate at which this node sends or receives for measurements.
    max_rate: Mutex<Option<Rate>>,
    /// One permit: a second flow at the same time would halve both.
    lane: Arc<Semaphore>,
    /// What was observed of users' transfers, for the overlay.
    transfers: broadcast::Sender<LegEstimate>,
    /// Where transfers are observed, also on a node that relays nothing; and whether they are reported.
    legs: OnceLock<(Legs, bool)>,
    /// The overlay's counters, if there is one.
    overlay: OnceLock<OverlayCounts>,
    hearing: PeerSlots<NodeId>,
    used: UsedOrders,
    quiet: LogLimiter,
    outbox: Outbox,
    log: Log,
}

impl Prober {
    /// Creates the prober of the node `name` with this key.
    ///
    /// # Errors
    /// TLS does not accept the key; not expected.
    pub fn new(
        (name, key): (Name, &PrivateKey),
        membership: Membership,
        probe_budget: ProbeBudget,
        max_rate: Option<Rate>,
        log: Log,
    ) -> io::Result<Self> {
        let (connector, key) = (Connector::new(key)?, key.id());
        let (probe_budget, counts) = (Arc::new(probe_budget), FlowCounts::default());
        let shared = ProberShared {
            name,
            key,
            membership,
            connector,
            probe_budget,
            counts,
            max_rate: Mutex::new(max_rate),
            lane: Arc::new(Semaphore::new(1)),
            transfers: broadcast::channel(TRANSFERS).0,
            legs: OnceLock::new(),
            overlay: OnceLock::new(),
            hearing: PeerSlots::new(HEARD, HEARD_EACH),
            used: UsedOrders::default(),
            quiet: LogLimiter::default(),
            outbox: Outbox::default(),
            log,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// The bytes that measurements may cost, for this node's other measurements.
    pub fn probe_budget(&self) -> Arc<ProbeBudget> {
        Arc::clone(&self.0.probe_budget)
    }

    /// The permit that each flow holds. While another measurement holds it, there is no flow.
    pub fn lane(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.lane)
    }

    /// The highest rate at which this node sends for measurements.
    pub(crate) fn max_rate(&self) -> Option<Rate> {
        *self.0.max_rate.lock()
    }

    /// Changes the bytes of a day and the highest rate for measurements that begin from now on.
    pub fn set_limits(&self, per_day: ByteSize, max_rate: Option<Rate>) {
        self.0.probe_budget.set_per_day(per_day);
        *self.0.max_rate.lock() = max_rate;
    }

    /// Sets where this node's own transfers are observed, and whether they are reported; only the first call has an
    /// effect. Without it only what the node's relay sees is reported.
    pub fn observe_transfers(&self, legs: Legs, passive: bool) {
        _ = self.0.legs.set((legs, passive));
    }

    /// Bytes that transfers moved to each member since the last call.
    pub(crate) fn take_moved_bytes(&self) -> BTreeMap<Name, u64> {
        self.0.legs.get().map(|(legs, _)| legs.moved()).unwrap_or_default()
    }

    /// Subscribes to what transfers show of legs to members.
    pub(crate) fn transfers(&self) -> broadcast::Receiver<LegEstimate> {
        self.0.transfers.subscribe()
    }

    /// Tells the oracle what trains found on the leg to this member.
    pub(crate) fn report_probe(&self, to: Name, found: &Finding, bytes: u64) {
        let [low_bps, high_bps] = [found.low, found.high].map(|end| end.clamp(0.0, MOST_BPS));
        let (at_least, age) = (found.is_lower_bound, Duration::ZERO);
        self.0.outbox.add_finding(TrainReport {
            id: 0,
            to,
            low_bps,
            high_bps,
            at_least,
            bytes,
            age,
        });
    }

    /// Shows the overlay's counters with this prober's; only the first call has an effect.
    pub(crate) fn register_overlay(&self, overlay: OverlayCounts) {
        _ = self.0.overlay.set(overlay);
    }

    /// Registers the counters as `thalweg_measure_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counts.register(&self.0.probe_budget, registry);
    }

    /// Carries out the oracle's orders and reports, also on `relay` if this node has one, for ever; drop the future to
    /// end it.
    pub async fn run(self, client: OracleClient, relay: Option<RelayView>) {
        // One client: reports go to the oracle that gives the orders.
        let client = client.beside();
        let orders = Orders { shared: &self.0, client: client.clone() };
        let reporter = Reporter { shared: &self.0, client, relay };
        tokio::join!(orders.run(), reporter.run());
    }
}

impl ProberShared {
    /// The limits that this node itself sets for a flow now; `None` if the day's bytes are used up.
    fn limits(&self) -> Option<Limits> {
        let left = self.probe_budget.left();
        let millis = MAX_TIME.as_millis() as u32;
        (left >= LEAST_BYTES).then(|| Limits { bytes: left.min(MAX_BYTES).as_bytes(), millis })
    }

    /// Whether a rate is the node's own limit rather than the path's.
    fn is_own_limit(&self, bps: f64) -> bool {
        self.max_rate.lock().is_some_and(|most| bps >= 0.9 * most.as_bps() as f64)
    }
}

/// The serving side: flows of other members, which arrive at the node's port.
impl ProberShared {
    async fn receive(
        &self,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<FlowEnd> {
        let heard = self.hearing.enter(peer.key());
        let _heard =
            heard.ok_or_else(|| io::Error::other("too many measurement channels at a time"))?;
        let hello = receive::hello(&mut channel).await?;
        match self.admit(&hello, peer) {
            Ok((ticket, limits, _place)) => {
                let found = self.judge(channel, peer, limits).await?;
                Ok(found.map_or(FlowEnd::Nothing, |found| FlowEnd::Found(ticket.order, found)))
            }
            Err(refusal) => {
                receive::refuse(channel, refusal).await?;
                Ok(FlowEnd::Refused(refusal))
            }
        }
    }

    /// Returns the order, its limits, and the permit of the lane. Nothing changes if the oracle has not sent the peer.
    /// A peer that finds this node busy may come again with the same order.
    fn admit(
        &self,
        hello: &Hello,
        peer: &MeshPeer,
    ) -> Result<(Ticket, Limits, SemaphorePermit<'_>), Refusal> {
        let root = self.membership.mesh();
        let roster = self.membership.current();
        let signing = roster.map_or(root, |roster| roster.signing_key(root));
        let mesh = (&signing, &Ed25519);
        let (pair, now) = ((&peer.key(), &self.key), self.membership.now());
        let ticket = Ticket::admit(&hello.ticket, mesh, pair, now).map_err(Refusal::Void)?;
        if self.used.has(ticket.order) {
            return Err(Refusal::Void(TicketError::Used));
        }
        let place = self.lane.try_acquire().map_err(|_| Refusal::Busy)?;
        let own = self.limits().ok_or(Refusal::Budget)?;
        let own = Limits { bytes: own.bytes.min(ticket.bytes), ..own };
        match self.used.spend(ticket.order) {
            true => Ok((ticket, hello.limits.tightest(own), place)),
            false => Err(Refusal::Void(TicketError::Used)),
        }
    }

    async fn judge(
        &self,
        channel: Channel<TcpStream>,
        peer: &MeshPeer,
        limits: Limits,
    ) -> io::Result<Option<Verdict>> {
        let (tcp, early) = receive::accept(channel, limits).await?;
        let pace = Pace::new(*self.max_rate.lock());
        // Charged also if the future is dropped meanwhile.
        let mut flow =
            ChargedFlow { flow: receive::Flow::new(tcp, &early, limits, pace), shared: self, peer };
        let found = flow.flow.judge(limits.time()).await;
        let verdict = self.verdict(found);
        flow.flow.send_verdict(verdict).await;
        Ok(found.map(|_| verdict))
    }

    /// The verdict for the sender; its rate is 0 if nothing arrived. A rate that this node's own setting limits is no
    /// steady rate of the path.
    fn verdict(&self, found: Option<BulkResult>) -> Verdict {
        let Some(found) = found else {
            let (spread_bps, steady, at_least) = (None, false, true);
            return Verdict { bytes: 0, micros: 0, bps: 0.0, spread_bps, steady, at_least };
        };
        let is_own = self.is_own_limit(found.bps);
        Verdict {
            bytes: found.bytes,
            micros: (found.took.as_micros() as u64).min(MOST_MICROS),
            bps: found.bps.min(MOST_BPS),
            spread_bps: found.spread_bps.map(|spread| spread.min(MOST_BPS)),
            steady: found.is_steady() && !is_own,
            at_least: found.bound == Bound::AtLeast || is_own,
        }
    }

    fn log_received(&self, peer: &MeshPeer, from: SocketAddr, ended: io::Result<FlowEnd>) {
        let name = &peer.member().name;
        self.counts.count(false, outcome_of(&ended));
        let event = Event::new("measured_by").with("peer", name).with("client", from);
        if let Ok(FlowEnd::Found(order, found)) = ended {
            self.outbox.add_received(order, name.clone(), &found);
            let event = event.with_number("order", order).with_number("bps", found.bps as u64);
            return self.log.put(event.with_number("bytes", found.bytes));
        }
        // A member can cause these as often as it likes.
        let Some(unsaid) = self.quiet.passes(peer.key()) else { return };
        let event = if unsaid > 0 { event.with_number("unsaid", unsaid) } else { event };
        self.log.put(match ended {
            Ok(FlowEnd::Refused(why)) => event.with("refused", why),
            Ok(_) => event.with("why", "no data arrived"),
            Err(e) => event.with("why", e),
        });
    }
}

/// How a received flow ended.
enum FlowEnd {
    /// It belonged to this order, and was judged.
    Found(u64, Verdict),
    Refused(Refusal),
    /// It was accepted, and nothing arrived.
    Nothing,
}

impl MemberService for Prober {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let ended = peer.unless_revoked(shared.receive(channel, &peer)).await;
            shared.log_received(&peer, from, ended.unwrap_or_else(|e| Err(e.into())));
        })
    }

    /// The overlay's report; null if there is none.
    fn report(&self) -> serde_json::Value {
        self.0.overlay.get().map(OverlayCounts::report).unwrap_or_default()
    }
}

fn outcome_of(ended: &io::Result<FlowEnd>) -> counts::FlowOutcome {
    match ended {
        Ok(FlowEnd::Found(_, found)) if found.at_least => counts::FlowOutcome::AtLeast,
        Ok(FlowEnd::Found(..)) => counts::FlowOutcome::Measured,
        Ok(FlowEnd::Refused(_)) => counts::FlowOutcome::Refused,
        Ok(FlowEnd::Nothing) | Err(_) => counts::FlowOutcome::Failed,
    }
}

/// A flow whose bytes are charged when it is dropped.
struct ChargedFlow<'a> {
    flow: receive::Flow,
    shared: &'a ProberShared,
    peer: &'a MeshPeer,
}

impl Drop for ChargedFlow<'_> {
    fn drop(&mut self) {
        self.shared.probe_budget.charge(self.peer.key(), self.flow.bytes);
    }
}
