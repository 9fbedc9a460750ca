//! A SOCKS5 relay (RFC 1928, CONNECT). Other hosts detour connections through it: it is the detour node of UKAIRO §3.2.3
//! (`REFERENCES.md`).
//!
//! A client asks over a TCP connection or a channel for a destination. The relay connects to it and copies bytes between
//! the two legs, or refuses. [`Relay`] has its own listener and identifies clients by address; [`MeshRelay`] serves
//! members of a mesh inside their channels, by the roster's rules and quotas.
//!
//! ```text
//! accept ─ client allowed? ─ SOCKS5 ─ resolve ─ egress policy ─ connect ─ pump
//!            no: closed without a byte          no: SOCKS5 reply 2        │
//!                                    liveness: idle, linger, black hole ──┘
//! ```
//!
//! - A client that is not allowed gets no byte. A listener beyond loopback must list its clients.
//! - The relay resolves each name once, checks every address, and dials only checked addresses.
//! - It never connects to the node's own ports, and to an address of its own host only if the operator has allowed
//!   exactly this address (/32 or /128).
//! - Half-closed connections go on. A leg that breaks *resets* the other, so that no truncated stream looks complete.
//! - Connections, buffers and all waits are bounded. If no descriptor is free, live connections continue, and new ones
//!   wait to be accepted.
//!
//! In addition to UKAIRO's relay program (*srelay*) it has an egress policy, liveness checks and half-close.
//!
//! Terms:
//!
//! - *leg*: one TCP connection between two consecutive hosts. The first leg is the client's, the second leads to the
//!   destination. A *sealed* leg uses TLS throughout; an *open* leg leaves TLS after the handshake (the *cut-over*), for
//!   data that is encrypted already.
//! - *channel*: an authenticated TLS connection between two members of a mesh. *Roster*: the signed list of the mesh's
//!   members, their addresses, tags and rules. *Oracle*: the member that signs it. *Rank*: the order of rosters by
//!   version. *Principal key*: the key that identifies a member, whichever of its keys opened a channel.
//! - *tag*: a label of a member in the roster, such as a country. Clients can *avoid* tags.
//! - *terms*: what a member asks of a relay beyond SOCKS5: the kind of leg, and tags to avoid. *Next hop*: the member
//!   that the client names as the destination. *Preamble*: the relay's first bytes to it, with the depth of the chain.
//! - *pump*: copies bytes between the legs. *Liveness*: ends connections that are *idle*, that *linger* half-closed, or
//!   whose peer acknowledges nothing (a *black hole*).
//! - *egress policy*: which addresses and ports the relay may connect to; *gate*: the policy and the mesh's rules
//!   together, for one member's request. A *denial* is their reason against a destination; a *refusal* is what the client
//!   is told.
//! - *quota*: a member's limits at this relay. *Slot*: one of the connections that the relay serves at a time.
//! - *stranger*: a client that is not allowed; in the gate, an address that belongs to no member.

mod address_class;
mod config;
mod connections;
mod denial;
mod egress;
mod handshake;
mod mesh;
mod metrics;
mod own_addresses;
mod quota;
mod refusal;
mod resolver;
mod session;
#[cfg(test)]
mod tests;

pub use address_class::Class;

pub use config::{CidrError, ConfigError, RelayConfig, parse_cidr};
pub use denial::Denial;

pub use egress::{EgressPolicy, SMTP};
pub use handshake::{Handshake, read_request};
pub use ipnet::IpNet;

pub use mesh::{AllowedAddress, Gate, MeshRelay, ReachService, ReverseError};
pub use metrics::RelayMetrics;
pub use own_addresses::OwnAddresses;
pub use quota::today;
pub use refusal::Refusal;
pub use resolver::{ResolveFuture, Resolver, SharedResolver, SystemResolver, TooManyNames};
use thalweg_base::log::Log;
pub use thalweg_wire::mesh::{PortRange, PortRangeError};

use connections::Connections;
use std::{io, net::SocketAddr, sync::Arc};
use thalweg_base::accept;
use thiserror::Error;
use tokio::{net::TcpListener, sync::Semaphore};

/// A plain relay that listens on its address.
#[derive(Debug)]
pub struct Relay {
    listener: TcpListener,
    config: Arc<RelayConfig>,
    log: Log,
}

/// What a relay has done from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Clients that were served, successfully or not.
    pub served: u64,
    /// Connections of clients that are not allowed, which were closed without a byte.
    pub strangers: u64,
    /// Connections that were reset because draining took too long.
    pub cut: u64,
}

/// The relay could not start.
#[derive(Debug, Error)]
pub enum BindError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The host's own addresses, which the relay must not connect to, are unknown.
    #[error("cannot list this host's addresses: {0}")]
    OwnAddresses(#[source] io::Error),
}

impl Relay {
    /// Checks the settings and listens; must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(mut config: RelayConfig, log: Log) -> Result<Self, BindError> {
        config.check()?;
        let address = config.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| BindError::Listen { address, source })?;
        let listens = listener.local_addr().unwrap_or(address);
        config.egress = config.egress.deny_this_host([listens]).map_err(BindError::OwnAddresses)?;
        Ok(Self { listener, config: Arc::new(config), log })
    }

    /// The address it listens on, with the actual port.
    ///
    /// # Errors
    /// The system's errors; not expected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` completes, then drains and returns.
    ///
    /// While it drains, it accepts nothing. Live connections have [`RelayConfig::drain`] to finish; then the rest is
    /// reset. If the future is dropped, all legs are reset at once.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        let Self { listener, config, log } = self;
        let slots = config.max_connections.min(Semaphore::MAX_PERMITS);
        let slots = Arc::new(Semaphore::new(slots));
        let mut connections = Connections::new(config, log);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = connections.wait_for_end() => {}
                (permit, accepted) = accept::next(&slots, &listener) => {
                    connections.take(permit, accepted).await;
                }
            }
        }
        drop(listener);
        connections.drain().await
    }
}
