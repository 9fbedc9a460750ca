//! Measuring by bulk flows that the oracle orders, and by users' own transfers, which cost nothing
//! extra.
//!
//! ```text
//! oracle ── GET orders (long poll) ──→ orders ── one flow at a time ──→ another member
//!    ↑                                   │ send, count                    │ receive, judge
//!    └── POST reports ←── outbox ←───────┴──── net::legs, load ─────     └→ its own report
//! ```
//!
//! The receiver judges ([`thalweg_measure::bulk`]) and ends the flow as soon as its rate is
//! steady. Each end reports what it counted itself: the sender what was acknowledged, the
//! receiver what came. Nobody is received from without the oracle's signed order. A node takes
//! part in one measurement at a time, as sender or receiver, whatever the oracle or a peer says
//! (UKAIRO §2.1), and within its own bytes a day. `docs/measure.md` lists the settings and says
//! what is sent when.

mod counts;
mod flow;
mod kept;
mod load;
mod meter;
mod orders;
mod outbox;
mod pace;
mod part;
mod purse;
mod quiet;
mod receive;
mod reporter;
mod send;
mod used;

pub use load::RelayView;
pub use purse::Purse;

use crate::overlay::OverlayCounts;
use counts::Counts;
use futures_util::future::BoxFuture;
use orders::Orders;
use outbox::Outbox;
use pace::Pace;
use prometheus_client::registry::Registry;
use quiet::Quiet;
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
    shares::Shares,
};
use thalweg_measure::{Bound, bulk::Found, estimators::Finding};
use thalweg_mesh::{Membership, MeshPeer, OracleClient, service::MemberService};
use thalweg_net::{
    Ed25519, PrivateKey,
    channel::{Channel, Connector},
    legs::{Legs, SeenLeg},
};
use thalweg_units::{ByteSize, NodeId, Rate};
use thalweg_wire::{
    Signer as _,
    mesh::{
        Name,
        measure::{MOST_BPS, Probed},
        measure_flow::{Hello, Limits, MOST_MICROS, Refusal, Verdict},
        measure_ticket::{Ticket, Void},
    },
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit, broadcast},
};
use used::Used;

/// The longest flow, whoever asks for more (UKAIRO §3.2.1).
pub const MAX_TIME: Duration = Duration::from_secs(5);

/// The most bytes of one flow, whoever asks for more: 5 s at 1.7 Gbit/s.
pub const MAX_BYTES: ByteSize = ByteSize::from_bytes(1 << 30);

/// A flow of fewer bytes shows slow start alone; with no more left of the day, none is begun.
const LEAST_BYTES: ByteSize = ByteSize::from_bytes(64 * 1024);

/// Legs of relayed transfers that the overlay may be behind: all that a relay remembers. When the
/// overlay is further behind, the oldest are dropped.
const TRANSFERS: usize = 1024;

/// Channels that are heard at a time, of which one at most is accepted: each waits 5 s at most for its hello.
/// Those beyond are closed, and their senders report that.
const HEARD: usize = 16;

/// Of one peer: its flow, and the next one's hello while that ends. So no member takes up all.
const HEARD_EACH: usize = 2;

/// How this node measures; cheap to clone.
#[derive(Clone, Debug)]
pub struct Prober(Arc<Shared>);

/// What all parts need.
#[derive(Debug)]
struct Shared {
    /// This node's name and key.
    name: Name,
    key: NodeId,
    membership: Membership,
    connector: Connector,
    purse: Arc<Purse>,
    counts: Counts,
    /// The most that this node sends or receives for measuring.
    max_rate: Option<Rate>,
    /// One place: a second flow beside would halve both.
    lane: Arc<Semaphore>,
    /// What was seen of users' transfers, for the overlay.
    transfers: broadcast::Sender<SeenLeg>,
    /// Where it is seen, also on a node that relays nothing; and whether it is reported.
    legs: OnceLock<(Legs, bool)>,
    /// The overlay's counts, where there is one.
    overlay: OnceLock<OverlayCounts>,
    hearing: Shares<NodeId>,
    used: Used,
    quiet: Quiet,
    outbox: Outbox,
    log: Log,
}

impl Prober {
    /// The prober of the node `name` with this key.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(
        (name, key): (Name, &PrivateKey),
        membership: Membership,
        purse: Purse,
        max_rate: Option<Rate>,
        log: Log,
    ) -> io::Result<Self> {
        let (connector, key) = (Connector::new(key)?, key.id());
        let (purse, counts) = (Arc::new(purse), Counts::default());
        let shared = Shared {
            name,
            key,
            membership,
            connector,
            purse,
            counts,
            max_rate,
            lane: Arc::new(Semaphore::new(1)),
            transfers: broadcast::channel(TRANSFERS).0,
            legs: OnceLock::new(),
            overlay: OnceLock::new(),
            hearing: Shares::new(HEARD, HEARD_EACH),
            used: Used::default(),
            quiet: Quiet::default(),
            outbox: Outbox::default(),
            log,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// What measuring may cost, for others who measure.
    pub fn purse(&self) -> Arc<Purse> {
        Arc::clone(&self.0.purse)
    }

    /// The place that each flow has; whoever holds it measures beside none.
    pub fn lane(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.lane)
    }

    /// The most that this node sends for measuring.
    pub(crate) fn max_rate(&self) -> Option<Rate> {
        self.0.max_rate
    }

    /// What this node's own transfers show of its legs is noted there, and reported if it may be; the first word
    /// counts. Without it what its relay sees is, alone.
    pub fn sees(&self, legs: Legs, passive: bool) {
        _ = self.0.legs.set((legs, passive));
    }

    /// Bytes that transfers moved to each member since this was last asked.
    pub(crate) fn moved(&self) -> BTreeMap<Name, u64> {
        self.0.legs.get().map(|(legs, _)| legs.moved()).unwrap_or_default()
    }

    /// What transfers show of legs to members, from now on.
    pub(crate) fn transfers(&self) -> broadcast::Receiver<SeenLeg> {
        self.0.transfers.subscribe()
    }

    /// The oracle is told what trains found on the leg to this member.
    pub(crate) fn probed(&self, to: Name, found: &Finding, bytes: u64) {
        let [low_bps, high_bps] = [found.low, found.high].map(|end| end.clamp(0.0, MOST_BPS));
        let (at_least, age) = (found.is_lower_bound, Duration::ZERO);
        self.0.outbox.probed(Probed { id: 0, to, low_bps, high_bps, at_least, bytes, age });
    }

    /// The overlay's counts are shown with this one's; the first word counts.
    pub(crate) fn shows(&self, overlay: OverlayCounts) {
        _ = self.0.overlay.set(overlay);
    }

    /// Makes known to `registry` what is counted, as `thalweg_measure_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counts.register(&self.0.purse, registry);
    }

    /// Carries out the oracle's orders and reports, on `relay` as well if this node has one,
    /// for ever; drop the future to end it.
    pub async fn run(self, client: OracleClient, relay: Option<RelayView>) {
        // One client: reports go to the oracle that gives the orders.
        let client = client.beside();
        let orders = Orders { shared: &self.0, client: client.clone() };
        let reporter = Reporter { shared: &self.0, client, relay };
        tokio::join!(orders.run(), reporter.run());
    }
}

impl Shared {
    /// What this node itself allows now; `None` if the day's bytes are used up.
    fn limits(&self) -> Option<Limits> {
        let left = self.purse.left();
        let millis = MAX_TIME.as_millis() as u32;
        (left >= LEAST_BYTES).then(|| Limits { bytes: left.min(MAX_BYTES).as_bytes(), millis })
    }

    /// Whether a rate is the node's own limit rather than the path's.
    fn is_own_limit(&self, bps: f64) -> bool {
        self.max_rate.is_some_and(|most| bps >= 0.9 * most.as_bps() as f64)
    }
}

/// The serving side: others' flows, as they come to the node's port.
impl Shared {
    async fn receive(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer) -> io::Result<Ended> {
        let heard = self.hearing.enter(peer.key());
        let _heard = heard.ok_or_else(|| io::Error::other("too many channels at a time"))?;
        let hello = receive::hello(&mut channel).await?;
        match self.admit(&hello, peer) {
            Ok((ticket, limits, _place)) => {
                let found = self.judge(channel, peer, limits).await?;
                Ok(found.map_or(Ended::Nothing, |found| Ended::Found(ticket.order, found)))
            }
            Err(refusal) => {
                receive::refuse(channel, refusal).await?;
                Ok(Ended::Refused(refusal))
            }
        }
    }

    /// The order, what it may cost, and the lane's place. Nothing is touched for whom the oracle
    /// has not sent; who finds this node busy may come again with the same order.
    fn admit(
        &self,
        hello: &Hello,
        peer: &MeshPeer,
    ) -> Result<(Ticket, Limits, SemaphorePermit<'_>), Refusal> {
        let mesh = (&self.membership.mesh(), &Ed25519);
        let (pair, now) = ((&peer.key(), &self.key), self.membership.now());
        let ticket = Ticket::admit(&hello.ticket, mesh, pair, now).map_err(Refusal::Void)?;
        if self.used.has(ticket.order) {
            return Err(Refusal::Void(Void::Used));
        }
        let place = self.lane.try_acquire().map_err(|_| Refusal::Busy)?;
        let own = self.limits().ok_or(Refusal::Budget)?;
        let own = Limits { bytes: own.bytes.min(ticket.bytes), ..own };
        match self.used.spend(ticket.order) {
            true => Ok((ticket, hello.limits.tightest(own), place)),
            false => Err(Refusal::Void(Void::Used)),
        }
    }

    async fn judge(
        &self,
        channel: Channel<TcpStream>,
        peer: &MeshPeer,
        limits: Limits,
    ) -> io::Result<Option<Verdict>> {
        let (tcp, early) = receive::accept(channel, limits).await?;
        let pace = Pace::new(self.max_rate);
        // Charged also when the future is dropped on the way.
        let mut flow =
            Charged { flow: receive::Flow::new(tcp, &early, limits, pace), shared: self, peer };
        let found = flow.flow.judge(limits.time()).await;
        let verdict = self.verdict(found);
        flow.flow.tell(verdict).await;
        Ok(found.map(|_| verdict))
    }

    /// What the sender is told; of nothing: a rate of 0. A rate that this node's own setting
    /// holds back is no steady rate of the path.
    fn verdict(&self, found: Option<Found>) -> Verdict {
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

    fn tell_received(&self, peer: &MeshPeer, from: SocketAddr, ended: io::Result<Ended>) {
        let name = &peer.member().name;
        self.counts.ended(false, counted(&ended));
        let event = Event::new("measured_by").with("peer", name).with("client", from);
        if let Ok(Ended::Found(order, found)) = ended {
            self.outbox.received(order, name.clone(), &found);
            let event = event.with_number("order", order).with_number("bps", found.bps as u64);
            return self.log.put(event.with_number("bytes", found.bytes));
        }
        // Whoever is a member can cause these as often as it likes.
        let Some(unsaid) = self.quiet.passes(peer.key()) else { return };
        let event = if unsaid > 0 { event.with_number("unsaid", unsaid) } else { event };
        self.log.put(match ended {
            Ok(Ended::Refused(why)) => event.with("refused", why),
            Ok(_) => event.with("why", "nothing came"),
            Err(e) => event.with("why", e),
        });
    }
}

/// What came of a flow that was received.
enum Ended {
    /// This order's, judged.
    Found(u64, Verdict),
    /// Not wanted.
    Refused(Refusal),
    /// Accepted, and nothing came.
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
            shared.tell_received(&peer, from, ended.unwrap_or_else(|e| Err(e.into())));
        })
    }

    /// The overlay's; null where there is none.
    fn report(&self) -> serde_json::Value {
        self.0.overlay.get().map(OverlayCounts::report).unwrap_or_default()
    }
}

fn counted(ended: &io::Result<Ended>) -> counts::Ended {
    match ended {
        Ok(Ended::Found(_, found)) if found.at_least => counts::Ended::AtLeast,
        Ok(Ended::Found(..)) => counts::Ended::Measured,
        Ok(Ended::Refused(_)) => counts::Ended::Refused,
        Ok(Ended::Nothing) | Err(_) => counts::Ended::Failed,
    }
}

/// A flow whose bytes are charged when it is dropped.
struct Charged<'a> {
    flow: receive::Flow,
    shared: &'a Shared,
    peer: &'a MeshPeer,
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        self.shared.purse.charge(self.peer.key(), self.flow.bytes);
    }
}
