//! The relay inside a mesh's channels: for members only, by the roster's rules and quotas.
//!
//! ```text
//! channel ─ METHODS, terms, CONNECT ─ gate: rules, avoided tags ─ quota ─ resolve ─ gate: each
//!   │                                   no: reply 2                │        address ─ connect
//!   │                                                              no: 2        │ [preamble]
//!   └── sealed: reply, pump TLS ↔ clear · open: reply, GO, GO-ACK, pump clear ↔ clear ──┘
//! ```
//!
//! Whatever happens, the peer's revocation resets both legs at once.

mod avoided;
mod gate;
mod session;

pub use gate::{Admitted, Gate};

use avoided::AvoidedNames;

use super::{RelayConfig, RelayMetrics, Resolver, SharedResolver, quota::Quotas};
use futures_util::future::BoxFuture;
use std::{io, net::SocketAddr, sync::Arc};
use thalweg_base::budget::Budget;
use thalweg_base::{log::Log, shares::Shares};
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
    config: RelayConfig,
    membership: Membership,
    quotas: Quotas,
    metrics: RelayMetrics,
    log: Log,
    /// [`RelayConfig::max_connections`]; those beyond are refused, so that their
    /// clients take another relay.
    places: Arc<Semaphore>,
    /// At most [`REFUSED`] connections without a place, until they are told so; a quarter of them of one member.
    refused: Shares<NodeId>,
    avoided: AvoidedNames,
    /// [`RelayConfig::resolver`], shared fairly.
    names: Arc<SharedResolver>,
}

/// The most channels that are listened to only to be refused in their own words; any more
/// are closed at once. A tenth of the sessions is enough for a rush, and little memory.
const REFUSED: usize = RelayConfig::MAX_CONNECTIONS / 10;

impl MeshRelay {
    /// The relay of the node with key `own`.
    ///
    /// `config.listen` is the node's port, which it never connects to; more of
    /// those go into [`super::EgressPolicy::with_admin`]. `config.allow_from` and
    /// `config.drain` do not count: members come by their keys, and whoever awaits
    /// the sessions drains them.
    ///
    /// # Errors
    /// If the kernel does not tell this host's addresses.
    pub fn new(
        own: NodeId,
        mut config: RelayConfig,
        membership: Membership,
        budget: Arc<Budget>,
        metrics: RelayMetrics,
        log: Log,
    ) -> io::Result<Self> {
        config.egress = config.egress.guarded([config.listen])?;
        let places = config.max_connections.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(places));
        let quotas = Quotas::new(budget);
        let names = Arc::new(SharedResolver::new(Arc::clone(&config.resolver)));
        config.resolver = Arc::clone(&names) as Arc<dyn Resolver>;
        let (refused, avoided) = (Shares::new(REFUSED, REFUSED / 4), AvoidedNames::default());
        let shared = Shared {
            own,
            config,
            membership,
            quotas,
            metrics,
            log,
            places,
            refused,
            avoided,
            names,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Serves one member's channel to its end, and logs it.
    ///
    /// It ends at once, with both legs reset, when the peer is revoked; the same
    /// without a word when the future is dropped.
    pub fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> impl Future<Output = ()> + Send + use<> {
        session::serve(Arc::clone(&self.0), Box::new(channel), peer, from)
    }

    /// Its counts, for `thalweg status`.
    pub fn report(&self) -> serde_json::Value {
        self.0.metrics.report()
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
