//! Who asks.

use std::net::{IpAddr, SocketAddr};
use thalweg_units::NodeId;

/// Who sent a request; put into its extensions by whoever accepted the connection.
///
/// A request without one is a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of the oracle's own user, over the local socket; counts as an admin.
    Local,
    /// The owner of a key that TLS has proven.
    Peer {
        /// The key.
        key: NodeId,
        /// Where the connection comes from, for the limit on joining.
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
