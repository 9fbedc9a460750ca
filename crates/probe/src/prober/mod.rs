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
mod deliver;
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
mod reach;
mod receive;
mod send;
mod serve;
mod used;

pub use load::RelayView;
pub use purse::Purse;

use counts::Counts;
use outbox::Outbox;
use prometheus_client::registry::Registry;
use quiet::Quiet;
use used::Used;

use crate::overlay::OverlayCounts;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};
use thalweg_base::{log::Log, shares::Shares};
use thalweg_measure::estimators::Finding;
use thalweg_mesh::{Membership, OracleClient};
use thalweg_net::legs::{Legs, SeenLeg};
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_units::{ByteSize, NodeId, Rate};
use thalweg_wire::{
    Signer as _,
    mesh::{
        Name,
        measure::{MOST_BPS, Probed},
        measure_flow::Limits,
    },
};
use tokio::sync::{Semaphore, broadcast};

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
        let reporting = deliver::run(&self.0, client.clone(), relay);
        tokio::join!(orders::run(&self.0, client), reporting);
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
