//! The interface to the carrier's network, whose packets ride in probe trains: the addresses of members there.

use std::{fmt, io, net::SocketAddr};
use thalweg_units::NodeId;

/// Knows the addresses of members' ports in the carrier's network, and which legs use it without being told to.
///
/// A [`Dialer`](crate::Dialer) asks it for the first leg of each route that names no interface.
pub trait RideNetwork: fmt::Debug + Send + Sync {
    /// The address of the port of the node with this key.
    ///
    /// # Errors
    /// If this host has no carrier's network; the error says what it lacks.
    fn address(&self, node: NodeId) -> io::Result<SocketAddr>;

    /// Whether a leg to `node` that may take any path should use the carrier now. Answers at once.
    fn chooses(&self, _node: NodeId) -> bool {
        false
    }
}
