//! The caller of a request.

use std::net::{IpAddr, SocketAddr};
use thalweg_units::NodeId;

/// Identifies the sender of a request. The acceptor of the connection puts it into the request's extensions.
///
/// A request without one comes from a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of the oracle's own user, over the local socket. It counts as an admin.
    Local,
    /// The owner of a key that TLS has proven.
    Peer {
        key: NodeId,
        /// The address that the connection comes from, for the limit on joining.
        address: IpAddr,
    },
}

impl Caller {
    /// The peer of a channel.
    pub fn peer(key: NodeId, address: SocketAddr) -> Self {
        Self::Peer { key, address: address.ip().to_canonical() }
    }

    /// The proven key.
    pub fn key(&self) -> Option<NodeId> {
        match self {
            Self::Local => None,
            Self::Peer { key, .. } => Some(*key),
        }
    }
}
