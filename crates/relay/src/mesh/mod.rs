//! The relay inside a mesh's channels: it serves only members, by the roster's rules and quotas.
//!
//! ```text
//! channel ─ methods, terms, CONNECT ─ gate: rules, avoided tags ─ quota ─ resolve ─ gate: each address ─ connect
//!   │                                   no: SOCKS5 reply 2                     no: SOCKS5 reply 2           │
//!   │                                                                   the next hop is a member: preamble ─┤
//!   ├── sealed leg: reply, then pump between TLS and clear ─────────────────────────────────────────────────┤
//!   └── open leg: reply, GO, GO-ACK, then pump between clear and clear ─────────────────────────────────────┘
//! ```
//!
//! After GO and GO-ACK both ends have left TLS (see `session`); the crate's documentation defines the terms.
//!
//! At any time, a revocation of the peer resets both legs at once.

mod avoided_names;
mod gate;
mod reach;
mod session;

pub use gate::{AllowedAddress, Gate};
pub use reach::{ReachService, ReverseError};

use avoided_names::AvoidedNames;
use reach::ReverseConnections;

use super::{RelayConfig, RelayMetrics, Resolver, SharedResolver, quota::Quotas};
use futures_util::future::BoxFuture;
use std::{io, net::SocketAddr, sync::Arc};
use thalweg_base::{budget::Budget, live_settings::LiveSettings};
use thalweg_base::{log::Log, peer_slots::PeerSlots};
use thalweg_mesh::{Membership, MeshPeer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_units::NodeId;
use tokio::{net::TcpStream, sync::Semaphore};

/// A relay for the members of a mesh; cheap to clone.
#[derive(Clone, Debug)]
pub struct MeshRelay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    own: NodeId,
    config: LiveSettings<RelayConfig>,
    membership: Membership,
    quotas: Quotas,
    metrics: RelayMetrics,
    log: Log,
    /// Slots for [`RelayConfig::max_connections`]. Connections beyond are refused, so that their clients use another
    /// relay.
    slots: Arc<Semaphore>,
    /// At most [`MAX_REFUSED`] connections without a slot that wait for their refusal, at most a quarter of them of one
    /// member.
    refused: PeerSlots<NodeId>,
    avoided: AvoidedNames,
    /// [`RelayConfig::resolver`], shared fairly.
    names: Arc<SharedResolver>,
    /// Members that cannot be dialled, and clients that wait for them.
    reverse: Arc<ReverseConnections>,
}

/// The most channels without a slot that get a refusal in SOCKS5. Further ones are closed at once. A tenth of the
/// sessions is enough for many clients at once, and takes little memory.
const MAX_REFUSED: usize = RelayConfig::MAX_CONNECTIONS / 10;

impl MeshRelay {
    /// Creates the relay of the node with key `own`.
    ///
    /// `config.listen` is the node's port, which it never connects to; the node's other ports must be given by
    /// [`super::EgressPolicy::with_admin`]. `config.allow_from` and `config.drain` are not used: members are identified
    /// by their keys, and the caller waits for the sessions at shutdown.
    ///
    /// # Errors
    /// If the kernel does not list this host's addresses.
    pub fn new(
        own: NodeId,
        mut config: RelayConfig,
        membership: Membership,
        budget: Arc<Budget>,
        metrics: RelayMetrics,
        log: Log,
    ) -> io::Result<Self> {
        config.egress = config.egress.deny_this_host([config.listen])?;
        let slots = config.max_connections.min(Semaphore::MAX_PERMITS);
        let slots = Arc::new(Semaphore::new(slots));
        let quotas = Quotas::new(budget);
        let names = Arc::new(SharedResolver::new(Arc::clone(&config.resolver)));
        config.resolver = Arc::clone(&names) as Arc<dyn Resolver>;
        let (refused, avoided) =
            (PeerSlots::new(MAX_REFUSED, MAX_REFUSED / 4), AvoidedNames::default());
        let shared = Shared {
            own,
            config: LiveSettings::new(config),
            membership,
            quotas,
            metrics,
            log,
            slots,
            refused,
            avoided,
            names,
            reverse: Arc::default(),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Prepares other settings, which apply to connections that begin once the function that it returns was called;
    /// `max_connections` stays as it is.
    ///
    /// # Errors
    /// If the kernel does not list this host's addresses; nothing is changed.
    pub fn prepare(&self, mut config: RelayConfig) -> io::Result<impl FnOnce() + Send + use<>> {
        config.egress = config.egress.deny_this_host([config.listen])?;
        config.resolver = Arc::clone(&self.0.names) as Arc<dyn Resolver>;
        config.max_connections = self.0.config.get().max_connections;
        let shared = Arc::clone(&self.0);
        Ok(move || shared.config.set(config))
    }

    /// Serves one member's channel to its end and logs it.
    ///
    /// When the peer is revoked, the session ends at once and both legs are reset. If the future is dropped, both legs
    /// are reset, too, and nothing is logged.
    pub fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> impl Future<Output = ()> + Send + use<> {
        session::serve(Arc::clone(&self.0), Box::new(channel), peer, from)
    }

    /// The relay's counts, for `thalweg status`.
    pub fn report(&self) -> serde_json::Value {
        self.0.metrics.report()
    }

    /// Members that cannot be dialled, and clients that wait for them.
    fn reverse(&self) -> &Arc<ReverseConnections> {
        &self.0.reverse
    }

    /// Whether the roster gives this node the role relay now.
    fn has_role(&self) -> bool {
        let roster = self.0.membership.current();
        roster.is_some_and(|roster| gate::relay(&roster, &self.0.own).is_ok())
    }

    /// Whether the settings permit to dial an address that a member lists.
    fn may_dial(&self, at: SocketAddr) -> bool {
        self.0.config.get().egress.check_always_denied(at).is_ok()
    }
}

impl MemberService for MeshRelay {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(Self::serve(self, channel, peer, from))
    }

    fn report(&self) -> serde_json::Value {
        Self::report(self)
    }
}
